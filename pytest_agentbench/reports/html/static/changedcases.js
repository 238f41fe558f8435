import { href } from "./address.js";
import { el } from "./dom.js";
import { runHref } from "./listing.js";
import { endOnPair } from "./pair.js";
import { clip, count } from "./text.js";
import { changedHref, clearest, nameOf, verdictsOf } from "./verdicts.js";

const MOST_LOST = 3;

/** How cases ended on a column and its reference: how many each way, and the first of those that the column lost. */
export function changedCases(app) {
  const verdicts = verdictsOf(app);
  const verdict = clearest(verdicts) ?? verdicts[0];
  if (verdict === undefined || verdict.changes.length === 0) return null;
  const [column, reference] = [nameOf(app, verdict.column), nameOf(app, verdict.reference)];
  const pair = { ref: verdict.reference, vs: verdict.column };
  const ends = app.index.cases.map((each) => endOnPair(app.index, each, pair));
  const values = { ref: pair.ref === app.index.reference ? "" : pair.ref, vs: pair.vs };
  const box = (end, kind, text) => el("a", { class: `quad ${kind}`, href: href("results", [], { show: end, ...values }) }, el("b", {}, count(ends.filter((each) => each === end).length)), " ", text);
  const lost = verdict.changes.filter(({ difference }) => difference < 0).sort((one, other) => one.difference - other.difference);
  return [
    el("div", { class: "quads" }, box("onlyvs", "passed", `better on ${column}`), box("onlyref", "failed", `worse than ${reference}`), box("both", "", "pass on both"), box("neither", "", "pass on neither")),
    lost.length === 0 ? null : el("h3", {}, `Lost by ${column}`),
    el("ul", { class: "lost" }, lost.slice(0, MOST_LOST).map((change) => lostCase(app, change))),
    lost.length > MOST_LOST ? el("p", { class: "note" }, el("a", { href: changedHref(app, verdict, "regressed") }, `All ${count(lost.length)}`)) : null,
  ];
}

function lostCase(app, change) {
  const run = app.index.byNodeid.get(change.nodeid);
  const asked = clip(change.question ?? change.case_id, 160);
  return el("li", {}, run === undefined ? asked : el("a", { href: runHref(app.index, run) }, asked), change.message ? el("small", {}, clip(change.message, 160)) : null);
}
