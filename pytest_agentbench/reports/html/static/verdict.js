import { added } from "./added.js";
import { el } from "./dom.js";
import { judgeParts } from "./judging.js";
import { inLine, textBox, textOf } from "./longtext.js";
import { outcomeSign } from "./outcomes.js";
import { part } from "./parts.js";
import { scrolled } from "./tables.js";
import { plural, score } from "./text.js";

const OPEN = 6;

/** What checks, metrics and judges said of the run: of the stored verdict, else what the row has of it. */
export function verdictSection(row, evaluation, places, sections = []) {
  const verdict = evaluation ?? {};
  const [checks, metrics] = [checksOf(row, evaluation), metricsOf(row, evaluation)];
  return part(
    "verdicts",
    row.outcome === "failed" ? "Why it failed" : "Verdict",
    verdict.error ? el("div", { class: "verdict failed" }, textBox(verdict.error)) : null,
    checksPart(checks, places),
    metricsPart(metrics, places),
    judgeParts(verdict.judge ?? null, places),
    ...sections.map(({ key, row: shown }) => sectionPart(shown, row[key])),
    ...Object.entries(added.verdicts).map(([name, parts]) => parts(verdict[name] ?? null)),
    !verdict.judge && row.judge !== null && (evaluation === null || isCut(evaluation)) ? scoresOnly(row.judge) : null,
    checks.length + metrics.length === 0 && !verdict.judge && !row.judge ? el("p", { class: "faint" }, "Nothing was checked, measured or judged.") : null,
  );
}

/** The checks of the stored verdict; where there is none, or it found no room for all of them, the row's stand in. */
export function checksOf(row, evaluation) {
  return evaluation === null ? row.checks : whole(evaluation, "checks", row.checks, "check_id");
}

function metricsOf(row, evaluation) {
  const known = Object.entries(row.metrics).map(([name, value]) => ({ name, score: value }));
  return evaluation === null ? known : whole(evaluation, "metrics", known, "name");
}

/** A list of the verdict, with what the row knows of those that it was cut by. */
function whole(evaluation, name, known, key) {
  const shown = listOf(evaluation[name]);
  if (!isCut(evaluation) && !isCut(evaluation[name]?.at?.(-1))) return shown;
  const names = new Set(shown.map((each) => textOf(each[key]).text));
  return [...shown, ...known.filter((each) => !names.has(each[key]))];
}

function listOf(values) {
  return Array.isArray(values) ? values.filter((each) => each !== null && typeof each === "object" && !isCut(each)) : [];
}

/** Whether it is, or holds, the mark of a list or an object that found no room for all of its members. */
function isCut(value) {
  return typeof value?.cut === "number" && typeof value.of === "number";
}

const RANK = ["error", "failed", "skipped", "passed"];

/** Checks, those that failed first and open. */
function checksPart(checks, places) {
  if (checks.length === 0) return null;
  const passed = checks.filter((check) => check.outcome === "passed").length;
  const ordered = [...checks].sort((one, other) => RANK.indexOf(one.outcome) - RANK.indexOf(other.outcome));
  let open = OPEN;
  const items = ordered.map((check) => checkItem(check, check.outcome !== "passed" && (open -= 1) >= 0, places));
  return [el("h3", {}, "Checks ", el("span", { class: "faint" }, `${passed} of ${plural(checks.length, "check")} passed`)), el("ul", { class: "checks" }, items)];
}

function checkItem(check, open, places) {
  const head = [outcomeSign(check.outcome), " ", el("strong", {}, textOf(check.check_id).text), " ", el("span", { class: "faint" }, check.kind), el("span", { class: "said" }, inLine(check.message, 300))];
  const more = [compared(check, places), Object.keys(check.outputs ?? {}).length > 0 ? [el("h4", {}, "Outputs"), textBox(check.outputs, { where: places.evaluation, label: "Outputs" })] : null];
  const kind = check.outcome === "passed" ? "passed-check" : null;
  if (check.expected == null && check.actual == null && more[1] === null) return el("li", { class: kind }, head);
  return el("li", { class: kind }, el("details", { open }, el("summary", {}, head), more));
}

/** Expected and actual beside each other. */
function compared(check, places) {
  if (check.expected == null && check.actual == null) return null;
  const side = (title, value) => el("div", {}, el("h4", {}, title), textBox(value, { where: places.evaluation, label: title, lines: 12, empty: value == null ? "–" : "empty" }));
  return el("div", { class: "sides" }, side("Expected", check.expected), side("Actual", check.actual));
}

function metricsPart(metrics, places) {
  if (metrics.length === 0) return null;
  const rows = metrics.map((metric) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, textOf(metric.name).text),
      el("td", { class: "number" }, score(metric.score)),
      el("td", { class: "number" }, metric.threshold == null ? "" : `≥ ${score(metric.threshold)}`),
      el("td", {}, metric.passed == null ? "" : outcomeSign(metric.passed ? "passed" : "failed")),
      el("td", { class: "why" }, whyOf(metric, places)),
    ),
  );
  const head = ["Metric", "Score", "Wanted", "", "Why"].map((title, at) => el("th", { scope: "col", class: at === 1 || at === 2 ? "number" : null }, title || el("span", { class: "unseen" }, "Reached")));
  return [el("h3", {}, "Metrics"), scrolled("Metrics", el("table", { class: "metrics" }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows)))];
}

/** What a metric tells of its score: its error or reason, and its details on demand. */
function whyOf(metric, places) {
  const { reason = null, ...details } = metric.details ?? {};
  const votes = listOf(details.votes);
  const said = metric.error ?? reason;
  return [
    said == null ? null : el("div", { class: metric.error ? "outcome error" : null }, textBox(said, { where: places.evaluation, lines: 4 })),
    votes.length > 1 ? el("p", { class: "faint" }, `${votes.filter((vote) => vote.correct === true).length} of ${votes.length} votes for it`) : null,
    detailsOf(details, places),
  ];
}

/** A few figures in a line, anything else on demand. */
function detailsOf(details, places) {
  const pairs = Object.entries(details);
  if (pairs.length === 0) return null;
  const short = (value) => typeof value === "number" || typeof value === "boolean" || (typeof value === "string" && value.length <= 40);
  if (pairs.length <= 5 && pairs.every(([, value]) => short(value))) return el("p", { class: "faint" }, pairs.map(([name, value]) => `${name} ${value}`).join(", "));
  return el("details", {}, el("summary", { class: "faint" }, "Details"), textBox(details, { where: places.evaluation, label: "Details" }));
}

/** The figures of a pack's section in a row. */
function sectionPart({ title, figures }, found) {
  if (found == null) return null;
  const told = (value) => (typeof value === "boolean" ? (value ? "yes" : "no") : typeof value === "string" ? value : score(value));
  const pairs = figures.filter(([name]) => found[name] != null);
  return [el("h3", {}, title), el("dl", { class: "figures" }, pairs.map(([name, title]) => el("div", {}, el("dt", {}, title), el("dd", {}, told(found[name])))))];
}

function scoresOnly(judge) {
  const pairs = Object.entries(judge).filter(([, value]) => value !== null);
  return [el("h3", {}, "Judge"), el("dl", { class: "figures" }, pairs.map(([name, value]) => el("div", {}, el("dt", {}, name.replaceAll("_", " ")), el("dd", {}, score(value)))))];
}
