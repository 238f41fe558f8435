import { href } from "./address.js";
import { columnKey } from "./columns.js";
import { el, svg } from "./dom.js";
import { COUNTED, outcomeLink } from "./outcomes.js";
import { scrolled, small } from "./tables.js";
import { OUTCOMES, compact, count, interval, percent, plural, score, seconds, usd } from "./text.js";

/** Models side by side. */
export function modelsTable(app) {
  const { models } = app.data.report;
  if (models.length === 0) return null;
  const scored = models.some((model) => model.mean_score !== null);
  const repeated = app.data.report.cases.some((each) => each.repetitions > 1);
  const columns = [
    ["Pass rate", (model) => [meter(model), el("strong", {}, percent(model.pass_rate)), small(interval(model.pass_rate_ci95, percent))]],
    ["Outcomes", (model) => outcomes(model)],
    scored ? ["Score, of 10", (model) => [el("strong", {}, score(model.mean_score)), small(interval(model.score_ci95, score)), judged(model)]] : null,
    repeated ? ["pass@k, pass^k", (model) => passes(model)] : null,
    repeated ? ["Flaky cases", (model) => flaky(model)] : null,
    ["Cost of a run", (model) => meanOf(app, model, (row) => row.cost_usd.run, usd)],
    ["Tokens of a run", (model) => meanOf(app, model, (row) => row.usage?.total_tokens ?? null, (tokens) => compact(Math.round(tokens)))],
    ["Time of a run", (model) => [seconds(model.duration_seconds.p50), model.duration_seconds.p95 === null ? null : small(`median; 95 % within ${seconds(model.duration_seconds.p95)}`)]],
    models.some((model) => model.streaming) ? ["First token", (model) => [seconds(model.streaming?.ttft_seconds.p50 ?? null), model.streaming ? small(speed(model.streaming)) : null]] : null,
  ].filter(Boolean);
  return scrolled("Models side by side", el(
    "table",
    { class: "models" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Model"), columns.map(([title]) => el("th", { scope: "col" }, title)))),
    el("tbody", {}, models.map((model) => el("tr", {}, el("th", { scope: "row" }, name(model)), columns.map(([title, cell]) => el("td", { "data-title": title }, cell(model)))))),
  ));
}

function speed({ ttft_seconds: first, output_tokens_per_second: rate }) {
  const told = [first.p95 === null ? null : `95 % within ${seconds(first.p95)}`, rate.p50 === null ? null : `${compact(Math.round(rate.p50))} tokens/s`];
  return told.filter(Boolean).join("; ");
}

function name(model) {
  const marks = [model.scripted && "scripted, not a model", model.own_agent && "own agent", model.predictions && `predictions of ${model.predictions}`];
  return [el("a", { href: casesOf(model) }, model.label || model.model_id), marks.filter(Boolean).map((mark) => small(mark))];
}

/** How many of the cases the score is about; an earlier report does not say. */
function judged(model) {
  if (model.scored_cases == null) return null;
  return small(model.scored_cases === model.cases ? `${plural(model.cases, "case")} judged` : `${count(model.scored_cases)} of ${count(model.cases)} judged`);
}

function outcomes(model) {
  const parts = OUTCOMES.filter((outcome) => model[COUNTED[outcome]] > 0);
  return el("span", { class: "tally" }, parts.map((outcome) =>
    outcomeLink(outcome, casesOf(model, SHOWN[outcome]), count(model[COUNTED[outcome]]), el("span", { class: "unseen" }, ` ${outcome}`)),
  ));
}

/** The pass rate as a bar, with its interval as a line. */
function meter(model) {
  if (model.pass_rate === null) return null;
  const [low, high] = model.pass_rate_ci95 ?? [null, null];
  return svg(
    "svg",
    { class: "meter", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "ground", width: 100, height: 8 }),
    svg("rect", { class: "value", width: 100 * model.pass_rate, height: 8 }),
    low === null ? null : svg("rect", { class: "range", x: 100 * low, width: Math.max(0.5, 100 * (high - low)), y: 3, height: 2 }),
  );
}

function passes(model) {
  const k = ks(model.pass_at_k).at(-1);
  return k === undefined ? "–" : [`${percent(model.pass_at_k[k])}, ${percent(model.pass_hat_k?.[k])}`, small(`k = ${k}, the most that all cases have`)];
}

function flaky(model) {
  if (model.flaky_cases == null) return "–";
  return el("a", { href: casesOf(model, "flaky") }, count(model.flaky_cases));
}

const SHOWN = { passed: "passed", failed: "failed", error: "errors", skipped: "skipped" };

/** The address of a model's cases. */
function casesOf(model, show = "") {
  return href("results", [], { show, cols: columnKey(model) });
}

function ks(passes) {
  return Object.keys(passes ?? {}).sort((one, other) => one - other);
}

/** A figure's mean over a model's runs of which it is known, and how many these are where they are not all. */
function meanOf(app, model, figure, how) {
  const ran = app.index.runs.filter(({ row }) => row.model_id === model.model_id && row.outcome !== "skipped");
  const known = ran.map(({ row }) => figure(row)).filter((value) => value !== null);
  if (known.length === 0) return "–";
  const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
  return [how(mean), known.length < ran.length ? small(`of ${count(known.length)} of ${plural(ran.length, "run")}`) : null];
}
