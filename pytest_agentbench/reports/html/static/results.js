import { go, href, readAddress } from "./address.js";
import { caseCards } from "./cards.js";
import { el, show } from "./dom.js";
import { gridRow } from "./gridrow.js";
import { isNarrow, leastWidth, rowTops, sharesOf } from "./gridlayout.js";
import { casesIn, listOf, listValues, narrow, showsBaseline } from "./listing.js";
import { newRowsChip } from "./newrows.js";
import { differsOnPair } from "./pair.js";
import { countPassed } from "./reportindex.js";
import { parseSearch, wordsOf } from "./search.js";
import { count, wholePercent } from "./text.js";
import { toolbar } from "./toolbar.js";
import { MOST_PRINTED, windowRows } from "./windowed.js";

const CYCLE = { all: "failed", failed: "differs" };

/** All cases against all columns: question, expected answer, and each column's answer with its verdict. */
export function resultsView(app, address) {
  const bar = toolbar(app);
  const widths = el("colgroup");
  const head = el("tr");
  const body = el("tbody");
  const table = el("table", { class: "grid" }, el("caption", { class: "unseen" }, "Answers side by side"), widths, el("thead", {}, head), body);
  const cards = el("div", {});
  const none = el("div", { class: "empty" });
  const chip = newRowsChip(() => update(readAddress()));
  const print = el("p", { class: "note only-print" });
  const node = el("div", { class: "results" }, el("h1", { class: "unseen" }, "Results"), bar.node, none, print, table, cards, chip.node);
  let cases = [];
  let view = null;
  let narrowWindow = null;
  const rows = windowRows(body, (at, height) => gridRow(view, cases[at], at, height), {
    reckon: (width) => rowTops(cases, view, width),
    covered: () => head.getBoundingClientRect().bottom,
    columns: () => view.drawn + 2,
  });

  function update({ params }) {
    const { index } = app;
    chip.drawn(index.runs.length);
    const list = listOf(params, index);
    const narrowed = narrow(index, list);
    cases = casesIn(index, list, narrowed.cases);
    const columns = list.columns.filter(({ key }) => cases.some((each) => each.cells.has(key)));
    const hasExpected = index.cases.some((each) => each.expected !== null);
    const drawn = columns.length + (columns.length > 0 && showsBaseline(list) ? 1 : 0);
    view = { app, list, columns, drawn, hasExpected, words: wordsOf(parseSearch(list.q)), lines: list.lines, marksDifference: list.mark === "ref" };
    bar.update(list, narrowed, cases, columns);
    bar.node.hidden = index.cases.length === 0;
    show(print, cases.length > MOST_PRINTED ? `The first ${MOST_PRINTED} of ${count(cases.length)} cases.` : "");
    narrowWindow = isNarrow(drawn);
    table.hidden = cases.length === 0 || narrowWindow;
    none.hidden = cases.length > 0;
    show(none, cases.length > 0 ? null : nothingFound(index, list, narrowed));
    show(cards, narrowWindow && cases.length > 0 ? caseCards(view, cases) : null);
    if (!table.hidden) drawTable(narrowed.cases);
  }

  function drawTable(judged) {
    const { columns, drawn, hasExpected, list } = view;
    const shares = sharesOf(drawn, hasExpected);
    table.className = `grid ${list.lines === "1" ? "compact" : "tall"}${drawn === 1 ? " single" : ""}${innerWidth / drawn < 440 ? " tight" : ""}`;
    table.setAttribute("aria-rowcount", cases.length + 1);
    table.style.minWidth = leastWidth(drawn) === null ? "" : `${leastWidth(drawn)}px`;
    show(widths, [shares.question, ...(hasExpected ? [shares.expected] : []), ...Array(drawn).fill(shares.column)].map(columnWidth));
    show(head, el("th", { scope: "col" }, "Question"), hasExpected ? el("th", { scope: "col" }, "Expected") : null, drawn > columns.length ? baselineHead(app.index) : null, columns.map((column) => columnHead(app, column, list, judged)));
    node.style.setProperty("--bar", `${bar.node.offsetHeight}px`);
    rows.redraw();
  }

  function resized() {
    if (view === null) return;
    if (narrowWindow !== isNarrow(view.drawn)) update(readAddress());
    else node.style.setProperty("--bar", `${bar.node.offsetHeight}px`);
  }

  addEventListener("resize", resized);
  queueMicrotask(() => update(address));
  return {
    title: "Results",
    node,
    update,
    refresh() {
      if (!chip.holds(app.index.runs.length)) update(readAddress());
    },
    close() {
      removeEventListener("resize", resized);
      rows.close();
    },
    keys: gridKeys(rows, () => ({ index: app.index, cases, view })),
  };
}

