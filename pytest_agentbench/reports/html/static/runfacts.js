import { el, visible } from "./dom.js";
import { copyButton, textBox, textOf } from "./longtext.js";
import { DASH, count, plural, seconds, usd } from "./text.js";

/** The command that makes this run again, to be copied. */
export function commandLine(app, run) {
  const { row } = run;
  const options = app.data.details?.options ?? "";
  const model = row.own_agent || row.predictions ? "" : `--agentbench-model ${quoted(row.asked_model ?? row.model_id)}`;
  const command = ["pytest", quoted(row.nodeid), model, options, "--agentbench-no-reuse"].filter(Boolean).join(" ");
  if (visible(command) !== command || /[\t\n]/.test(command) || /^[-@]/.test(row.nodeid)) return el("p", { class: "note" }, "The command that makes this run again holds characters that no shell should be given.");
  return el(
    "div",
    { class: "again" },
    el("p", { class: "faint" }, "Run it again, where the session ran:"),
    el("p", {}, el("code", {}, command), " ", copyButton(command)),
  );
}

/** A word as a shell takes it. */
function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}

const USAGE = [
  ["input_tokens", "Input tokens"], ["output_tokens", "Output tokens"], ["reasoning_tokens", "of these reasoning"], ["cached_tokens", "Input from the cache"], ["total_tokens", "All tokens"],
];

/** Tokens and money of the run and of its judges, as far as they are known; null if nothing is. */
export function usageTable(row, detail) {
  const run = detail.run?.usage ?? { ...row.usage, cost_usd: row.cost_usd.run };
  const judge = detail.evaluation?.judge?.usage ?? detail.evaluation?.judge_usage ?? null;
  const roles = Object.entries(row.roles ?? {}).map(([role, usage]) => [role, usage, row.cost_usd[role]]);
  const columns = [["Run", run, row.cost_usd.run], ...roles, ...(judge === null && !row.cost_usd.judge ? [] : [["Judge", judge ?? {}, row.cost_usd.judge]])];
  const known = USAGE.filter(([name]) => columns.some(([, usage]) => usage[name] != null));
  if (known.length === 0 && columns.every(([, , value]) => value == null)) return null;
  const lines = known.map(([name, title]) => el("tr", {}, el("th", { scope: "row" }, title), columns.map(([, usage]) => el("td", { class: "number" }, count(usage[name])))));
  const cost = el("tr", {}, el("th", { scope: "row" }, "Cost"), columns.map(([, , value]) => el("td", { class: "number" }, usd(value))));
  const head = el("tr", {}, el("td", {}), columns.map(([title]) => el("th", { scope: "col", class: "number" }, title)));
  return el("table", { class: "usage" }, el("thead", {}, head), el("tbody", {}, lines, cost));
}

/** How the run was made. */
export function runFacts(row, detail) {
  const { run, evaluation } = detail;
  if (run === null) return null;
  const { provider = {}, request = {} } = run;
  return factList([
    ["Began", run.started_at ? timeOf(run.started_at) : null],
    ["Ended", run.error == null ? run.status : `${run.status} (${textOf(run.error.code).text})`],
    ["End", run.end_reason == null ? null : [textOf(run.end_reason).text.replaceAll("_", " "), ...endFacts(run.end_detail)].join(", ")],
    ["Adapted to the endpoint", Array.isArray(request.adapted) ? request.adapted.map((each) => textOf(each).text).join(", ") : null],
    ["Gateway", provider.asked_nothing == null ? null : textOf(provider.asked_nothing).text],
    ["Error", run.error == null ? null : textBox(run.error.message)],
    ["Runner", run.runner_type],
    ["Model asked for", run.model?.requested_model],
    ["Model that answered", provider.model],
    ["Requests", provider.requests == null ? null : `${count(provider.requests)}${provider.attempts > provider.requests ? ` in ${count(provider.attempts)} attempts` : ""}`],
    ["Finish reason", provider.finish_reason],
    ["Time of requests", provider.seconds == null ? null : seconds(provider.seconds)],
    ["Tools offered", Array.isArray(request.tools) && request.tools.length > 0 ? request.tools.map((name) => textOf(name).text).join(", ") : null],
    ["Skills", row.skills == null ? null : Object.entries(row.skills).map(([name, use]) => `${name}: ${skillUse(use)}`).join("; ")],
    ["Sandbox", run.sandbox == null ? null : [run.sandbox.kind, run.sandbox.image].filter(Boolean).join(" ")],
    ["Run profile", run.run_profile_id],
    ["Evaluation profile", evaluation?.evaluation_profile_id],
    ["Suite", run.suite_id],
    ["Request", foldedJson(request)],
    ["Provider", foldedJson(provider)],
    ["Metadata", foldedJson(run.metadata)],
  ]);
}

