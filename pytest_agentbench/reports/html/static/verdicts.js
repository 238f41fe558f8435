import { href } from "./address.js";
import { columnKey } from "./columns.js";
import { BASELINE } from "./baseline.js";

/**
 * The tested differences of pass rates: each column against the baseline report, or against its reference column.
 * A verdict is `{column, reference, rate, changes}`; `rate` is a figure of the comparison and has a difference.
 */
export function verdictsOf({ data: { comparison, report } }) {
  const [pairs, reference] = comparison?.models?.length > 0 ? [comparison.models, () => BASELINE] : [report.column_comparisons ?? [], (pair) => pair.baseline_model_id];
  return pairs
    .filter(({ pass_rate: rate }) => rate.difference !== null)
    .map((pair) => ({ column: columnKey(pair), reference: reference(pair), rate: pair.pass_rate, changes: [...pair.regressions, ...pair.gains, ...(pair.by_chance ?? [])] }));
}

/** The verdict that the first sentence is about; null if no difference can be told. */
export function clearest(verdicts) {
  const of = (name) => verdicts.filter(({ rate }) => rate.verdict === name);
  const best = of("better").sort((one, other) => other.rate.current - one.rate.current)[0];
  const worst = of("worse").sort((one, other) => one.rate.difference - other.rate.difference)[0];
  // What got worse since the baseline is news before what got better
  const against = verdicts[0]?.reference === BASELINE;
  return (against ? (worst ?? best) : (best ?? worst)) ?? null;
}

/** The name of a column, or of the baseline, as sentences have it. */
export function nameOf(app, key) {
  if (key === BASELINE) return "the baseline";
  return app.index.columns.find((column) => column.key === key)?.name ?? key;
}

/** The address of those cases of a verdict that `show` names: "improved" or "regressed". */
export function changedHref(app, { column, reference }, show) {
  return href("results", [], { show, cols: column, ref: reference === app.index.reference ? "" : reference });
}

/** How many of a verdict's cases got better or worse. */
export function moved({ changes }, way) {
  return changes.filter(({ difference }) => Math.sign(difference) === way).length;
}

/** A difference of rates in points: "+6.1", "−2.0", "0.0". */
export function points(difference) {
  const text = (100 * Math.abs(difference)).toFixed(1);
  if (text === "0.0") return text;
  return `${difference < 0 ? "−" : "+"}${text}`;
}

/** "p = 0.003", "p < 0.0001". */
export function pText(rate) {
  const p = rate.p_adjusted ?? rate.p_value;
  return p < 0.0001 ? "p\u00a0<\u00a00.0001" : `p\u00a0=\u00a0${Number(p.toPrecision(2))}`;
}

/** How a p value was made, for those who ask. */
export function testText(rate, number) {
  return number > 1 ? `${rate.test}; adjusted for ${number} comparisons (Holm)` : rate.test;
}

/** How sure a difference is, in words. */
export function surety(rate) {
  const p = rate.p_adjusted ?? rate.p_value;
  if (p <= 0.01) return "almost surely not chance";
  return p <= 0.05 ? "probably not chance" : "may be chance";
}
