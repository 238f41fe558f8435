import { loadDetail } from "./detail.js";
import { el, show } from "./dom.js";
import { aligned, lineDiff, wordDiff } from "./linediff.js";
import { textOf } from "./longtext.js";
import { outcomePill, outcomeSign } from "./outcomes.js";
import { guardPart, notesBox, part, placesOf } from "./parts.js";
import { fragment, go } from "./router.js";
import { figuresOf, shortName } from "./runhead.js";
import { scrolled } from "./tables.js";
import { count, score } from "./text.js";
import { answerOf, eventItem, eventsOf, pairCalls } from "./trace.js";
import { checksOf } from "./verdict.js";

const AT_ONCE = 150;
const CONTEXT = 3;

/** Two runs beside each other: `#compare=NODEID&with=NODEID`. */
export function pairView(app, params) {
  const ids = [params.get("compare"), params.get("with")];
  const runs = ids.map((id) => app.index.byNodeid.get(id));
  const missing = ids.filter((_, at) => runs[at] === undefined);
  if (missing.length > 0) return noSuchPair(missing);
  const parts = el("div", { class: "parts", "aria-busy": "true" }, el("p", { class: "note" }, "Reading what is stored of these runs …"));
  const swap = el("button", { type: "button", class: "quiet", on: { click: () => go({ compare: ids[1], with: ids[0] }) } }, "Swap sides");
  const node = el("article", { class: "pair" }, crumbs(runs), el("h1", {}, "Two runs side by side ", swap), heads(app, runs), parts);
  Promise.all(runs.map((run) => loadDetail(app, run)))
    .then((details) => finish(sections(app, runs, details)))
    .catch((error) => finish([el("p", { class: "warnings" }, `What is stored of these runs cannot be read: ${error.message}`)]));
  return { title: `${runs[0].row.case_id}: ${runs.map((run) => shortName(app, run.row)).join(" and ")}`, node, refresh() {} };

  function finish(children) {
    parts.removeAttribute("aria-busy");
    show(parts, children);
  }
}

function crumbs([left, right]) {
  const same = left.case === right.case;
  return el(
    "nav",
    { class: "crumbs", "aria-label": "Where these runs stand" },
    el("a", { href: fragment({ view: "matrix" }) }, "Cases × models"),
    " › ",
    el("a", { href: fragment({ case: left.case }) }, left.row.case_id),
    same ? " › two runs" : [" and ", el("a", { href: fragment({ case: right.case }) }, right.row.case_id)],
  );
}

/** Both heads and figures as one table, so that they read across. */
function heads(app, runs) {
  const figures = runs.map(({ row }) => new Map(figuresOf(row)));
  const top = runs.map(({ row }, at) =>
    el("th", { scope: "col" }, el("span", { class: "faint" }, at === 0 ? "Left: " : "Right: "), el("a", { href: fragment({ run: row.nodeid }), title: row.nodeid }, shortName(app, row)), " ", outcomePill(row.outcome)),
  );
  const rows = [...figures[0].keys()].map((title) => pairRow(title, figures.map((figure) => figure.get(title))));
  const said = runs.map(({ row }) => row.message ?? "");
  if (said.some(Boolean)) rows.push(pairRow("Message", said));
  return scrolled("Figures of both runs", el("table", { class: "both" }, el("thead", {}, el("tr", {}, el("td", {}), top)), el("tbody", {}, rows)));
}

function pairRow(title, values, cells = values) {
  return el("tr", { class: values[0] === values[1] ? "same" : "differs" }, el("th", { scope: "row" }, title), cells.map((cell) => el("td", {}, cell)));
}

function sections(app, runs, details) {
  const places = runs.map(({ row }) => placesOf(app, row));
  return [
    notesBox([...new Set(details.flatMap((detail) => detail.notes))]),
    guardPart("Verdict", () => part("verdicts", "Verdict", verdictTable(app, runs, details))),
    guardPart("Answers", () => part("answers", "Answers", answersDiff(app, runs, details))),
    guardPart("Trace", () => part("trace", "Traces", tracesBeside(app, runs, details, places))),
  ];
}

