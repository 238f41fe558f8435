import { href } from "./address.js";
import { columnKey } from "./columns.js";
import { el } from "./dom.js";
import { count, interval, plural, wholePercent } from "./text.js";

/** Of the runs that were not skipped, this share must have a verdict, or rates say too little. */
const LEAST_JUDGED = 0.8;
const MOST_NAMED = 4;

/** What came of the session in one sentence. It claims no difference between columns: only a test could. */
export function headlineSentence({ totals, models }) {
  const judged = totals.passed + totals.failed;
  const ran = judged + totals.errors;
  if (totals.runs === 0) return "Nothing ran.";
  if (ran === 0) return `Nothing ran: ${plural(totals.skipped, "run")} skipped.`;
  if (judged < LEAST_JUDGED * ran) return `Too little was judged: ${count(totals.errors)} of ${plural(ran, "run")} ended in errors.`;
  if (models.every((model) => model.scripted)) return `${plural(judged, "run")} had scripted replies, ${count(totals.passed)} passed. That says nothing about a model.`;
  const rated = models.filter((model) => model.pass_rate !== null).sort((one, other) => other.pass_rate - one.pass_rate);
  return rated.length === 1 ? single(rated[0]) : several(rated);
}

function single(model) {
  const range = model.pass_rate_ci95 === null ? "" : ` (${interval(model.pass_rate_ci95, wholePercent)})`;
  return [name(model), ` passes ${wholePercent(model.pass_rate)} of ${plural(model.passed + model.failed, "run")}${range}.`];
}

/** "B passes 93 % of its runs, C 78 %, A 65 %." */
function several(rated) {
  const [best, ...others] = rated;
  const rest = others.slice(0, MOST_NAMED - 1).map((model) => [", ", name(model), ` ${wholePercent(model.pass_rate)}`]);
  const more = rated.length > MOST_NAMED ? `, and ${plural(rated.length - MOST_NAMED, "other")}` : "";
  return [name(best), ` passes ${wholePercent(best.pass_rate)} of its runs`, rest, `${more}.`];
}

function name(model) {
  return el("a", { href: href("results", [], { cols: columnKey(model) }) }, model.label || model.model_id);
}
