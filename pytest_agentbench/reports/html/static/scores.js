import { added } from "./added.js";
import { columnKey } from "./columns.js";
import { el } from "./dom.js";
import { runMeans } from "./figures.js";
import { scrolled } from "./tables.js";
import { compact, percent, score, seconds, usd } from "./text.js";

/** Further figures by model: runs, groups and sections of packs, other metrics, judges (means); null without any. */
export function scoresTable(app) {
  const { models } = app.data.report;
  const names = (kind) => [...new Set(models.flatMap((model) => Object.keys(model[kind] ?? {})))];
  const metrics = names("metrics");
  const own = added.metricGroups
    .filter(({ when }) => metrics.includes(when))
    .map((each) => ({ ...each, figures: each.figures.filter(([name]) => metrics.includes(name)) }));
  const taken = new Set(own.flatMap(({ figures }) => figures.map(([name]) => name)));
  const plain = (found) => found.map((name) => [name, name.replaceAll("_", " ")]);
  const groups = [
    runFigures(app),
    ...own.map(({ title, figures, sums }) => group(models, title, figures, (model, name) => model.metrics?.[name], sums)),
    ...(app.data.sections ?? []).map((section) =>
      group(models, section.model.title, section.model.figures, (model, name) => section.figures[models.indexOf(model)]?.[name], section.sums),
    ),
    group(models, "Metrics", metrics.filter((name) => !taken.has(name)).map((name) => [name, name]), (model, name) => model.metrics?.[name]),
    group(models, "Judge, 0 to 10", plain(names("judge").filter((name) => name !== "expectations")), (model, name) => model.judge?.[name], ["overall"]),
    group(models, "Judge, 0 to 1", plain(names("judge").filter((name) => name === "expectations")), (model, name) => model.judge?.[name]),
  ].filter((each) => each !== null);
  if (groups.length === 0) return null;
  const head = el("tr", {}, el("th", { scope: "col" }, "Figure"), models.map((model) => el("th", { scope: "col" }, model.label || model.model_id)));
  return [
    scrolled("Further figures by column", el("table", { class: "scores" }, el("thead", {}, head), groups)),
    ...own.map(({ note }) => el("p", { class: "note" }, note)),
  ];
}

/** Figures of a column's runs that the scoreboard has no room for; null where no model has any. */
function runFigures(app) {
  const { models, cases } = app.data.report;
  const tokens = runMeans(app, (row) => row.usage?.total_tokens ?? null);
  const repeated = cases.some((each) => each.repetitions > 1);
  const passes = (title, name) => [title, ({ [name]: byK }) => {
    const k = Object.keys(byK ?? {}).sort((one, other) => one - other).at(-1);
    return k === undefined || k === "1" ? null : `${percent(byK[k])} (k = ${k})`;
  }];
  const lines = [
    ...(repeated ? [passes("pass@k: one of k runs passes", "pass_at_k"), passes("pass^k: all of k runs pass", "pass_hat_k")] : []),
    ["Tokens of a run", (model) => known(tokens.get(columnKey(model))?.mean ?? null, (mean) => compact(Math.round(mean)))],
    ["First token, median", ({ streaming }) => known(streaming?.ttft_seconds.p50 ?? null, seconds)],
    ["Tokens a second, median", ({ streaming }) => known(streaming?.output_tokens_per_second.p50 ?? null, (rate) => compact(Math.round(rate)))],
  ].filter(([, text]) => models.some((model) => text(model) !== null));
  if (lines.length === 0) return null;
  const rows = lines.map(([title, text]) => el("tr", {}, el("th", { scope: "row" }, title), models.map((model) => el("td", {}, text(model) ?? "–"))));
  return el("tbody", {}, heading(models, "Runs"), rows);
}

function known(value, how) {
  return value === null ? null : how(value);
}

function heading(models, title) {
  return el("tr", { class: "group" }, el("th", { scope: "rowgroup", colspan: models.length + 1 }, title));
}

/** A body of the table with a heading of its own, its `main` figures in bold; null where no model has any of its figures. */
function group(models, title, lines, value, main = []) {
  const told = lines.filter(([name]) => models.some((model) => value(model, name) != null));
  if (told.length === 0) return null;
  const rows = told.map(([name, text]) =>
    el("tr", { class: main.includes(name) ? "sum" : null }, el("th", { scope: "row" }, text), models.map((model) => el("td", {}, (name.endsWith("_usd") ? usd : score)(value(model, name))))),
  );
  return el("tbody", {}, heading(models, title), rows);
}
