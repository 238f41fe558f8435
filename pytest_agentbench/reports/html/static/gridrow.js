import { go, href } from "./address.js";
import { BASELINE, baselineOf } from "./baseline.js";
import { el } from "./dom.js";
import { linesBelow } from "./gridlayout.js";
import { icon, verdictSign, verdictText } from "./icons.js";
import { labelSign } from "./labels.js";
import { changeOf, listValues, runHref, showsBaseline } from "./listing.js";
import { differenceMarked, expectedMarked, marked } from "./marks.js";
import { reasonLine } from "./reasons.js";
import { fold, fromMatch, wordAt } from "./search.js";
import { DASH, runCost, runTime, score } from "./text.js";

/** Letters of a text that are in sight whatever its row's height; a match beyond them is brought to the front. */
const IN_SIGHT = 120;

/** The row of a case. `view` is `{app, list, words, columns, hasExpected}`; `height` in pixels, null on paper. */
export function gridRow(view, each, at, height) {
  const row = el(
    "tr",
    { "data-at": at, "aria-rowindex": at + 2 },
    el("th", { scope: "row" }, el("div", { class: "clip" }, question(view, each), meta(view, each))),
    view.hasExpected ? el("td", { class: "exp" }, el("div", { class: "clip" }, marked(each.expected ?? "", view.words))) : null,
    showsBaseline(view.list) ? baselineCell(view, each, height) : null,
    view.columns.map((column) => answerCell(view, each, column, height)),
  );
  if (height !== null) {
    row.style.height = `${height}px`;
    row.style.setProperty("--h", `${height}px`);
  }
  return row;
}

export function question({ words }, each) {
  const text = each.question ?? each.title ?? each.id;
  return el("p", { class: "q" }, marked(fromMatch(text, words, IN_SIGHT), words));
}

export function meta({ app, list, words }, each) {
  const values = listValues(list, app.index);
  return el(
    "p",
    { class: "meta" },
    el("span", { class: "id", title: each.key }, marked(each.id, words)),
    each.must ? el("span", { class: "must" }, "must pass") : null,
    each.tags.map((tag) => el("a", { class: "tagchip", href: href("results", [], { ...values, tag: [tag] }) }, tag)),
  );
}

/** What the compared report has of a case. */
function baselineCell({ app, list }, each, height) {
  const before = baselineOf(app.index, each, list.columns[0].key);
  if (before === null) return el("td", { class: "ans base" }, el("span", { class: "faint" }, "not judged there"));
  const text = el("p", { class: "text" }, before.answer);
  if (height !== null) text.style.setProperty("--lines", linesBelow(height, false));
  return el("td", { class: `ans base ${before.verdict}` }, el("div", { class: "cellhead" }, verdictSign(before.verdict, before.text)), el("div", { class: "clip" }, text));
}

function answerCell(view, each, column, height) {
  const { app, list, words } = view;
  const cell = each.cells.get(column.key);
  if (cell === undefined) return el("td", { class: "ans", "data-col": column.key }, el("span", { class: "unseen" }, "not run"));
  const run = shownRun(cell, words);
  const reason = reasonLine(run.row);
  const target = runHref(app.index, run, listValues(list, app.index));
  const open = (event) => {
    if (event.target.closest("a, button") === null && String(getSelection()) === "") go(target);
  };
  const text = el("p", { class: "text" }, answerNodes(view, each, column, run));
  if (height !== null) text.style.setProperty("--lines", linesBelow(height, reason !== null));
  return el(
    "td",
    { class: `ans ${cell.verdict}`, "data-col": column.key, on: { click: open } },
    el(
      "div",
      { class: cell.errors > 0 && cell.judged > 0 ? "cellhead long" : "cellhead" },
      el("a", { href: target, class: "open", "aria-label": `${each.id}, ${column.name}: ${verdictText(cell)}` }, verdictSign(cell.verdict, verdictText(cell))),
      run.row.policy === "quarantined" ? el("span", { class: "must", title: "its failures do not fail the session" }, "quarantined") : null,
      movement(view, each, column.key),
      labelSign(run.row),
      figures(app, run.row),
    ),
    el("div", { class: "clip" }, reason === null ? null : el("p", { class: `why ${run.row.outcome}`, title: reason }, marked(reason, words)), text),
  );
}

/** The repetition whose answer the search means, else the one that a reader should see. */
export function shownRun(cell, words) {
  const has = ({ row }) => row.answer != null && words.every((word) => wordAt(fold(row.answer), word) >= 0);
  return (words.length > 0 && cell.runs.length > 1 && cell.runs.find(has)) || cell.shown;
}

/** ↑ or ↓ against the reference; null if the cell is no better or worse. */
export function movement({ app, list }, each, key) {
  const change = list.ref === "" ? 0 : changeOf(app.index, each, key, list.ref);
  if (change === 0) return null;
  const [word, shape] = change > 0 ? ["better", "up"] : ["worse", "down"];
  const reference = list.ref === BASELINE ? "the baseline" : app.index.columns.find((column) => column.key === list.ref).name;
  return el("span", { class: `moved ${shape}`, title: `${word} than ${reference}` }, icon(shape), el("span", {}, word));
}

/** Score, cost and time of a run, as far as they are known. */
export function figures({ index: { figure } }, row) {
  const value = figure?.value(row) ?? null;
  const cost = runCost(row);
  const parts = [
    value === null ? null : el("span", { title: figure.title }, score(value)),
    row.cost_usd.run === null && cost === DASH ? null : el("span", { title: "cost of the run" }, cost),
    row.duration_seconds === null ? null : el("span", { title: "time of the run" }, runTime(row.duration_seconds)),
  ];
  return el("span", { class: "nums" }, parts);
}

/** The answer with what the list asks to mark, and the words of the search. */
export function answerNodes({ app, list, words }, each, column, { row }) {
  if (row.answer == null) return el("span", { class: "faint" }, row.outcome === "skipped" ? "skipped" : "no answer");
  if (list.mark === "expected") return expectedMarked(row.answer, each.expected);
  const reference = referenceAnswer(app, list, each, column);
  if (list.mark === "ref" && reference !== null) return differenceMarked(reference, row.answer);
  return marked(fromMatch(row.answer, words, IN_SIGHT), words);
}

function referenceAnswer({ index }, { ref }, each, column) {
  if (ref === BASELINE) return baselineOf(index, each, column.key)?.answer ?? null;
  return ref === column.key ? null : (each.cells.get(ref)?.shown.row.answer ?? null);
}