function skillUse({ listed, attempted, loaded, explicit }) {
  const use = loaded > 0 ? "used" : attempted > 0 ? `${plural(attempted, "call")} without effect` : listed ? "not used" : "not offered";
  return explicit ? `${use}, the user called for it` : use;
}

function endFacts(detail) {
  if (detail == null) return [];
  const side = { input: "of the prompt", output: "of the answer" }[detail.side];
  const found = Array.isArray(detail.categories) ? detail.categories.map((each) => textOf(each).text) : [];
  const at = detail.request == null ? null : `at request ${count(detail.request)}`;
  return [side, ...found, at, detail.raw == null ? null : textOf(detail.raw).text, detail.truncated ? "a prompt was truncated" : null].filter(Boolean);
}

/** Where everything of the run is kept. */
export function storedFacts(app, row, detail) {
  const { run } = detail;
  const link = (path) => (path == null ? null : placeLink(app, path));
  const beside = (path, from, to) => (typeof path === "string" && path.includes(from) ? path.replace(from, to) : null);
  const judged = row.judge !== null;
  return factList([
    ["Run", link(row.artifact)],
    ["Verdict", link(row.evaluation)],
    ["What the judge was shown", judged ? link(beside(row.evaluation, "/final_result_", "/judge_")?.replace(/\.json$/, ".prompt.user.json")) : null],
    ["Summary", judged || row.outcome === "failed" ? link(beside(row.evaluation, "/final_result_", "/summary_")?.replace(/\.json$/, ".md")) : null],
    ["Workspace", typeof run?.workspace === "string" ? link(run.workspace) : null],
    ...(Array.isArray(run?.output_artifacts) ? run.output_artifacts : []).filter((each) => typeof each?.uri === "string").map((each) => [`File ${textOf(each.artifact_id).text}`, link(each.uri)]),
    ["Run id", run?.run_id],
    ["Fingerprint", row.fingerprint],
    ["Fingerprint of the verdict", detail.evaluation?.fingerprint],
  ]);
}

/** Files that a browser shows without running what they hold; another one, which an agent may have left, is only named. */
const PASSIVE = /\.(json|jsonl|md|txt|log|csv|tar|png|jpe?g|gif|webp)$/i;

function placeLink(app, path) {
  const facts = app.data.details;
  const base = facts?.base ?? null;
  const shown = facts?.output == null ? path : `${facts.output.replace(/\/$/, "")}/${path}`;
  if (base === null || !PASSIVE.test(path) || /(^|[\\/])\.\.([\\/]|$)/.test(path) || path.startsWith("/")) return el("code", {}, shown);
  return el("a", { href: `./${base}/${path.split("/").map(encodeURIComponent).join("/")}` }, el("code", {}, shown));
}

function factList(pairs) {
  const told = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return told.length === 0 ? null : el("dl", { class: "facts" }, told.map(([title, value]) => el("div", {}, el("dt", {}, title), el("dd", {}, value instanceof Node ? value : textOf(value).text))));
}

function foldedJson(value) {
  if (value == null || typeof value !== "object" || Object.keys(value).length === 0) return null;
  return el("details", {}, el("summary", { class: "faint" }, `${Object.keys(value).length} fields`), textBox(value));
}

function timeOf(text) {
  const time = new Date(text);
  return Number.isNaN(time.getTime()) ? DASH : `${time.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}
