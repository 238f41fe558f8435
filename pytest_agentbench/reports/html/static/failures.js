import { href } from "./address.js";
import { columnKey } from "./columns.js";
import { el } from "./dom.js";
import { runHref } from "./listing.js";
import { outcomeSign } from "./outcomes.js";
import { reasonLine, reasonOf } from "./reasons.js";
import { scrolled } from "./tables.js";
import { clip, count, plural } from "./text.js";

const MOST_REASONS = 12;
/** With more columns the table has the number of all of them only. */
const MOST_COLUMNS = 6;

/** The most frequent reasons of failures and errors, by column, with an example of each; null where nothing failed. */
export function failures(app) {
  const groups = reasonGroups(app);
  if (groups.length === 0) return null;
  const columns = app.index.columns.length <= MOST_COLUMNS ? app.index.columns : [];
  const rest = groups.length - MOST_REASONS;
  const head = [el("th", { scope: "col" }, "Reason"), ...(columns.length > 0 ? columns.map(({ name }) => el("th", { scope: "col", class: "number" }, name)) : [el("th", { scope: "col", class: "number" }, "Runs")])];
  return [
    scrolled("Reasons of failures by column", el("table", { class: "reasons" }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, groups.slice(0, MOST_REASONS).map((group) => line(app, group, columns))))),
    rest > 0 ? el("p", { class: "note" }, `${plural(rest, "further reason")}: see `, el("a", { href: href("results", [], { show: "failed" }) }, "all failed cases"), ".") : null,
  ];
}

/** Runs by outcome and reason, the largest group first: `{outcome, reason, runs}`. */
export function reasonGroups(app) {
  const groups = new Map();
  for (const run of app.index.runs) {
    const reason = reasonOf(run.row);
    if (reason === null) continue;
    const { outcome } = run.row;
    const key = `${outcome} ${reason}`;
    if (!groups.has(key)) groups.set(key, { outcome, reason, runs: [] });
    groups.get(key).runs.push(run);
  }
  return [...groups.values()].sort((one, other) => other.runs.length - one.runs.length);
}

function line(app, { outcome, reason, runs }, columns) {
  const numbers = columns.length === 0 ? [cell("Runs", runs.length, href("results", [], { reason }))] : columns.map(({ key, name }) => {
    const number = runs.filter(({ row }) => columnKey(row) === key).length;
    return cell(name, number, href("results", [], { reason, cols: key }));
  });
  return el("tr", {}, el("th", { scope: "row" }, outcomeSign(outcome), " ", el("a", { href: href("results", [], { reason }) }, reason), example(app, runs[0], reason)), numbers);
}

function cell(title, number, address) {
  return el("td", { class: "number", "data-title": title }, number === 0 ? el("span", { class: "faint" }, "0") : el("a", { href: address }, count(number)));
}

/** One run of a group: what was asked, and what its reason adds to that of the group. */
function example(app, run, reason) {
  const { row } = run;
  const asked = row.question ?? row.title ?? row.case_id;
  const told = (reasonLine(row) ?? "").replace(reason, "").replace(/^: /, "");
  return el("small", {}, el("a", { href: runHref(app.index, run) }, clip(asked, 120)), told ? ` ${clip(told, 160)}` : null);
}
