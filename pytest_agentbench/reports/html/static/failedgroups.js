import { href } from "./address.js";
import { el } from "./dom.js";
import { count, plural } from "./text.js";

/** Groups that are named, and the failed cases that a column may have to be named one by one. */
const MOST_GROUPS = 2;
const FEW = 2;
/** Of a group's judged cases this share must fail, or its name would say too much. */
const MOSTLY = 0.5;

/**
 * What a column fails: groups of cases whose ids begin alike ("refund_*"), or a few cases, or their number; null if it
 * fails none. A case fails if all its repetitions do.
 */
export function failedGroups(app, key) {
  const judged = app.index.cases.filter((each) => each.cells.get(key)?.judged > 0);
  const failed = judged.filter((each) => each.cells.get(key).verdict === "failed");
  if (failed.length === 0) return null;
  const link = (text, q) => el("a", { href: href("results", [], { show: "failed", cols: key, q }) }, text);
  if (failed.length <= FEW) return joined(failed.map((each) => link(each.id, `id:"${each.id}"`)));
  const groups = grouped(failed, judged);
  const covered = groups.slice(0, MOST_GROUPS);
  const rest = failed.length - covered.reduce((sum, [, number]) => sum + number, 0);
  if (covered.length === 0) return link(plural(failed.length, "case"), "");
  return joined([...covered.map(([prefix]) => link(`${prefix}*`, `id:"${prefix}"`)), rest > 0 ? link(`${count(rest)} more`, "") : null].filter(Boolean));
}

/** `[prefix, failed cases]` of groups that mostly fail, the largest first. A group of all cases names nothing. */
function grouped(failed, judged) {
  const all = tally(judged);
  return [...tally(failed)]
    .filter(([prefix, number]) => prefix !== null && number >= 2 && number >= MOSTLY * all.get(prefix) && all.get(prefix) < judged.length)
    .sort((one, other) => other[1] - one[1]);
}

function tally(cases) {
  const counts = new Map();
  for (const { id } of cases) {
    const prefix = /^[\p{L}\p{N}]+[_.\-/]/u.exec(id)?.[0] ?? null;
    counts.set(prefix, (counts.get(prefix) ?? 0) + 1);
  }
  return counts;
}

function joined(links) {
  return links.map((link, at) => [at === 0 ? null : at === links.length - 1 ? " and " : ", ", link]);
}
