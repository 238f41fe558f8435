import { BASELINE, baselineShare } from "./baseline.js";
import { shareOf } from "./cases.js";

/** The column that a list compares with its reference if its address names none: a tested one first, then the best that is shown. */
export function defaultOther(index, { ref, columns }) {
  if (ref === "") return "";
  const shown = columns.filter(({ key }) => key !== ref);
  const others = shown.length > 0 ? shown : index.columns.filter(({ key }) => key !== ref);
  const tested = others.filter(({ key }) => index.tested.has(`${ref}\n${key}`));
  const [best] = [...(tested.length > 0 ? tested : others)].sort((one, other) => index.rates.get(other.key) - index.rates.get(one.key));
  return best?.key ?? "";
}

/** The shares of a case's judged runs that passed, `[on the reference, on the other column]`; null if one of them has no verdict. */
export function pairShares(index, each, { ref, vs }) {
  const now = shareOf(each.cells.get(vs));
  const then = ref === BASELINE ? baselineShare(index, each, vs) : shareOf(each.cells.get(ref));
  return then === null || now === null ? null : [then, now];
}

/** How a case ended on a pair: "both" passed, "onlyref" or "onlyvs" (or better there), "neither"; null without two verdicts. */
export function endOnPair(index, each, pair) {
  const shares = pairShares(index, each, pair);
  if (shares === null) return null;
  const [then, now] = shares;
  if (then !== now) return then > now ? "onlyref" : "onlyvs";
  return then === 1 ? "both" : "neither";
}

/** Whether one column of the pair is better on a case. */
export function differsOnPair(index, each, pair) {
  return ["onlyref", "onlyvs"].includes(endOnPair(index, each, pair));
}

/**
 * The difference of a pair: `{difference, cases, ci95, p, test}`, the last three null if it was not tested; null without a common case.
 * A p value of `data.pairs` is that of its pair alone.
 */
export function pairFigures({ data, index }, verdicts, { ref, vs }) {
  const find = (one, other) => [...verdicts, ...(data.pairs ?? [])].find(({ reference, column }) => reference === one && column === other)?.rate;
  const [forth, back] = [find(ref, vs), find(vs, ref)];
  if (forth !== undefined) return { ...forth, p: forth.p_adjusted ?? forth.p_value };
  if (back !== undefined) return { ...back, difference: -back.difference, ci95: back.ci95 && [-back.ci95[1], -back.ci95[0]], p: back.p_adjusted ?? back.p_value };
  const shares = index.cases.map((each) => pairShares(index, each, { ref, vs })).filter(Boolean);
  if (shares.length === 0) return null;
  const sum = shares.reduce((total, [then, now]) => total + now - then, 0);
  return { difference: sum / shares.length, cases: shares.length, ci95: null, p: null, test: null };
}
