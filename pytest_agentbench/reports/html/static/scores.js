import { added } from "./added.js";
import { el } from "./dom.js";
import { scrolled } from "./tables.js";
import { score, usd } from "./text.js";

/** Means of what scores gave, by model: groups and sections of packs, other metrics, judges; null where there are none. */
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
    ...own.map(({ title, figures, sums }) => group(models, title, figures, (model, name) => model.metrics?.[name], sums)),
    ...(app.data.sections ?? []).map((section) =>
      group(models, section.model.title, section.model.figures, (model, name) => section.figures[models.indexOf(model)]?.[name], section.sums),
    ),
    group(models, "Metrics", metrics.filter((name) => !taken.has(name)).map((name) => [name, name]), (model, name) => model.metrics?.[name]),
    group(models, "Judge, 0 to 10", plain(names("judge").filter((name) => name !== "expectations")), (model, name) => model.judge?.[name], ["overall"]),
    group(models, "Judge, 0 to 1", plain(names("judge").filter((name) => name === "expectations")), (model, name) => model.judge?.[name]),
  ].filter((each) => each !== null);
  if (groups.length === 0) return null;
  const head = el("tr", {}, el("th", { scope: "col" }, "Mean of"), models.map((model) => el("th", { scope: "col" }, model.label || model.model_id)));
  return [
    scrolled("Mean scores by model", el("table", { class: "scores" }, el("thead", {}, head), groups)),
    ...own.map(({ note }) => el("p", { class: "note" }, note)),
  ];
}

/** A body of the table with a heading of its own, its `main` figures in bold; null where no model has any of its figures. */
function group(models, title, lines, value, main = []) {
  const told = lines.filter(([name]) => models.some((model) => value(model, name) != null));
  if (told.length === 0) return null;
  const rows = told.map(([name, text]) =>
    el("tr", { class: main.includes(name) ? "sum" : null }, el("th", { scope: "row" }, text), models.map((model) => el("td", {}, (name.endsWith("_usd") ? usd : score)(value(model, name))))),
  );
  return el("tbody", {}, el("tr", { class: "group" }, el("th", { scope: "rowgroup", colspan: models.length + 1 }, title)), rows);
}
