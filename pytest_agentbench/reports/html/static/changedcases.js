import { el } from "./dom.js";
import { runHref } from "./listing.js";
import { clip, count } from "./text.js";
import { changedHref, clearest, moved, nameOf, verdictsOf } from "./verdicts.js";

const MOST_LOST = 3;

/** The cases that a column and its reference decide differently: how many each way, and the first of those it lost. */
export function changedCases(app) {
  const verdicts = verdictsOf(app);
  const verdict = clearest(verdicts) ?? verdicts[0];
  if (verdict === undefined || verdict.changes.length === 0) return null;
  const [column, reference] = [nameOf(app, verdict.column), nameOf(app, verdict.reference)];
  const address = (show) => changedHref(app, verdict, show);
  const box = (way, show, kind, text) => el("a", { class: `quad ${kind}`, href: address(show) }, el("b", {}, count(moved(verdict, way))), " ", text);
  const lost = verdict.changes.filter(({ difference }) => difference < 0).sort((one, other) => one.difference - other.difference);
  return [
    el("div", { class: "quads" }, box(1, "improved", "passed", `better on ${column}`), box(-1, "regressed", "failed", `worse than ${reference}`)),
    lost.length === 0 ? null : el("h3", {}, `Lost by ${column}`),
    el("ul", { class: "lost" }, lost.slice(0, MOST_LOST).map((change) => lostCase(app, change))),
    lost.length > MOST_LOST ? el("p", { class: "note" }, el("a", { href: address("regressed") }, `All ${count(lost.length)}`)) : null,
  ];
}

function lostCase(app, change) {
  const run = app.index.byNodeid.get(change.nodeid);
  const asked = clip(change.question ?? change.case_id, 160);
  return el("li", {}, run === undefined ? asked : el("a", { href: runHref(app.index, run) }, asked), change.message ? el("small", {}, clip(change.message, 160)) : null);
}
