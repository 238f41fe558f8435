import { href, wellFormed } from "./address.js";
import { el } from "./dom.js";
import { icon } from "./icons.js";
import { SHOWS, casesIn, listOf, listValues, runHref } from "./listing.js";
import { differsOnPair } from "./pair.js";
import { clip, count } from "./text.js";

const RAIL = 60;
const ABOVE = 20;

/**
 * A run's place in the list that its address names: `{list, values, columns, each, cell, run, cases, at, side}`; null if the
 * report has no such run. `columns` are those of the list and the run's own, `at` is -1 if the case is not in the list.
 */
export function placeOf(app, { rest: [name, key, repetition], params }) {
  const { index } = app;
  const each = index.caseByName.get(name) ?? index.caseOf.get(name);
  if (each === undefined) return null;
  const list = listOf(params, index);
  const cell = [...each.cells.values()].find(({ column }) => key === undefined || wellFormed(column) === key);
  if (cell === undefined) return null;
  const columns = index.columns.filter((column) => each.cells.has(column.key) && (list.columns.includes(column) || column.key === cell.column));
  const run = cell.runs.find(({ row }) => String(row.repetition) === repetition) ?? cell.shown;
  const cases = casesIn(index, list);
  const values = { ...listValues(list, index), side: params.get("side") };
  return { list, values, columns, each, cell, run, cases, at: cases.indexOf(each), side: params.get("side") === "1" && columns.length > 1 };
}

/** The addresses around a place: `{list, previous, next, differs, differed}`, the last two of cases on which the pair differs, null at the ends. A column stays the same where the case has it. */
export function stepsFrom(app, place) {
  const { cases, at, list, values, cell } = place;
  const differing = (each) => differsOnPair(app.index, each, list);
  const to = (each) => (each === undefined ? null : runHref(app.index, (each.cells.get(cell.column) ?? each.cells.values().next().value).shown, values));
  return {
    list: href("results", [], listValues(list, app.index)),
    previous: to(at < 0 ? cases.at(-1) : cases[at - 1]),
    next: to(cases[at + 1]),
    differs: to(cases.slice(at + 1).find(differing)),
    differed: to(cases.slice(0, Math.max(0, at)).findLast(differing)),
  };
}

/** What the list is narrowed by, in a few words. */
export function describeList({ list }) {
  const parts = [
    list.show === "all" ? null : SHOWS[list.show].text.toLowerCase(),
    ...[...list.tag, ...list.dataset, ...list.field],
    list.q === "" ? null : `“${clip(list.q, 30)}”`,
    list.reason === "" ? null : "one reason",
  ].filter(Boolean);
  return parts.length === 0 ? "all cases" : parts.join(" · ");
}

/** "13 of 31 · differs". */
export function placeText(place) {
  return place.at < 0 ? `not in the list · ${describeList(place)}` : `${count(place.at + 1)} of ${count(place.cases.length)} · ${describeList(place)}`;
}

/** The cases around the one that is open, so that a reader sees where they are. */
export function rail(app, place) {
  const { cases, at, columns, cell, each, values } = place;
  const from = Math.max(0, Math.min(at - ABOVE, cases.length - RAIL));
  const items = cases.slice(from, from + RAIL).map((other) => {
    const target = (other.cells.get(cell.column) ?? other.cells.values().next().value).shown;
    const signs = columns.filter(({ key }) => other.cells.has(key)).map(({ key }) => icon(other.cells.get(key).verdict));
    const text = el("span", { class: "rail-text" }, other.question ?? other.title ?? other.id);
    return el("li", {}, el("a", { href: runHref(app.index, target, values), "aria-current": other === each ? "page" : null }, el("span", { class: "dots" }, signs), text));
  });
  return el("nav", { class: "rail", "aria-label": "Cases of this list" }, el("p", {}, `${count(cases.length)} · ${describeList(place)}`), el("ol", {}, items));
}

/** Previous and next, at the thumb of those who hold a phone. */
export function thumbBar(place, steps) {
  const link = (target, text) => (target === null ? el("span", {}) : el("a", { class: "btn", href: target }, text));
  const told = place.at < 0 ? "–" : `${count(place.at + 1)} / ${count(place.cases.length)}`;
  return el("nav", { class: "thumbs", "aria-label": "Cases before and after" }, link(steps.previous, "‹ Previous"), el("span", {}, told), link(steps.next, "Next ›"));
}
