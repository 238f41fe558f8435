import { el } from "./dom.js";
import { answerNodes, figures, meta, movement, question, shownRun } from "./gridrow.js";
import { verdictSign, verdictText } from "./icons.js";
import { listValues, runHref } from "./listing.js";
import { marked } from "./marks.js";
import { reasonLine } from "./reasons.js";

const AT_ONCE = 30;

/** Cases as cards, for narrow windows; more are added before the end is reached. */
export function caseCards(view, cases) {
  const list = el("ol", { class: "qcards" });
  const end = el("li", { class: "end", "aria-hidden": "true" });
  const watcher = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && add(), { rootMargin: "800px" });
  let drawn = 0;
  add();
  return list;

  function add() {
    watcher.disconnect();
    end.remove();
    list.append(...cases.slice(drawn, drawn + AT_ONCE).map((each) => card(view, each)));
    drawn += AT_ONCE;
    if (drawn >= cases.length) return;
    list.append(end);
    watcher.observe(end);
  }
}

function card(view, each) {
  return el(
    "li",
    { class: "qcard" },
    question(view, each),
    each.expected === null ? null : el("p", { class: "e" }, el("span", { class: "faint" }, "expected "), marked(each.expected, view.words)),
    meta(view, each),
    view.columns.filter(({ key }) => each.cells.has(key)).map((column) => answer(view, each, column)),
  );
}

function answer(view, each, column) {
  const cell = each.cells.get(column.key);
  const run = shownRun(cell, view.words);
  const reason = reasonLine(run.row);
  return el(
    "a",
    { class: `acard ${cell.verdict}`, href: runHref(view.app.index, run, listValues(view.list, view.app.index)) },
    el("span", { class: "cellhead" }, verdictSign(cell.verdict, verdictText(cell)), el("b", {}, column.name), movement(view, each, column.key), figures(view.app, run.row)),
    reason === null ? el("span", { class: "text" }, answerNodes(view, each, column, run)) : el("span", { class: `text why ${run.row.outcome}` }, marked(reason, view.words)),
  );
}
