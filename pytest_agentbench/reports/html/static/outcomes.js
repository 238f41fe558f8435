import { el } from "./dom.js";
import { sign } from "./text.js";

/** The names of outcomes in totals, of a report or a model. */
export const COUNTED = { passed: "passed", failed: "failed", error: "errors", skipped: "skipped" };

/** The sign of an outcome; its name is told to those who cannot see it. */
export function outcomeSign(outcome) {
  return el("span", { class: `outcome ${outcome}` }, signed(outcome), el("span", { class: "unseen" }, ` ${outcome}`));
}

/** A link to the cases of an outcome, which says how many runs have it. */
export function outcomeLink(outcome, href, ...told) {
  return el("a", { class: `outcome ${outcome}`, href }, signed(outcome), " ", told);
}

function signed(outcome) {
  return el("span", { class: "sign", "aria-hidden": "true" }, sign(outcome));
}

/** How many checks of a run did not run. */
export function skippedChecks(row) {
  return row.checks.filter((check) => check.outcome === "skipped").length;
}
