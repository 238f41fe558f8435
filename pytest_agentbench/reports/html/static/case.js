import { el } from "./dom.js";
import { fragment, go } from "./router.js";
import { outcomePill, tally } from "./outcomes.js";
import { modelOf } from "./runhead.js";
import { scrolled } from "./tables.js";
import { clip, compact, percent, runCost, score, seconds } from "./text.js";

const MOST = 500;

/** All runs of a case, two of which can be laid beside each other: `#case=KEY`, `&model=ID` for those of one model. */
export function caseView(app, params) {
  const key = params.get("case");
  const model = params.get("model");
  const all = app.index.byCase.get(key) ?? [];
  const runs = model === null ? all : all.filter(({ row }) => row.model_id === model);
  if (runs.length === 0) return noSuchCase(key);
  const [{ row: first }] = runs;
  const chosen = [runs.find(({ row }) => row.outcome === "failed") ?? runs[0], null];
  chosen[1] = runs.find((run) => run !== chosen[0] && run.row.outcome !== chosen[0].row.outcome) ?? runs.find((run) => run !== chosen[0]) ?? null;
  const names = (at) => ["Left", "Right"][at];
  const pick = (run, at) =>
    el("input", { type: "radio", name: `side-${at}`, "aria-label": `${names(at)}: ${run.row.nodeid}`, checked: chosen[at] === run, on: { change: () => (chosen[at] = run) } });
  const rows = runs.slice(0, MOST).map((run) => caseRow(app, run, runs.length > 1 ? [0, 1].map((at) => el("td", { class: "pick", "data-title": names(at) }, pick(run, at))) : []));
  const heads = [["Outcome"], ["Run"], ["Score", true], ["Time", true], ["Tokens", true], ["Cost", true], ["Message"], ...(runs.length > 1 ? [["Left"], ["Right"]] : [])];
  const compare = el("button", { type: "button", class: "main-action", on: { click: () => go({ compare: chosen[0].row.nodeid, with: chosen[1].row.nodeid }) } }, "Compare left and right");
  const node = el(
    "div",
    { class: "case" },
    el("nav", { class: "crumbs", "aria-label": "Where this case stands" }, el("a", { href: fragment({ view: "matrix" }) }, "Cases × models"), " › ", first.case_id),
    el("h1", {}, first.case_id, model === null ? null : el("span", { class: "faint" }, ` ${modelOf(app, first)}`)),
    el("p", { class: "nodeid" }, el("code", {}, key)),
    el("p", {}, `${tally(runs)}.`, model !== null && all.length > runs.length ? [" ", el("a", { href: fragment({ case: key }) }, `All ${all.length} runs of all models`)] : null),
    el("p", { class: "chips marks" }, first.must_pass ? el("span", { class: "chip" }, "must pass") : null, first.tags.map((tag) => el("a", { class: "chip", href: fragment({ view: "runs", tag }) }, tag))),
    statistics(app, key, model),
    el("h2", {}, "Runs"),
    scrolled("Runs of this case", el("table", { class: "case-runs" }, el("thead", {}, el("tr", {}, heads.map(([title, number]) => el("th", { scope: "col", class: number ? "number" : null }, title)))), el("tbody", {}, rows))),
    runs.length > MOST ? el("p", { class: "note" }, `The first ${MOST} of ${runs.length} runs.`) : null,
    runs.length > 1 ? el("p", {}, compare) : null,
  );
  return { title: first.case_id, node, refresh() {} };
}

function caseRow(app, run, picks) {
  const { row } = run;
  return el(
    "tr",
    {},
    el("td", {}, outcomePill(row.outcome)),
    el("th", { scope: "row" }, el("a", { href: fragment({ run: row.nodeid }) }, modelOf(app, row), row.repetition > 1 ? ` · ${row.repetition}` : "")),
    el("td", { class: "number" }, score(row.final_score)),
    el("td", { class: "number" }, seconds(row.duration_seconds)),
    el("td", { class: "number less" }, compact(row.usage?.total_tokens)),
    el("td", { class: "number less" }, runCost(row)),
    el("td", { class: "why" }, clip(row.message ?? "", 200)),
    picks,
  );
}

/** What the report says of the case's repetitions, by model. */
function statistics(app, key, model) {
  const runs = app.index.byCase.get(key).filter(({ row }) => model === null || row.model_id === model);
  const ids = new Set(runs.map(({ row }) => row.case_id));
  const groups = app.data.report.cases.filter((each) => ids.has(each.case_id) && (each.case ?? key) === key && (model === null || each.model_id === model) && each.repetitions > 1);
  if (groups.length === 0) return null;
  const rows = groups.map((each) => {
    const k = Object.keys(each.pass_at_k ?? {}).length;
    return el("tr", {}, el("th", { scope: "row" }, app.index.labels.get(each.model_id)), [percent(each.pass_rate), percent(each.pass_at_k?.[k]), percent(each.pass_hat_k?.[k]), score(each.mean_score), score(each.sd)].map((value) => el("td", { class: "number" }, value)), el("td", { class: "number" }, k || ""));
  });
  const heads = ["Model", "Pass rate", "pass@k", "pass^k", "Mean score", "SD", "k"].map((title, at) => el("th", { scope: "col", class: at > 0 ? "number" : null }, title));
  return scrolled("Repetitions", el("table", {}, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows)));
}

function noSuchCase(key) {
  return { title: "No such case", node: el("div", {}, el("h1", {}, "No such case"), el("p", {}, "This report has no run of ", el("code", {}, key), ". ", el("a", { href: fragment({ view: "matrix" }) }, "All cases"))) };
}
