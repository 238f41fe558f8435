import { el } from "./dom.js";
import { href } from "./address.js";
import { icon, verdictSign, verdictText } from "./icons.js";
import { runHref } from "./listing.js";
import { copyButton } from "./longtext.js";
import { skippedChecks } from "./outcomes.js";
import { DASH, compact, plural, runCost, runTime, score, usd } from "./text.js";
import { placeText } from "./walk.js";

const MOST_REPETITIONS = 60;

/** The top of a run: its place in the list, steps to others, and a tab for each column. */
export function runHead(app, place, steps) {
  const step = (target, text, key, style = "btn") => (target === null ? null : el("a", { class: style, href: target, "aria-keyshortcuts": key }, text));
  return el(
    "header",
    { class: "run-head" },
    el(
      "nav",
      { class: "crumbs", "aria-label": "Where this run stands" },
      el("a", { href: steps.list }, "Results"),
      el("span", { class: "faint" }, placeText(place)),
      el("span", { class: "steps" }, place.columns.length > 1 ? step(steps.differs, "Next that differs", "x", "plain") : null, step(steps.previous, "‹ Previous", "p"), step(steps.next, "Next ›", "n")),
    ),
    tabs(app, place),
  );
}

function tabs(app, { columns, each, cell, run, values, side }) {
  const alone = { ...values, side: "" };
  const links = columns.map(({ key, name }) => {
    const other = each.cells.get(key);
    return el("a", { href: runHref(app.index, other.shown, alone), "aria-current": key === cell.column && !side ? "page" : null }, verdictSign(other.verdict), ` ${name} `, other.runs.length > 1 ? el("small", {}, verdictText(other)) : null);
  });
  const beside = el("a", { class: "sidetab", href: runHref(app.index, run, { ...values, side: "1" }), "aria-current": side ? "page" : null, "aria-keyshortcuts": "d" }, "Side by side");
  return el("nav", { class: "coltabs", "aria-label": "Columns" }, links, columns.length > 1 ? beside : null);
}

/** A link for each repetition of the case on the run's column; null if there is one only. */
export function repetitionTabs(app, { cell, run, values }) {
  if (cell.runs.length < 2) return null;
  const links = cell.runs.slice(0, MOST_REPETITIONS).map((each) => {
    const { repetition, outcome } = each.row;
    return el("a", { href: runHref(app.index, each, values), "aria-current": each === run ? "true" : null, "aria-label": `repetition ${repetition}: ${outcome}` }, icon(outcome), repetition);
  });
  return el("nav", { class: "reps", "aria-label": "Repetitions" }, links);
}

/** A run's figures in words. */
export function figuresList(row) {
  const pairs = figuresOf(row).filter(([, value]) => value !== DASH);
  return el("dl", { class: "figures" }, pairs.map(([title, value]) => el("div", {}, el("dt", {}, title), el("dd", {}, value))));
}

function figuresOf(row) {
  const passed = row.checks.filter((check) => check.outcome === "passed").length;
  const skipped = skippedChecks(row);
  const roles = Object.keys(row.roles ?? {}).map((role) => `${runCost(row, role)} ${role}`);
  const judge = row.cost_usd.judge ? [`${usd(row.cost_usd.judge)} judge`] : [];
  const cost = [runCost(row), ...roles, ...judge].join(" + ");
  return [
    ["Status", row.status ?? DASH],
    ["Score", row.final_score === null ? DASH : `${score(row.final_score)} of 10`],
    ["Checks", row.checks.length === 0 ? DASH : `${passed} of ${row.checks.length}${skipped > 0 ? `, ${skipped} skipped` : ""}`],
    ["Time", runTime(row.duration_seconds)],
    ...turnFigures(row.conversation),
    ["Tokens", compact(row.usage?.total_tokens)],
    ["Cost", cost],
  ];
}

/** How many turns a conversation had, and how long one took; nothing of other runs. */
function turnFigures(conversation) {
  if (conversation === undefined) return [];
  const turns = ["Turns", String(conversation.turns)];
  if (conversation.turn_seconds === null) return [turns];
  const { p50, p95 } = conversation.turn_seconds;
  return [turns, ["Time of a turn", `${runTime(p50)}, p95 ${runTime(p95)}`]];
}

/** The node id, and what is special about the run. */
export function runMarks(app, row) {
  const told = marksOf(app, row).map((text) => el("li", {}, text));
  return [
    el("p", { class: "nodeid" }, el("code", {}, row.nodeid), " ", copyButton(row.nodeid)),
    told.length === 0 ? null : el("ul", { class: "marks" }, told),
  ];
}

function marksOf(app, row) {
  const skipped = skippedChecks(row);
  return [
    row.must_pass ? "must pass" : null,
    row.policy ?? null,
    row.scripted ? "scripted, not a model" : null,
    row.own_agent ? "own agent" : null,
    row.predictions ? `answer from ${row.predictions}` : null,
    row.reused ? "run reused" : null,
    row.reused && !row.evaluation_reused ? "judged again" : null,
    row.cassette ? `${row.cassette === "replayed" ? "replayed from" : "recorded on"} a cassette` : null,
    skipped > 0 ? `${row.outcome}, ${skipped} of ${plural(row.checks.length, "check")} skipped` : null,
    row.checks.some((check) => check.graded === "in process") ? "graded in the solution's own process" : null,
    row.dataset ? `dataset ${row.dataset}` : null,
    ...disputed(app, row),
    ...Object.entries(row.fields ?? {}).map(([name, value]) => `${name}: ${value}`),
  ].filter(Boolean);
}

/** Judges that people do not agree with on this run. */
function disputed(app, row) {
  const judges = app.data.report.human?.judges.filter((judge) => judge.disagreements.includes(row.nodeid)) ?? [];
  return judges.map((judge) => `people disagree with ${judge.by === "judge" ? "the judge" : judge.by}`);
}

/** The tags of a case, each a link to its cases. */
export function tagLinks(tags) {
  return tags.map((tag) => el("a", { class: "tagchip", href: href("results", [], { tag }) }, tag));
}
