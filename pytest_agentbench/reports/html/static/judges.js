import { el } from "./dom.js";
import { runHref } from "./listing.js";
import { scrolled, small } from "./tables.js";
import { DASH, count, interval, percent, plural, score } from "./text.js";

const RUNS_NAMED = 10;
const LEFT_OUT = { other_run: "of runs that are not in this report", other_judge: "of another judge", other_rubric: "of another rubric", superseded: "said otherwise later" };

/** How far judges agree with themselves, with each other, and with people; null where nothing was judged. */
export function judges(app) {
  const { judges: found, human } = app.data.report;
  if (!found?.length && !human) return null;
  return [found?.length ? scrolled("Figures of judges", table(found)) : null, human ? people(app, human) : null];
}

function table(found) {
  const columns = [
    ["Runs", (judge) => [count(judge.runs), small(`${plural(judge.votes, "vote")}${judge.failed ? `, ${count(judge.failed)} failed` : ""}`)]],
    ["Mean score", (judge) => score(judge.mean_score)],
    ["CV on the same run", (judge) => (judge.cv_percent === null ? DASH : `${score(judge.cv_percent)} %`)],
    ["Spread (SD)", (judge) => score(judge.spread)],
    ["Krippendorff's α", (judge) => [score(judge.alpha), small(judge.reasons?.alpha)]],
    ["Same verdict", (judge) => percent(judge.agreement)],
    ["Order swapped", (judge) => swapped(judge.order_swap)],
    ["With other judges", (judge) => between(judge.between)],
  ];
  return el(
    "table",
    { class: "judges" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Judge"), columns.map(([title]) => el("th", { scope: "col" }, title)))),
    el("tbody", {}, found.map((judge) => el("tr", {}, el("th", { scope: "row" }, name(judge)), columns.map(([, cell]) => el("td", {}, cell(judge)))))),
  );
}

function name(judge) {
  return [
    judge.judge,
    small(`${judge.model}${judge.scripted ? ", scripted" : ""}`),
    judge.same_family > 0 ? small(`judges ${plural(judge.same_family, "run")} of its own family`) : null,
  ];
}

function swapped(swap) {
  if (!swap) return DASH;
  return [
    `${count(swap.changed)} of ${count(swap.pairs)} verdicts change`,
    small(`${percent(swap.changed_rate)}${swap.changed_ci95 ? ` (${interval(swap.changed_ci95, percent)})` : ""}; by ${score(swap.mean_abs_difference)} on average`),
  ];
}

function between(other) {
  return other ? [`α ${score(other.alpha)}`, small(`${other.judges.length} judges on ${plural(other.runs, "run")}`)] : DASH;
}

function people(app, human) {
  const left = Object.entries(human.left_out).filter(([, n]) => n > 0).map(([why, n]) => `${count(n)} ${LEFT_OUT[why] ?? why}`);
  return [
    el("h3", {}, "Against people"),
    el(
      "p",
      { class: "note" },
      `${count(human.counted)} of ${plural(human.labels, "label")} count${human.not_blind ? `, ${count(human.not_blind)} given with the verdict in sight` : ""}${left.length > 0 ? `; left out: ${left.join(", ")}` : ""}. `,
      human.between_annotators === null ? null : `Between ${human.between_annotators.annotators} annotators on ${plural(human.between_annotators.runs, "run")}: α ${score(human.between_annotators.alpha_verdicts)} of verdicts, ${score(human.between_annotators.alpha_scores)} of scores.`,
    ),
    human.judges.map((judge) => agreement(app, judge)),
  ];
}

function agreement(app, judge) {
  const who = el("strong", {}, `${judge.by} (${judge.models.join(", ")})`);
  if (judge.n === 0) return el("p", { class: "agreement" }, who, `: ${judge.kappa_undefined ?? "no run has a label that counts"}.`);
  const lines = [["People: passed", judge.both_passed, judge.only_people_passed], ["People: failed", judge.only_judge_passed, judge.both_failed]];
  return el(
    "div",
    { class: "agreement" },
    el("p", {}, who, ` agrees with people on ${percent(judge.agreement)} of ${plural(judge.n, "run")}`,
      judge.agreement_ci95 ? ` (${interval(judge.agreement_ci95, percent)})` : null, `. Cohen's κ ${score(judge.kappa)}`,
      judge.kappa_ci95 ? ` (${interval(judge.kappa_ci95, score)})` : null, judge.kappa_undefined ? `: ${judge.kappa_undefined}` : null,
      `; PABAK ${score(judge.pabak)}, prevalence ${score(judge.prevalence_index)}, bias ${score(judge.bias_index)}.`),
    scrolled(`${judge.by} against people`, el(
      "table",
      {},
      el("thead", {}, el("tr", {}, ["", "Judge: passed", "Judge: failed"].map((title) => (title ? el("th", { scope: "col" }, title) : el("td"))))),
      el("tbody", {}, lines.map(([title, ...cells]) => el("tr", {}, el("th", { scope: "row" }, title), cells.map((n) => el("td", { class: "number" }, count(n)))))),
    )),
    judge.disagreements.length === 0 ? null : disagreements(app, judge.disagreements),
  );
}

/** Links to runs; of many on demand. */
function disagreements(app, nodeids) {
  const links = nodeids.flatMap((nodeid, at) => [at > 0 ? ", " : null, link(app, nodeid)]);
  if (nodeids.length <= RUNS_NAMED) return el("p", { class: "note" }, "They disagree on ", links, ".");
  return el("details", { class: "note" }, el("summary", {}, `They disagree on ${count(nodeids.length)} runs`), el("p", {}, links));
}

function link(app, nodeid) {
  const run = app.index.byNodeid.get(nodeid);
  if (run === undefined) return nodeid;
  const { row } = run;
  return el("a", { href: runHref(app.index, run) }, `${row.case_id} [${app.index.labels.get(row.model_id)}${row.repetition > 1 ? ` · ${row.repetition}` : ""}]`);
}
