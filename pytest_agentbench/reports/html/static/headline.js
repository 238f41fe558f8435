import { href } from "./address.js";
import { columnKey } from "./columns.js";
import { el } from "./dom.js";
import { failedGroups } from "./failedgroups.js";
import { runMeans } from "./figures.js";
import { BASELINE } from "./baseline.js";
import { count, interval, plural, wholePercent } from "./text.js";
import { changedHref, clearest, moved, nameOf, pText, points, surety, testText, verdictsOf } from "./verdicts.js";

/** Of the runs that were not skipped, this share must have a verdict, or rates say too little. */
const LEAST_JUDGED = 0.8;
const MOST_NAMED = 4;
/** A cheaper column is named if it costs at most this share of the best one's and passes at most so much less. */
const CHEAPER = { share: 0.5, loss: 0.15 };

/** What came of the session in one sentence. Only a test's verdict claims a difference between columns. */
export function headlineSentence(app) {
  const nothing = nothingToTell(app.data.report);
  if (nothing !== null) return nothing;
  const verdicts = verdictsOf(app);
  const clear = clearest(verdicts);
  if (clear !== null) return difference(app, clear, verdicts.length);
  if (verdicts.length > 0) return undecided(app, verdicts);
  const rated = app.data.report.models.filter((model) => model.pass_rate !== null).sort((one, other) => other.pass_rate - one.pass_rate);
  return rated.length === 1 ? single(app, rated[0]) : several(app, rated);
}

/** Why the rates of a report say nothing of its columns; null if they do. */
function nothingToTell({ totals, models }) {
  const judged = totals.passed + totals.failed;
  const ran = judged + totals.errors;
  if (totals.runs === 0) return "Nothing ran.";
  if (ran === 0) return `Nothing ran: ${plural(totals.skipped, "run")} skipped.`;
  if (judged < LEAST_JUDGED * ran) return `Too little was judged: ${count(totals.errors)} of ${plural(ran, "run")} ended in errors.`;
  if (models.every((model) => model.scripted)) return `${plural(judged, "run")} had scripted replies, ${count(totals.passed)} passed. That says nothing about a model.`;
  return null;
}

/** "B beats A by 6.1 points (95 %: 2.0 to 10.1), p = 0.0002; it fails refund_*." */
function difference(app, { column, reference, rate }, number) {
  const size = Math.abs(100 * rate.difference).toFixed(1);
  const ends = rate.ci95 === null ? "" : ` (95\u00a0%: ${interval(rate.difference < 0 ? [-rate.ci95[1], -rate.ci95[0]] : rate.ci95, bare)})`;
  const evidence = [` by ${size} points${ends}, `, el("span", { title: testText(rate, number) }, pText(rate))];
  const better = rate.verdict === "better";
  if (reference === BASELINE) return [name(app, column), better ? " beats the baseline" : " falls behind the baseline", evidence, fails(app, column), "."];
  const [winner, loser] = better ? [column, reference] : [reference, column];
  return [name(app, winner), " beats ", name(app, loser), evidence, fails(app, winner), "."];
}

function fails(app, key) {
  const groups = failedGroups(app, key);
  return groups === null ? null : ["; it fails ", groups];
}

/** A difference in points without a plus. */
function bare(value) {
  return points(value).replace("+", "");
}

function undecided(app, verdicts) {
  const [{ reference, rate, column }] = verdicts;
  const cases = plural(Math.max(...verdicts.map((each) => each.rate.cases)), "case");
  if (verdicts.length > 1) {
    const to = reference === BASELINE ? "to the baseline" : `between ${plural(verdicts.length + 1, "column")}`;
    const rates = new Map(verdicts.map((each) => [each.column, each.rate.current]));
    if (reference !== BASELINE) rates.set(reference, rate.baseline);
    const best = [...rates].sort((one, other) => other[1] - one[1]);
    const named = best.slice(0, MOST_NAMED).map(([key, value], at) => [at === 0 ? "" : ", ", name(app, key), ` ${wholePercent(value)}`]);
    return [`No difference ${to} can be told from ${cases}: `, named, best.length > MOST_NAMED ? `, and ${plural(best.length - MOST_NAMED, "other")}` : null, "."];
  }
  const [now, then] = [wholePercent(rate.current), wholePercent(rate.baseline)];
  if (reference === BASELINE) return [name(app, column), ` passes ${now} of ${cases}, the baseline passed ${then}: `, rate.difference === 0 ? "no difference." : "too little a difference to tell."];
  return ["No difference between ", name(app, column), " and ", name(app, reference), ` can be told from ${cases}: ${now} and ${then} pass.`];
}

