import { shareOf } from "./cases.js";
import { columnKey } from "./columns.js";

/** The reference that stands for the report that the session was compared with. */
export const BASELINE = "baseline";

/** What a comparison has of the baseline: `{report, changes, missing}`, cases by "CASE\nCOLUMN"; null without a comparison. */
export function readBaseline(comparison) {
  if (comparison == null || comparison.models.length === 0) return null;
  const changes = new Map();
  const missing = new Set();
  for (const model of comparison.models) {
    const placed = (key) => `${key}\n${columnKey(model)}`;
    for (const change of [...model.regressions, ...model.gains, ...(model.by_chance ?? [])]) changes.set(placed(change.case), change);
    for (const key of [...(model.cases?.only_current ?? []), ...(model.cases?.unjudged ?? [])]) missing.add(placed(key));
  }
  return { report: comparison.baseline?.report ?? null, changes, missing };
}

/**
 * A case's verdict in the baseline: `{verdict, text, answer}`; null if it was not judged there. Only of cases whose pass rate
 * changed the comparison has the answer and how many runs passed.
 */
export function baselineOf({ baseline }, each, key) {
  const place = `${each.key}\n${key}`;
  const cell = each.cells.get(key);
  if (baseline === null || cell === undefined || baseline.missing.has(place)) return null;
  const change = baseline.changes.get(place);
  if (change === undefined) return cell.judged === 0 ? null : { verdict: cell.verdict, text: "same verdict", answer: null };
  const { passed, judged } = change.baseline;
  const verdict = passed === judged ? "passed" : passed === 0 ? "failed" : "mixed";
  return { verdict, text: judged === 1 ? verdict : `${passed}/${judged}`, answer: change.baseline_answer ?? null };
}

/** The share of a case's judged runs that passed in the baseline; null if none was judged there. */
export function baselineShare({ baseline }, each, key) {
  const place = `${each.key}\n${key}`;
  if (baseline === null || baseline.missing.has(place)) return null;
  const change = baseline.changes.get(place);
  return change === undefined ? shareOf(each.cells.get(key)) : change.baseline.passed / change.baseline.judged;
}
