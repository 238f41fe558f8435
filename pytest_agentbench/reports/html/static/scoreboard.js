import { href } from "./address.js";
import { columnKey } from "./columns.js";
import { el, svg } from "./dom.js";
import { runMeans } from "./figures.js";
import { scrolled, small } from "./tables.js";
import { count, interval, percent, plural, runTime, score, usd, wholePercent } from "./text.js";
import { nameOf, pText, points, surety, testText, verdictsOf } from "./verdicts.js";

/** Seconds below which times are not compared. */
const NEGLIGIBLE = 0.01;

/** The columns of a report, one a row; each figure has one scale for all of them. */
export function scoreboard(app) {
  const { models } = app.data.report;
  if (models.length === 0) return null;
  const figures = figuresOf(app);
  const best = bestRate(models.filter((model) => !model.scripted));
  const head = figures.map(({ title, kind, top }) => el("th", { scope: "col", class: kind }, title, top ?? null));
  return scrolled("Columns side by side", el(
    "table",
    { class: "models" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Column"), head)),
    el("tbody", {}, models.map((model) => el(
      "tr",
      { class: !model.scripted && model.pass_rate !== null && model.pass_rate === best ? "best" : null },
      el("th", { scope: "row" }, name(app, model)),
      figures.map(({ title, kind, cell }) => el("td", { "data-title": title, class: kind }, cell(model))),
    ))),
  ));
}

/** The columns of the table: `{title, cell(model), kind, top}`, without those that no model has. */
function figuresOf(app) {
  const { models } = app.data.report;
  const axis = rateAxis(models);
  const costs = runMeans(app, (row) => row.cost_usd.run);
  const cost = (model) => costs.get(columnKey(model))?.mean ?? null;
  const median = (model) => model.duration_seconds.p50;
  const most = (value) => Math.max(0, ...models.map((model) => value(model) ?? 0));
  const bars = models.length > 1;
  const bar = (value, highest) => (bars ? scaleBar(value, highest) : null);
  return [
    { title: "Pass rate", kind: "rate", cell: (model) => [el("strong", {}, percent(model.pass_rate)), small(interval(model.pass_rate_ci95, wholePercent))] },
    { title: "95 % interval", kind: "axis", top: el("span", { class: "ends", "aria-hidden": "true" }, el("span", {}, wholePercent(axis)), el("span", {}, "100 %")), cell: (model) => plot(model, axis) },
    ...againstReference(app),
    models.some((model) => model.mean_score !== null)
      ? { title: "Score, of 10", kind: "number", cell: (model) => [score(model.mean_score), bar(model.mean_score, 10), small(interval(model.score_ci95, score)), judged(model)] }
      : null,
    models.some((model) => model.flaky_cases > 0) ? { title: "Flaky", kind: "number", cell: (model) => counted(model, model.flaky_cases, "flaky") } : null,
    models.some((model) => model.errors > 0) ? { title: "Errors", kind: "number", cell: (model) => counted(model, model.errors, "errors") } : null,
    models.some((model) => cost(model) !== null)
      ? { title: "Cost of a run", kind: "number", cell: (model) => [usd(cost(model)), bar(cost(model), most(cost)), partly(costs.get(columnKey(model)))] }
      : null,
    most(median) >= NEGLIGIBLE
      ? { title: "Median time", kind: "number", cell: (model) => [runTime(median(model)), bar(median(model), most(median)), model.duration_seconds.p95 === null ? null : small(`95 % within ${runTime(model.duration_seconds.p95)}`)] }
      : null,
  ].filter(Boolean);
}

/** The tested difference of each column to its reference; nothing where no pair was tested. */
function againstReference(app) {
  const verdicts = new Map(verdictsOf(app).map((verdict) => [verdict.column, verdict]));
  if (verdicts.size === 0) return [];
  const references = [...new Set([...verdicts.values()].map(({ reference }) => reference))];
  const title = references.length === 1 ? `Against ${nameOf(app, references[0])}` : "Against its reference";
  const cell = (model) => {
    const verdict = verdicts.get(columnKey(model));
    if (verdict === undefined) return references.includes(columnKey(model)) ? el("span", { class: "faint" }, "reference") : "–";
    const { rate } = verdict;
    const sure = ["better", "worse"].includes(rate.verdict);
    return [
      el("strong", { class: sure ? `outcome ${rate.verdict === "better" ? "passed" : "failed"}` : null }, points(rate.difference)),
      small([interval(rate.ci95, points), rate.difference === 0 ? null : surety(rate)].filter(Boolean).join(", ")),
      rate.p_value === null ? null : el("small", { title: testText(rate, verdicts.size) }, `${pText(rate)}, ${plural(rate.cases, "case")}`),
    ];
  };
  return [{ title, kind: "against", cell }];
}

function name(app, model) {
  const column = app.index.columns.find(({ key }) => key === columnKey(model));
  return [el("a", { href: casesOf(model) }, column.name), small(column.what)];
}

/** Where the common axis of pass rates begins: a quarter below the lowest end of an interval. */
function rateAxis(models) {
  const lows = models.filter((model) => model.pass_rate !== null).map((model) => (model.pass_rate_ci95 ?? [model.pass_rate])[0]);
  return Math.min(0.75, Math.floor(4 * Math.min(1, ...lows)) / 4);
}

function bestRate(models) {
  return models.length < 2 ? null : Math.max(...models.map((model) => model.pass_rate ?? -1));
}

/** The pass rate as a dot on its interval. */
function plot(model, axis) {
  if (model.pass_rate === null) return null;
  const at = (rate) => `${((100 * (rate - axis)) / (1 - axis)).toFixed(1)}%`;
  const [low, high] = model.pass_rate_ci95 ?? [model.pass_rate, model.pass_rate];
  return svg(
    "svg",
    { class: "plot", "aria-hidden": "true" },
    [axis, (1 + axis) / 2, 1].map((tick) => svg("line", { class: "tick", x1: at(tick), x2: at(tick), y1: 0, y2: "100%" })),
    svg("line", { class: "range", x1: at(low), x2: at(high), y1: "50%", y2: "50%" }),
    svg("circle", { class: "dot", cx: at(model.pass_rate), cy: "50%", r: 5 }),
  );
}

/** A figure as a thin bar, on the scale of its column. */
function scaleBar(value, highest) {
  if (value === null || highest === 0) return null;
  return svg(
    "svg",
    { class: "scale", viewBox: "0 0 100 1", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "ground", width: 100, height: 1 }),
    svg("rect", { class: "value", x: 100 - (100 * value) / highest, width: (100 * value) / highest, height: 1 }),
  );
}

/** How many of the cases the score is about; an earlier report does not say. */
function judged(model) {
  if (model.scored_cases == null || model.scored_cases === model.cases) return null;
  return small(`${count(model.scored_cases)} of ${count(model.cases)} judged`);
}

function partly(means) {
  if (means === undefined || means.known === means.ran || means.known === 0) return null;
  return small(`of ${count(means.known)} of ${plural(means.ran, "run")}`);
}

function counted(model, number, show) {
  if (number == null) return "–";
  return number === 0 ? el("span", { class: "faint" }, "0") : el("a", { href: casesOf(model, show) }, count(number));
}

/** The address of a model's cases. */
function casesOf(model, show = "") {
  return href("results", [], { show, cols: columnKey(model) });
}