/** Checks, metrics and judge of both by name. */
function verdictTable(app, runs, details) {
  const lines = [];
  const checks = runs.map(({ row }, at) => new Map(checksOf(row, details[at].evaluation).map((check) => [textOf(check.check_id).text, check])));
  for (const name of new Set(checks.flatMap((found) => [...found.keys()]))) {
    const found = checks.map((all) => all.get(name));
    lines.push(pairRow(name, found.map((check) => check?.outcome), found.map((check) => (check === undefined ? "–" : [outcomeSign(check.outcome), " ", textOf(check.message).text]))));
  }
  const scored = runs.map(({ row }) => ({ ...row.metrics, ...Object.fromEntries(Object.entries(row.judge ?? {}).map(([name, value]) => [`judge: ${name.replaceAll("_", " ")}`, value])) }));
  for (const name of new Set(scored.flatMap(Object.keys))) {
    const values = scored.map((all) => all[name]);
    const difference = values.every((value) => value != null) ? values[1] - values[0] : null;
    const moved = difference === null || difference === 0 ? null : el("span", { class: `change ${difference > 0 ? "up" : "down"}` }, `${difference > 0 ? "+" : "−"}${score(Math.abs(difference))}`);
    lines.push(pairRow(name, values, [score(values[0]), [score(values[1]), " ", moved]]));
  }
  if (lines.length === 0) return el("p", { class: "faint" }, "Nothing was checked, measured or judged.");
  const top = runs.map(({ row }) => el("th", { scope: "col" }, shortName(app, row)));
  return scrolled("Verdicts on both runs", el("table", { class: "both" }, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Check, metric, judge"), top)), el("tbody", {}, lines)));
}

/** Both answers line by line, what differs marked; long stretches that are the same are folded. */
function answersDiff(app, runs, details) {
  const answers = details.map((detail) => answerOf(detail.run));
  if (answers.every((answer) => answer === null)) return el("p", { class: "faint" }, "Neither run has an answer.");
  const [left, right] = answers.map((answer) => textOf(answer).text);
  const cut = answers.some((answer) => textOf(answer).of !== null);
  const rows = lineDiff(left, right);
  const table = el("tbody");
  draw(false);
  const same = rows.every((row) => row.kind === "same");
  const top = runs.map(({ row }, at) => el("th", { scope: "col" }, shortName(app, row), answers[at] === null ? el("span", { class: "faint" }, " (no answer)") : null));
  return [
    same ? el("p", {}, "Both answers are the same.") : el("p", { class: "faint" }, `${count(rows.filter((row) => row.kind !== "same").length)} of ${count(rows.length)} lines differ.`),
    cut ? el("p", { class: "note" }, "Only the beginnings of long answers are compared here.") : null,
    scrolled("Both answers", el("table", { class: "line-diff" }, el("thead", {}, el("tr", {}, top)), table)),
  ];

  function draw(all) {
    show(table, all ? rows.map(lineRow) : folded(rows).map((each) => (each.skipped ? foldRow(each.skipped, () => draw(true)) : lineRow(each))));
  }
}

/** Lines that differ with some of those around them. */
function folded(rows) {
  const near = new Set();
  rows.forEach((row, at) => {
    if (row.kind !== "same") for (let n = at - CONTEXT; n <= at + CONTEXT; n += 1) near.add(n);
  });
  const whole = rows.length <= 40;
  const shown = [];
  let skipped = 0;
  rows.forEach((row, at) => {
    if (whole || near.has(at) || (near.size === 0 && at < 40)) {
      if (skipped > 0) shown.push({ skipped });
      skipped = 0;
      shown.push(row);
    } else {
      skipped += 1;
    }
  });
  return skipped > 0 ? [...shown, { skipped }] : shown;
}

function lineRow({ kind, left, right }) {
  const [one, other] = kind === "changed" ? wordDiff(left, right) : [[[left, false]], [[right, false]]];
  const cell = (text, words, side) => el("td", { class: text === null ? "void" : kind === "same" ? null : side }, text === null ? null : words.map(([word, differs]) => (differs ? el("mark", {}, word) : word)));
  return el("tr", { class: kind }, cell(left, one, "gone"), cell(right, other, "come"));
}

function foldRow(n, open) {
  return el("tr", { class: "fold" }, el("td", { colspan: "2" }, el("button", { type: "button", class: "more", on: { click: open } }, `Show ${count(n)} equal lines`)));
}

/** Both traces, events that are alike in one row. */
function tracesBeside(app, runs, details, places) {
  const traces = details.map((detail) => pairCalls(eventsOf(detail.run).filter((event) => event.type !== "runner")));
  if (traces.every((trace) => trace.length === 0)) return el("p", { class: "faint" }, "Nothing was recorded of either run.");
  const pairs = steps(...traces);
  const body = el("tbody");
  const more = el("p", {});
  let drawn = 0;
  draw(AT_ONCE);
  const top = runs.map(({ row }) => el("th", { scope: "col" }, shortName(app, row)));
  return [
    el("p", { class: "faint" }, `${count(pairs.filter(([, , alike]) => alike).length)} of ${count(pairs.length)} steps are alike.`),
    el("table", { class: "traces" }, el("thead", {}, el("tr", {}, top)), body),
    more,
  ];

  function draw(n) {
    body.append(...pairs.slice(drawn, drawn + n).map(([a, b, alike]) => stepRow(a === null ? null : traces[0][a], b === null ? null : traces[1][b], alike, places)));
    drawn = Math.min(pairs.length, drawn + n);
    show(more, drawn === pairs.length ? null : el("button", { type: "button", class: "more", on: { click: () => draw(AT_ONCE) } }, `Show ${count(Math.min(AT_ONCE, pairs.length - drawn))} more of ${count(pairs.length)}`));
  }
}

/** Places in both traces: what is alike first, then in between what is of one kind. */
function steps(left, right) {
  const pairs = [];
  let [one, other] = [[], []];

  function flush() {
    for (const [a, b] of aligned(one.map((at) => kindOf(left[at])), other.map((at) => kindOf(right[at])))) pairs.push([a === null ? null : one[a], b === null ? null : other[b], false]);
    [one, other] = [[], []];
  }

  for (const [a, b] of aligned(left.map(likeness), right.map(likeness))) {
    if (a !== null && b !== null) {
      flush();
      pairs.push([a, b, true]);
    } else if (a === null) other.push(b);
    else one.push(a);
  }
  flush();
  return pairs;
}

function stepRow(left, right, alike, places) {
  const cell = (entry, at) => el("td", {}, entry === null ? null : el("ol", { class: "events" }, withoutId(eventItem(entry, places[at]))));
  return el("tr", { class: alike ? "same" : "differs" }, cell(left, 0), cell(right, 1));
}

function withoutId(item) {
  item.removeAttribute("id");
  return item;
}

/** What two steps must share to be the same: what was said, or which tool was called with what. */
function likeness({ event, result }) {
  if (event.type === "tool_call") return JSON.stringify(["call", event.name, event.arguments ?? event.raw, result?.is_error ?? null]);
  return JSON.stringify([event.type, event.role, event.content]);
}

function kindOf({ event }) {
  return `${event.type} ${event.role ?? event.name ?? ""}`;
}

function noSuchPair(missing) {
  return { title: "No such run", node: el("div", {}, el("h1", {}, "No such run"), missing.map((id) => el("p", {}, "This report has no run ", el("code", {}, id ?? "(none named)"), ".")), el("p", {}, el("a", { href: fragment({ view: "runs" }) }, "All runs"))) };
}
