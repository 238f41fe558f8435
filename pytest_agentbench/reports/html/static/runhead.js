import { el } from "./dom.js";
import { copyButton } from "./longtext.js";
import { outcomePill, skippedChecks } from "./outcomes.js";
import { fragment, go } from "./router.js";
import { DASH, compact, plural, runCost, score, seconds, sign, usd } from "./text.js";

const MOST_SIBLINGS = 60;

/** The top of a run's view: where it stands, which run it is. */
export function runHead(app, run) {
  const { row } = run;
  return el(
    "header",
    { class: "run-head" },
    crumbs(app, run),
    el("h1", {}, outcomePill(row.outcome), " ", row.case_id, " ", el("span", { class: "faint" }, modelOf(app, row), row.repetition > 1 ? ` · repetition ${row.repetition}` : "")),
    el("p", { class: "nodeid" }, el("code", {}, row.nodeid), " ", copyButton(row.nodeid)),
  );
}

/** A run's figures and marks, and the other runs of its case. */
export function runMarks(app, run) {
  const { row } = run;
  return el(
    "div",
    { class: "run-marks" },
    el("dl", { class: "figures" }, figuresOf(row).map(([title, value]) => el("div", {}, el("dt", {}, title), el("dd", {}, value)))),
    marks(app, row),
    siblings(app, run),
  );
}

export function modelOf(app, row) {
  return app.index.labels.get(row.model_id) ?? row.model_id;
}

/** What tells a run from the others of its case. */
export function shortName(app, row) {
  return row.repetition > 1 ? `${modelOf(app, row)} · ${row.repetition}` : modelOf(app, row);
}

function crumbs(app, run) {
  const { runs } = app.index;
  const beside = (at, title, key) =>
    runs[at] === undefined ? null : el("a", { href: fragment({ run: runs[at].row.nodeid }), title: runs[at].row.nodeid, "aria-keyshortcuts": key }, title);
  return el(
    "nav",
    { class: "crumbs", "aria-label": "Where this run stands" },
    el("a", { href: fragment({ view: "runs" }) }, "Runs"), " › ",
    el("a", { href: fragment({ case: run.case }), "aria-keyshortcuts": "c" }, run.row.case_id), " › ", shortName(app, run.row),
    el("span", { class: "beside" }, beside(run.at - 1, "‹ Previous", "p"), " ", beside(run.at + 1, "Next ›", "n")),
  );
}

/** The figures of a row in words, as `[title, text]`. */
export function figuresOf(row) {
  const passed = row.checks.filter((check) => check.outcome === "passed").length;
  const skipped = skippedChecks(row);
  const cost = row.cost_usd.judge ? `${runCost(row)} + ${usd(row.cost_usd.judge)} judge` : runCost(row);
  return [
    ["Status", row.status ?? DASH],
    ["Score", row.final_score === null ? DASH : `${score(row.final_score)} of 10`],
    ["Checks", row.checks.length === 0 ? DASH : `${passed} of ${row.checks.length}${skipped > 0 ? `, ${skipped} skipped` : ""}`],
    ["Time", seconds(row.duration_seconds)],
    ["Tokens", compact(row.usage?.total_tokens)],
    ["Cost", cost],
  ];
}

/** Judges that people do not agree with on this run. */
function disputed(app, row) {
  const found = app.data.report.human?.judges.filter((judge) => judge.disagreements.includes(row.nodeid)) ?? [];
  return found.map((judge) => `people disagree with ${judge.by === "judge" ? "the judge" : judge.by}`);
}

function marks(app, row) {
  const told = [
    row.must_pass ? "must pass" : null,
    row.scripted ? "scripted, not a model" : null,
    row.own_agent ? "own agent" : null,
    row.predictions ? `answer from ${row.predictions}` : null,
    row.reused ? "run reused" : null,
    row.reused && !row.evaluation_reused ? "judged again" : null,
    row.cassette ? `${row.cassette === "replayed" ? "replayed from" : "recorded on"} a cassette` : null,
    skippedChecks(row) > 0 ? `${row.outcome}, ${skippedChecks(row)} of ${plural(row.checks.length, "check")} skipped` : null,
    row.checks.some((check) => check.graded === "in process") ? "graded in the solution's own process" : null,
    row.dataset ? `dataset ${row.dataset}` : null,
    ...disputed(app, row),
    ...Object.entries(row.fields ?? {}).map(([name, value]) => `${name}: ${value}`),
  ].filter(Boolean);
  const tags = row.tags.map((tag) => el("a", { class: "chip", href: fragment({ view: "runs", tag }) }, tag));
  return told.length + tags.length === 0 ? null : el("p", { class: "chips marks" }, told.map((text) => el("span", { class: "chip" }, text)), tags);
}

/** The other runs of the case, each to be opened or to be laid beside this one. */
function siblings(app, run) {
  const others = (app.index.byCase.get(run.case) ?? []).filter((each) => each !== run);
  if (others.length === 0) return null;
  const list = el(
    "select",
    { "aria-label": "Compare with another run of this case", on: { change: () => list.value && go({ compare: run.row.nodeid, with: list.value }) } },
    el("option", { value: "" }, "Compare with …"),
    others.slice(0, 500).map(({ row }) => el("option", { value: row.nodeid }, `${shortName(app, row)}: ${row.outcome}`)),
  );
  return el(
    "div",
    { class: "siblings" },
    el("span", { class: "faint" }, "Other runs of this case: "),
    others.slice(0, MOST_SIBLINGS).map(({ row }) => el("a", { class: `cell ${row.outcome}`, href: fragment({ run: row.nodeid }), title: `${row.nodeid}: ${row.outcome}` }, `${sign(row.outcome)} ${shortName(app, row)}`)),
    others.length > MOST_SIBLINGS ? el("a", { href: fragment({ case: run.case }) }, `all ${others.length + 1}`) : null,
    list,
  );
}
