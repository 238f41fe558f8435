import { href } from "./address.js";
import { el } from "./dom.js";
import { headlineSentence } from "./headline.js";
import { COUNTED, outcomeLink, skippedChecks } from "./outcomes.js";
import { OUTCOMES, compact, count, percent, plural, seconds, sign, usd } from "./text.js";

/** The first sentence, the gate's verdict and the totals. */
export function headline(app) {
  const { session, totals } = app.data.report;
  return el(
    "div",
    { class: "headline" },
    el("h1", {}, headlineSentence(app.data.report)),
    el("p", { class: "note" }, [size(app), when(session.started_at), session.duration_seconds == null ? null : `took ${seconds(session.duration_seconds)}`, session.shard && `shard ${session.shard}`].filter(Boolean).join(" · ")),
    verdict(session.gate),
    totals.runs === 0 ? null : el("dl", { class: "cards" }, cards(totals)),
  );
}

function size({ data: { report }, index }) {
  return `${plural(report.totals.runs, "run")} of ${plural(index.cases.length, "case")} on ${plural(report.models.length, "model")}`;
}

function cards(totals) {
  const outcomes = OUTCOMES.map((outcome) => outcomeLink(outcome, href("results", [], { show: outcome === "error" ? "errors" : outcome }), `${count(totals[COUNTED[outcome]])} ${COUNTED[outcome]}`));
  const judged = totals.passed + totals.failed;
  return [
    card("Pass rate", percent(totals.pass_rate), `${count(totals.passed)} of ${count(judged)} judged runs`),
    el("div", { class: "card" }, el("dt", {}, "Outcomes"), el("dd", { class: "outcomes" }, outcomes)),
    card("Completion", percent(totals.completion), "of what ran was judged, not lost to infrastructure"),
    card("Cost", cost(totals), "of all runs and judges, reused ones too"),
    card("Tokens", sum(totals, "tokens", "total", compact), "in and out"),
  ];
}

function card(name, value, note) {
  return el("div", { class: "card" }, el("dt", {}, name), el("dd", {}, value), el("dd", {}, note));
}

function cost(totals) {
  const { run, judge } = totals.cost_usd;
  if (run !== null && judge !== null) return usd(run + judge);
  const known = totals.at_least.cost_usd;
  const least = (known.run ?? 0) + (known.judge ?? 0);
  return least === 0 ? "unknown" : `≥ ${usd(least)}`;
}

function sum(totals, name, part, how) {
  if (totals[name][part] !== null) return how(totals[name][part]);
  const known = totals.at_least[name][part];
  return known === null ? "unknown" : `≥ ${how(known)}`;
}

function verdict(gate) {
  if (gate.passed === null) return null;
  const wanted = gate.fail_under === null || gate.reasons.length > 0 ? "" : `: pass rate ${percent(gate.pass_rate)}, at least ${percent(gate.fail_under)} is wanted`;
  return el(
    "div",
    { class: `verdict ${gate.passed ? "passed" : "failed"}` },
    el("p", {}, el("strong", {}, `${sign(gate.passed ? "passed" : "failed")} Gate ${gate.passed ? "passed" : "failed"}`), wanted),
    gate.reasons.length > 0 ? el("ul", {}, gate.reasons.map((reason) => el("li", {}, reason))) : null,
  );
}

/** What spoils the figures, or went wrong beside the cases. */
export function warnings(session) {
  const told = [...(session.faults ?? []), ...session.warnings];
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
  if (known.run === null && known.judge === null) return null;
  const shown = (part) => (spent[part] === null && known[part] ? `≥ ${usd(known[part])}` : usd(spent[part]));
  return `${shown("run")} for runs, ${shown("judge")} for judges`;
}

function when(text) {
  if (text === null) return null;
  const time = new Date(text);
  return Number.isNaN(time.getTime()) ? text : time.toLocaleString("en-GB", { dateStyle: "long", timeStyle: "short" });
}
