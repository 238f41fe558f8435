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
 * fails none. A case fails if all its repetitions do. The beginning that all ids share ("dataset.") is left out.
 */
export function failedGroups(app, key) {
  const judged = app.index.cases.filter((each) => each.cells.get(key)?.judged > 0);
  const failed = judged.filter((each) => each.cells.get(key).verdict === "failed");
  if (failed.length === 0) return null;
  const shared = sharedBeginning(judged.map(({ id }) => id));
  const link = (text, q) => el("a", { href: href("results", [], { show: "failed", cols: key, q }) }, text);
  const named = (name, end = "") => link(name.slice(shared.length) + end, `id:"${name}"`);
  if (failed.length <= FEW) return joined(failed.map(({ id }) => named(id)));
  const groups = largestGroups(failed, judged, shared.length);
  if (groups.length === 0) return link(plural(failed.length, "case"), "");
  const rest = failed.length - groups.reduce((sum, [, number]) => sum + number, 0);
  return joined([...groups.map(([beginning]) => named(beginning, "*")), ...(rest > 0 ? [link(`${count(rest)} more`, "")] : [])]);
}

/** What all ids begin with, up to a dot or a slash. */
function sharedBeginning(ids) {
  let shared = ids[0];
  for (const id of ids) while (!id.startsWith(shared)) shared = shared.slice(0, -1);
  return /^.*[./]/su.exec(shared)?.[0] ?? "";
}

/** `[beginning, failed cases]` of groups that mostly fail, the largest first. A group of all cases names nothing. */
function largestGroups(failed, judged, from) {
  const all = tally(judged, from);
  return [...tally(failed, from)]
    .filter(([beginning, number]) => number >= 2 && number >= MOSTLY * all.get(beginning) && all.get(beginning) < judged.length)
    .sort((one, other) => other[1] - one[1])
    .slice(0, MOST_GROUPS);
}

/** How many ids have each beginning: the first word after `from`, with what separates it from the rest. */
function tally(cases, from) {
  const counts = new Map();
  for (const { id } of cases) {
    const word = /^[\p{L}\p{N}]+[_.\-/]/u.exec(id.slice(from))?.[0];
    if (word === undefined) continue;
    const beginning = id.slice(0, from) + word;
    counts.set(beginning, (counts.get(beginning) ?? 0) + 1);
  }
  return counts;
}

function joined(links) {
  return links.map((link, at) => [at === 0 ? null : at === links.length - 1 ? " and " : ", ", link]);
}