function single(app, model) {
  const range = model.pass_rate_ci95 === null ? "" : ` (${interval(model.pass_rate_ci95, wholePercent)})`;
  return [name(app, columnKey(model)), ` passes ${wholePercent(model.pass_rate)} of ${plural(model.passed + model.failed, "run")}${range}.`];
}

/** "B passes 93 % of its runs, C 78 %, A 65 %." */
function several(app, rated) {
  const [best, ...others] = rated;
  const rest = others.slice(0, MOST_NAMED - 1).map((model) => [", ", name(app, columnKey(model)), ` ${wholePercent(model.pass_rate)}`]);
  const more = rated.length > MOST_NAMED ? `, and ${plural(rated.length - MOST_NAMED, "other")}` : "";
  return [name(app, columnKey(best)), ` passes ${wholePercent(best.pass_rate)} of its runs`, rest, `${more}.`];
}

/** What follows the sentence: how sure it is, which cases changed, whether another column is cheaper. */
export function headlineLines(app) {
  const verdicts = verdictsOf(app);
  if (verdicts.length === 0 || nothingToTell(app.data.report) !== null) return null;
  const clear = clearest(verdicts);
  const shown = clear ?? verdicts[0];
  const told = clear === null ? detectable(shown.rate) : [`That is ${surety(clear.rate)}. `];
  const lines = [told, clear !== null || verdicts.length === 1 ? changed(app, shown) : null, cheaper(app)].filter(Boolean);
  return el("p", { class: "lead" }, lines);
}

function detectable({ cases, detectable: least, cases_needed: needed }) {
  const can = least === null ? `${plural(cases, "case")} cannot show any difference` : `${plural(cases, "case")} can show a difference of ${(100 * least).toFixed(0)} points or more`;
  return [`${can}${needed === null ? "" : `; about ${count(needed)} would show this one`}. `];
}

function changed(app, verdict) {
  const link = (show, text) => el("a", { href: changedHref(app, verdict, show) }, text);
  const [better, worse] = [moved(verdict, 1), moved(verdict, -1)];
  const told = [better > 0 ? link("improved", `${plural(better, "case")} got better`) : null, worse > 0 ? link("regressed", `${plural(worse, "case")} got worse`) : null].filter(Boolean);
  return told.length === 0 ? null : [name(app, verdict.column), ": ", told[0], told.length > 1 ? [", ", told[1]] : null, ". "];
}

/** "C costs 5 times less than B and passes 12 points less." */
function cheaper(app) {
  const costs = runMeans(app, (row) => row.cost_usd.run);
  const rated = app.data.report.models
    .filter((model) => !model.scripted)
    .map((model) => ({ key: columnKey(model), cost: costs.get(columnKey(model))?.mean ?? null, rate: model.pass_rate }))
    .filter(({ cost, rate }) => cost !== null && rate !== null);
  const best = [...rated].sort((one, other) => other.rate - one.rate)[0];
  if (rated.length < 2 || best.cost === 0) return null;
  const near = rated.filter(({ cost, rate }) => cost <= CHEAPER.share * best.cost && best.rate - rate <= CHEAPER.loss).sort((one, other) => one.cost - other.cost)[0];
  if (near === undefined) return null;
  const less = (100 * (best.rate - near.rate)).toFixed(0);
  const price = near.cost === 0 ? "costs nothing" : `costs ${Number((best.cost / near.cost).toPrecision(2))} times less than ${nameOf(app, best.key)}`;
  return [name(app, near.key), ` ${price} and passes ${less === "0" ? "as much" : `${less} points less`}.`];
}

function name(app, key) {
  return el("a", { class: "column", href: href("results", [], { cols: key }) }, nameOf(app, key));
}
