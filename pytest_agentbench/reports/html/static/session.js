import { href } from "./address.js";
import { el } from "./dom.js";
import { headlineLines, headlineSentence } from "./headline.js";
import { COUNTED, outcomeLink, skippedChecks } from "./outcomes.js";
import { OUTCOMES, compact, count, percent, plural, seconds, sign, usd } from "./text.js";

const MOST_WARNINGS = 3;

/** The gate, the size of the session, the first sentence and what follows it. */
export function headline(app) {
  const { session, totals } = app.data.report;
  return el(
    "div",
    { class: "headline" },
    el("p", { class: "note" }, [gatePill(session.gate), el("span", {}, size(app)), ...extent(session, totals).map((text) => el("span", {}, text))]),
    el("h1", {}, headlineSentence(app)),
    headlineLines(app),
    gateReasons(session.gate),
    totals.runs === 0 ? null : el("p", { class: "counts" }, outcomes(totals)),
  );
}

function size({ data: { report }, index }) {
  return `${plural(report.totals.runs, "run")} of ${plural(index.cases.length, "case")} on ${plural(report.models.length, report.variants ? "column" : "model")}`;
}

function extent(session, totals) {
  const parts = [
    session.shard && `shard ${session.shard}`,
    when(session.started_at),
    session.duration_seconds == null ? null : `took ${seconds(session.duration_seconds)}`,
    totals.runs === 0 ? null : cost(totals),
  ];
  return parts.filter(Boolean);
}

function outcomes(totals) {
  const shown = OUTCOMES.filter((outcome) => totals[COUNTED[outcome]] > 0);
  const links = shown.map((outcome) => [outcomeLink(outcome, href("results", [], { show: outcome === "error" ? "errors" : outcome }), outcomeText(outcome, totals[COUNTED[outcome]])), " "]);
  const lost = totals.errors > 0 ? el("span", { class: "faint" }, `completion ${percent(totals.completion)}`) : null;
  return [links, lost];
}

function outcomeText(outcome, number) {
  return outcome === "error" ? plural(number, "error") : `${count(number)} ${outcome}`;
}

function cost(totals) {
  const total = (costs) => Object.values(costs).reduce((added, value) => added + (value ?? 0), 0);
  if (Object.values(totals.cost_usd).every((value) => value !== null)) return usd(total(totals.cost_usd));
  const least = total(totals.at_least.cost_usd);
  return least === 0 ? null : `≥ ${usd(least)}`;
}

function sum(totals, name, part, how) {
  if (totals[name][part] !== null) return how(totals[name][part]);
  const known = totals.at_least[name][part];
  return known === null ? null : `≥ ${how(known)}`;
}

function gatePill(gate) {
  if (gate.passed === null) return null;
  const outcome = gate.passed ? "passed" : "failed";
  return el("span", { class: `pill ${outcome}` }, `${sign(outcome)} Gate ${outcome}`);
}

function gateReasons(gate) {
  if (gate.passed !== false || gate.reasons.length === 0) return null;
  return el("div", { class: "verdict failed" }, el("ul", {}, gate.reasons.map((reason) => el("li", {}, reason))));
}

/** The first warnings on Summary; Session has all. */
export function firstWarnings(session) {
  const told = toldWarnings(session);
  if (told.length <= MOST_WARNINGS) return warnings(session);
  const more = el("li", {}, el("a", { href: href("session") }, `${plural(told.length - MOST_WARNINGS, "more warning")} in Session`));
  return el("section", { class: "warnings", "aria-label": "Warnings" }, el("ul", {}, told.slice(0, MOST_WARNINGS).map((text) => el("li", {}, text)), more));
}

function toldWarnings(session) {
  return [...(session.faults ?? []), ...session.warnings];
}

/** What spoils the figures, or went wrong beside the cases. */
export function warnings(session) {
  const told = toldWarnings(session);
  if (told.length === 0) return null;
  return el("section", { class: "warnings", "aria-label": "Warnings" }, el("h2", {}, plural(told.length, "warning")), el("ul", {}, told.map((text) => el("li", {}, text))));
}

/** Command, profiles, versions: what it takes to do it again. */
export function facts(app) {
  const { session, totals, runs } = app.data.report;
  const inProcess = runs.filter((row) => row.checks.some((check) => check.graded === "in process")).length;
  const withSkipped = runs.filter((row) => skippedChecks(row) > 0).length;
  const pairs = [
    ["Command", session.command.length > 0 ? el("code", {}, ["pytest", ...session.command].join(" ")) : null],
    ["Profiles", named(session.profiles)],
    ["Versions", named(session.versions)],
    ["Paid by this session", paid(totals)],
    ["Tokens", totals.runs === 0 ? null : sum(totals, "tokens", "total", compact)],
    ["Reused", totals.reused > 0 ? `${plural(totals.reused, "run")} of earlier sessions, ${count(totals.rejudged)} of them judged anew` : null],
    ["Cassettes", totals.recorded + totals.replayed > 0 ? `${count(totals.recorded)} recorded, ${count(totals.replayed)} replayed` : null],
    ["Checks skipped", withSkipped > 0 ? `in ${plural(withSkipped, "run")}, which were decided without them` : null],
    ["Graded in process", inProcess > 0 ? `${plural(inProcess, "run")}, by tests that the solution could change` : null],
    ["Merged", session.merged ? session.merged.map((each) => each.report).join(", ") : null],
  ];
  const told = pairs.filter(([, value]) => value !== null && value !== "");
  return told.length === 0 ? null : el("dl", { class: "facts" }, told.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

function named(values) {
  return Object.entries(values).filter(([, value]) => value !== null).map(([name, value]) => `${name} ${value}`).join(", ");
}

function paid(totals) {
  const { spent_usd: spent, at_least: least } = totals;
  const known = least.spent_usd ?? spent;
  if (Object.values(known).every((value) => value === null)) return null;
  const shown = (part) => (spent[part] === null && known[part] ? `≥ ${usd(known[part])}` : usd(spent[part]));
  const roles = Object.keys(spent).filter((part) => part !== "run" && part !== "judge");
  return [`${shown("run")} for runs`, `${shown("judge")} for judges`, ...roles.map((role) => `${shown(role)} for ${role}`)].join(", ");
}

function when(text) {
  if (text === null) return null;
  const time = new Date(text);
  return Number.isNaN(time.getTime()) ? text : time.toLocaleString("en-GB", { dateStyle: "long", timeStyle: "short" });
}
