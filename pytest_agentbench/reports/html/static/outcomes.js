import { el } from "./dom.js";
import { OUTCOMES, plural, sign } from "./text.js";

/** The names of outcomes in totals, of a report or a model. */
export const COUNTED = { passed: "passed", failed: "failed", error: "errors", skipped: "skipped" };

/** The sign of an outcome; its name is told to those who cannot see it. */
export function outcomeSign(outcome) {
  return el("span", { class: `outcome ${outcome}` }, signed(outcome), el("span", { class: "unseen" }, ` ${outcome}`));
}

/** The sign and the name of an outcome. */
export function outcomeName(outcome) {
  return el("span", { class: `outcome ${outcome}` }, signed(outcome), ` ${outcome}`);
}

/** The same on its own ground. */
export function outcomePill(outcome) {
  return el("span", { class: `cell ${outcome}` }, el("span", { "aria-hidden": "true" }, sign(outcome)), ` ${outcome}`);
}

/** A link to the runs of an outcome, which says how many there are. */
export function outcomeLink(outcome, href, ...told) {
  return el("a", { class: `outcome ${outcome}`, href }, signed(outcome), " ", told);
}

/** "3 runs: 2 passed, 1 failed". */
export function tally(runs) {
  const counts = OUTCOMES.map((outcome) => [runs.filter(({ row }) => row.outcome === outcome).length, outcome]);
  return `${plural(runs.length, "run")}: ${counts.filter(([n]) => n > 0).map(([n, outcome]) => `${n} ${outcome}`).join(", ")}`;
}

function signed(outcome) {
  return el("span", { class: "sign", "aria-hidden": "true" }, sign(outcome));
}

/** How many checks of a run did not run. */
export function skippedChecks(row) {
  return row.checks.filter((check) => check.outcome === "skipped").length;
}
