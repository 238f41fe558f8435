import { el, show } from "./dom.js";
import { filterBar } from "./filterbar.js";
import { filterRuns, filtersOf, flakyOf } from "./filters.js";
import { tally } from "./outcomes.js";
import { fragment } from "./router.js";
import { plural, sign } from "./text.js";
import { windowRows } from "./windowed.js";

/** Cases against models: what came of each, with the cases of most trouble first. */
export function matrixView(app, params) {
  const bar = filterBar(app, "matrix");
  const head = el("tr");
  const body = el("tbody");
  const table = el("table", { class: "matrix" }, el("caption", { class: "unseen" }, "Cases by models"), el("thead", {}, head), body);
  const scroller = el("div", { class: "both-ways", tabindex: "0", role: "region", "aria-label": "Cases by models" }, table);
  const guide = legend();
  const none = el("p", { class: "note", hidden: true });
  const node = el("div", {}, el("h1", { class: "unseen" }, "Cases by models"), bar.node, none, guide, scroller);
  let shown = [];
  let models = [];
  const list = windowRows(body, (at) => line(app, shown[at], models, at), { scroller, columns: app.index.models.length + 1 });

  function update(next) {
    const filters = filtersOf(next);
    const runs = filterRuns(app.index.runs, filters, flakyOf(app.index.runs));
    shown = grouped(runs);
    models = app.index.models.filter((id) => filters.model.length === 0 || filters.model.includes(id));
    bar.update(filters, runs.length);
    show(head, el("th", { scope: "col" }, plural(shown.length, "case")), models.map((id) => el("th", { scope: "col", class: "model" }, el("span", { title: id }, app.index.labels.get(id)))));
    table.setAttribute("aria-rowcount", shown.length + 1);
    for (const each of [bar.node, guide]) each.hidden = app.index.runs.length === 0;
    none.hidden = shown.length > 0;
    scroller.hidden = shown.length === 0;
    show(none, app.index.runs.length === 0 ? "There are no runs." : "No run passes these filters.");
    list.resize(shown.length);
  }

  queueMicrotask(() => update(params));
  return { title: "Cases × models", node, update, close: list.close, rows: { length: () => shown.length, inSight: list.inSight, reveal: list.reveal } };
}

function legend() {
  const parts = [["passed", "all passed"], ["mixed", "some passed"], ["failed", "all failed"], ["error", "errors only"], ["skipped", "skipped"]];
  return el("ul", { class: "legend" }, parts.map(([kind, text]) => el("li", {}, el("span", { class: `cell ${kind}`, "aria-hidden": "true" }, mark(kind)), ` ${text}`)), el("li", {}, "2/3: passed of judged runs, with ! where others were errors"));
}

function grouped(runs) {
  const cases = new Map();
  for (const run of runs) {
    if (!cases.has(run.case)) cases.set(run.case, { key: run.case, name: run.row.case_id, must: run.row.must_pass, models: new Map() });
    const models = cases.get(run.case).models;
    if (!models.has(run.row.model_id)) models.set(run.row.model_id, []);
    models.get(run.row.model_id).push(run);
  }
  return [...cases.values()].map((found) => [trouble(found), found]).sort(([one], [other]) => other - one).map(([, found]) => found);
}

/** The share of a case's runs that failed or were errors, over all models. */
function trouble({ models }) {
  const outcomes = [...models.values()].flat().map(({ row }) => row.outcome);
  return outcomes.filter((outcome) => outcome === "failed" || outcome === "error").length / outcomes.length;
}

function line(app, found, models, at) {
  const title = el("a", { href: fragment({ case: found.key }), title: found.key }, found.name);
  return el(
    "tr",
    { "data-at": at, "aria-rowindex": at + 2 },
    el("th", { scope: "row" }, title, found.must ? el("span", { class: "mark" }, " must pass") : null),
    models.map((id) => cell(app, found.models.get(id), id, found)),
  );
}

function cell(app, runs, id, found) {
  if (runs === undefined) return el("td", { class: "empty" }, el("span", { class: "unseen" }, "not run"));
  const kind = kindOf(runs);
  const judged = runs.filter(({ row }) => row.outcome === "passed" || row.outcome === "failed");
  const passed = judged.filter(({ row }) => row.outcome === "passed").length;
  const errors = runs.some(({ row }) => row.outcome === "error") && kind !== "error" ? "!" : "";
  const text = runs.length === 1 || judged.length === 0 ? mark(kind) : `${mark(kind)} ${passed}/${judged.length}${errors}`;
  const href = runs.length === 1 ? fragment({ run: runs[0].row.nodeid }) : fragment({ case: found.key, model: id });
  const told = `${found.name}, ${app.index.labels.get(id)}: ${tally(runs)}`;
  return el("td", {}, el("a", { class: `cell ${kind}`, href, title: told, "aria-label": told }, text));
}

function kindOf(runs) {
  const found = new Set(runs.map(({ row }) => row.outcome));
  if (found.has("passed")) return found.has("failed") ? "mixed" : "passed";
  return ["failed", "error", "skipped"].find((outcome) => found.has(outcome));
}

function mark(kind) {
  return kind === "mixed" ? "±" : sign(kind);
}
