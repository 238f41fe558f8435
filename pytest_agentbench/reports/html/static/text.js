export const DASH = "–";
const COUNT = new Intl.NumberFormat("en-US");
const SMALL = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 2 });
const COMPACT = new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 3 });

/** 10,000; a dash where unknown. */
export function count(value) {
  return value == null ? DASH : COUNT.format(value);
}

/** Large counts in three digits: 12.3K. */
export function compact(value) {
  return value == null ? DASH : COMPACT.format(value);
}

/** A fraction as 87.5 %. */
export function percent(value) {
  return value == null ? DASH : `${(100 * value).toFixed(1)} %`;
}

/** A fraction as 88 %. */
export function wholePercent(value) {
  return value == null ? DASH : `${Math.round(100 * value)} %`;
}

/** A score as it is, in three digits at most. */
export function score(value) {
  if (value == null) return DASH;
  return Math.abs(value) >= 1000 ? COUNT.format(Math.round(value)) : String(Number(value.toPrecision(3)));
}

/** US dollars: two decimals from one dollar on, four below, two digits of what these would hardly show. */
export function usd(value) {
  if (value == null) return DASH;
  if (value === 0) return "$0";
  if (value < 0.001) return `$${SMALL.format(value)}`;
  return value < 1 ? `$${value.toFixed(4)}` : `$${COUNT.format(Number(value.toFixed(2)))}`;
}

/** The cost of a run, or of a further model of it by role: at least the known part, if requests returned no usage. */
export function runCost(row, part = "run") {
  const known = row.at_least?.cost_usd[part];
  return row.cost_usd[part] === null && known ? `≥ ${usd(known)}` : usd(row.cost_usd[part]);
}

/** A duration: 1.6 ms, 48 ms, 3.1 s, 2:05, 1:02:03. */
export function seconds(value) {
  if (value == null) return DASH;
  if (value < 59.95) return value < 0.9995 ? `${milliseconds(1000 * value)} ms` : `${value.toFixed(1)} s`;
  const whole = Math.round(value);
  const two = (part) => String(part).padStart(2, "0");
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes}:${two(whole % 60)}`;
  return `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(whole % 60)}`;
}

function milliseconds(value) {
  return value < 9.95 ? Number(value.toPrecision(2)) : Math.round(value);
}

/** The time of a whole run: what is too short to matter is not measured to the microsecond. */
export function runTime(value) {
  return value != null && value < 0.01 ? "< 10 ms" : seconds(value);
}

/** The two ends of an interval, written as `how` writes one value. */
export function interval(ends, how) {
  return ends == null ? "" : `${how(ends[0])} to ${how(ends[1])}`;
}

/** "1 run", "12 runs". */
export function plural(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** At most `limit` characters, with an ellipsis in place of the rest. */
export function clip(text, limit) {
  return text.length > limit ? `${text.slice(0, limit - 1)}…` : text;
}

export const OUTCOMES = ["passed", "failed", "error", "skipped"];
const SIGNS = { passed: "✓", failed: "✗", error: "!", skipped: "–" };

/** A sign for an outcome, which tells it without its colour. */
export function sign(outcome) {
  return SIGNS[outcome] ?? "·";
}
