import { href } from "./address.js";
import { el } from "./dom.js";
import { runHref } from "./listing.js";
import { outcomeSign } from "./outcomes.js";
import { reasonOf } from "./reasons.js";
import { clip, count, plural } from "./text.js";

const MOST_REASONS = 12;
const EXAMPLES = 3;

/** The most frequent reasons of failures and errors, with a few runs of each; null where nothing failed. */
export function failures(app) {
  const groups = new Map();
  for (const run of app.index.runs) {
    const reason = reasonOf(run.row);
    if (reason === null) continue;
    const key = `${run.row.outcome} ${reason}`;
    if (!groups.has(key)) groups.set(key, [reason, []]);
    groups.get(key)[1].push(run);
  }
  if (groups.size === 0) return null;
  const found = [...groups.values()].sort((one, other) => other[1].length - one[1].length);
  const rest = found.length - MOST_REASONS;
  return [
    el("ol", { class: "reasons" }, found.slice(0, MOST_REASONS).map(([reason, runs]) => item(app, reason, runs))),
    rest > 0 ? el("p", { class: "note" }, `${plural(rest, "further reason")}: see `, el("a", { href: href("results", [], { show: "failed" }) }, "all failed cases"), ".") : null,
  ];
}

function item(app, reason, runs) {
  const { outcome } = runs[0].row;
  return el(
    "li",
    {},
    el(
      "p",
      {},
      outcomeSign(outcome), " ",
      el("a", { href: href("results", [], { reason }) }, reason),
      el("span", { class: "faint" }, ` · ${plural(runs.length, "run")}: ${byModel(app, runs)}`),
    ),
    el("ul", {}, runs.slice(0, EXAMPLES).map((run) => [run, run.row]).map(([run, row]) =>
      el("li", {}, el("a", { href: runHref(app.index, run) }, `${row.case_id} [${app.index.labels.get(row.model_id)}${row.repetition > 1 ? ` · ${row.repetition}` : ""}]`), row.message ? ` ${clip(rest(row.message, reason), 200)}` : null),
    )),
  );
}

function byModel(app, runs) {
  const counts = new Map();
  for (const { row } of runs) counts.set(row.model_id, (counts.get(row.model_id) ?? 0) + 1);
  return [...counts].sort((one, other) => other[1] - one[1]).map(([id, n]) => `${count(n)} on ${app.index.labels.get(id)}`).join(", ");
}

function rest(message, reason) {
  const at = message.indexOf(`${reason}: `);
  return at < 0 ? message : message.slice(at + reason.length + 2);
}