function columnWidth(share) {
  const column = el("col");
  column.style.width = `${100 * share}%`;
  return column;
}

/** A column's name, its pass rate among the cases that the filters leave, and what it is. */
function columnHead(app, column, list, cases) {
  const { passed, judged } = countPassed(cases, column.key);
  const figure = app.index.figure === null ? "" : `${app.index.figure.title} · `;
  return el(
    "th",
    { scope: "col" },
    el("span", { class: "colhead" }, el("b", {}, column.name), column.key === list.ref ? el("span", { class: "tagline" }, "reference") : null, judged === 0 ? null : el("span", { class: "colrate" }, el("span", { class: "faint" }, `${count(passed)}/${count(judged)}`), ` ${wholePercent(passed / judged)}`)),
    el("span", { class: "colsub" }, el("span", {}, column.what), el("span", {}, `${figure}cost · time`)),
  );
}

function baselineHead({ baseline }) {
  return el("th", { scope: "col" }, el("span", { class: "colhead" }, el("b", {}, "baseline"), el("span", { class: "tagline" }, "reference")), el("span", { class: "colsub" }, el("span", {}, baseline.report)));
}

function nothingFound(index, list, narrowed) {
  if (index.cases.length === 0) return el("p", {}, "There are no runs.");
  const everywhere = list.q !== "" && narrowed.cases.length > 0 && list.show !== "all";
  return [
    el("p", {}, list.q !== "" && narrowed.cases.length === 0 ? `No case contains “${list.q}” under these filters.` : "No case passes these filters."),
    el("p", {}, everywhere
      ? el("a", { href: href("results", [], listValues({ ...list, show: "all" }, index)) }, `Search “${list.q}” in all cases`)
      : el("a", { href: "#/results" }, "Show all cases")),
  ];
}

/** Keys of the grid. What is marked is what has the focus: a link of a cell. */
function gridKeys(rows, current) {
  const marked = () => document.activeElement.closest("tr[data-at]");
  const at = () => (marked() === null ? null : Number(marked().dataset.at));
  const column = () => document.activeElement.closest("[data-col]")?.dataset.col ?? null;

  function mark(row, key) {
    if (row === null) return;
    const cell = [...row.querySelectorAll("[data-col]")].find((each) => each.dataset.col === key) ?? row.querySelector("[data-col]");
    (cell?.querySelector("a") ?? row.querySelector("a"))?.focus({ preventScroll: true });
  }

  function to(place) {
    const last = current().cases.length - 1;
    if (last < 0) return;
    const key = column();
    mark(rows.reveal(Math.max(0, Math.min(last, place))), key);
  }

  const cases = () => current().cases;
  const differing = (each) => differsOnPair(current().index, each, current().view.list);
  const toDiffering = (place) => place >= 0 && to(place);
  const step = (by) => () => to(at() === null ? rows.inSight() : at() + by);
  const aside = (by) => () => {
    if (at() === null) return to(rows.inSight());
    const { columns } = current().view;
    const next = columns[columns.findIndex(({ key }) => key === column()) + by];
    if (next) mark(marked(), next.key);
  };
  const change = (values, replace = false) => {
    const { index, view } = current();
    go(href("results", [], listValues({ ...view.list, ...values }, index)), { replace });
  };
  return {
    j: step(1), k: step(-1), n: step(1), p: step(-1), ArrowDown: step(1), ArrowUp: step(-1),
    h: aside(-1), l: aside(1), ArrowLeft: aside(-1), ArrowRight: aside(1),
    x: () => toDiffering(cases().findIndex((each, place) => place > (at() ?? -1) && differing(each))),
    X: () => toDiffering(cases().findLastIndex((each, place) => place < (at() ?? 0) && differing(each))),
    f: () => change({ show: CYCLE[current().view.list.show] ?? "all" }),
    d() {
      const { mark: shown, ref } = current().view.list;
      const difference = ref === "" ? "" : "ref";
      change({ mark: { "": "expected", expected: difference }[shown] ?? "" }, true);
    },
  };
}
