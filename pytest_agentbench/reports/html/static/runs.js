import { el, show } from "./dom.js";
import { filterBar } from "./filterbar.js";
import { filterRuns, filtersOf, flakyOf } from "./filters.js";
import { outcomeName } from "./outcomes.js";
import { fragment, go, parameters } from "./router.js";
import { OUTCOMES, runCost, score, seconds } from "./text.js";
import { MOST_PRINTED, windowRows } from "./windowed.js";

/** The list of all runs, filtered and sorted as the URL says. */
export function runsView(app, params) {
  let columns = columnsOf(app);
  const bar = filterBar(app, "runs");
  const head = el("tr");
  const body = el("tbody");
  const table = el("table", { class: "runs" }, el("caption", { class: "unseen" }, "Runs"), el("thead", {}, head), body);
  const none = el("p", { class: "note", hidden: true });
  const print = el("p", { class: "note only-print" });
  const node = el("div", {}, el("h1", { class: "unseen" }, "Runs"), bar.node, none, print, table);
  let shown = [];
  let drawn = null;
  const list = windowRows(body, (at) => row(shown[at], at, columns), { columns: columns.length });

  function update(next) {
    const filters = filtersOf(next);
    const sort = next.get("sort") ?? "";
    columns = columnsOf(app);
    shown = sorted(filterRuns(app.index.runs, filters, flakyOf(app.index.runs)), sort, columns);
    bar.update(filters, shown.length);
    const heads = JSON.stringify([sort, columns.map(({ title }) => title)]);
    if (heads !== drawn) show(head, columns.map((column) => header(column, sort)));
    drawn = heads;
    table.setAttribute("aria-rowcount", shown.length + 1);
    bar.node.hidden = app.index.runs.length === 0;
    table.hidden = shown.length === 0;
    none.hidden = shown.length > 0;
    show(none, app.index.runs.length === 0 ? "There are no runs." : "No run passes these filters.");
    show(print, shown.length > MOST_PRINTED ? `The first ${MOST_PRINTED} of ${shown.length} runs.` : "");
    list.resize(shown.length);
  }

  queueMicrotask(() => update(params));
  return {
    title: "Runs",
    node,
    update,
    close: list.close,
    /** For the keyboard: the rows there are, which of them is seen first, and how to bring one into sight. */
    rows: { length: () => shown.length, inSight: list.inSight, reveal: list.reveal },
  };
}

/** Columns that hold anything. `key` gives what to sort by, null last. */
function columnsOf(app) {
  const rows = app.data.report.runs;
  const metric = rows.some((row) => row.final_score !== null) ? null : commonMetric(rows);
  return [
    { id: "outcome", title: "Outcome", key: ({ row }) => OUTCOMES.indexOf(row.outcome), cell: ({ row }) => outcomeName(row.outcome) },
    { id: "case", title: "Case", key: ({ row }) => row.case_id, cell: caseCell },
    { id: "model", title: "Model", key: ({ row }) => app.index.labels.get(row.model_id), cell: ({ row }) => app.index.labels.get(row.model_id) },
    { id: "score", title: metric ?? "Score", number: true, key: ({ row }) => (metric ? row.metrics[metric] : row.final_score) ?? null, cell: (run, column) => score(column.key(run)) },
    { id: "cost", title: "Cost", number: true, key: ({ row }) => row.cost_usd.run, cell: ({ row }) => runCost(row) },
    { id: "time", title: "Time", number: true, key: ({ row }) => row.duration_seconds, cell: ({ row }) => seconds(row.duration_seconds) },
    { id: "message", title: "Message", key: ({ row }) => row.message, cell: ({ row }) => el("span", { title: row.message }, firstLine(row.message)) },
  ];
}

function commonMetric(rows) {
  const counts = new Map();
  for (const row of rows) for (const name of Object.keys(row.metrics)) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts].sort((one, other) => other[1] - one[1])[0]?.[0] ?? null;
}

function caseCell({ row }) {
  const again = row.repetition > 1 ? el("span", { class: "faint", title: `repetition ${row.repetition}` }, ` r${row.repetition}`) : null;
  const must = row.must_pass ? el("span", { class: "mark", title: "must pass" }, " must pass") : null;
  return [el("a", { href: fragment({ run: row.nodeid }), title: row.nodeid }, row.case_id), again, must];
}

function firstLine(text) {
  return text === null ? "" : text.split("\n", 1)[0];
}

function row(run, at, columns) {
  return el(
    "tr",
    { "data-at": at, "aria-rowindex": at + 2, class: run.row.outcome },
    columns.map((column) => el("td", { class: column.number ? `number c-${column.id}` : `c-${column.id}`, "data-title": column.title }, column.cell(run, column))),
  );
}

function header(column, sort) {
  const state = sort === column.id ? "ascending" : sort === `-${column.id}` ? "descending" : null;
  const next = state === null ? (column.number ? `-${column.id}` : column.id) : state === (column.number ? "descending" : "ascending") ? (column.number ? column.id : `-${column.id}`) : "";
  const button = el("button", { type: "button", on: { click: () => sortBy(next, column.id) }, id: `sort-${column.id}` }, column.title);
  return el("th", { scope: "col", class: column.number ? `number c-${column.id}` : `c-${column.id}`, "aria-sort": state }, button);
}

function sortBy(next, id) {
  const params = parameters();
  params.delete("sort");
  if (next) params.set("sort", next);
  params.set("view", "runs");
  go(params);
  document.getElementById(`sort-${id}`)?.focus();
}

function sorted(runs, sort, columns) {
  const descending = sort.startsWith("-");
  const column = columns.find((each) => each.id === (descending ? sort.slice(1) : sort));
  if (column === undefined) return runs;
  const keyed = runs.map((run) => [column.key(run), run]);
  const text = new Intl.Collator("en", { numeric: true });
  keyed.sort(([one, left], [other, right]) => {
    if (one == null || other == null) return (one == null) - (other == null) || left.at - right.at;
    const order = typeof one === "number" ? one - other : text.compare(one, other);
    return (descending ? -order : order) || left.at - right.at;
  });
  return keyed.map(([, run]) => run);
}
