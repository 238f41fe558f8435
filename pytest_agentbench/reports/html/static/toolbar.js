import { go, href, readAddress } from "./address.js";
import { choice } from "./choice.js";
import { saveCsv } from "./csv.js";
import { el, show } from "./dom.js";
import { icon } from "./icons.js";
import { LINES, ORDERS, SEVERAL, SHOWS, listOf, listValues } from "./listing.js";
import { defaultOther } from "./pair.js";
import { pairLine } from "./pairline.js";
import { picker } from "./picker.js";
import { count, plural } from "./text.js";

const CHOICES = { tag: "All tags", dataset: "All datasets", field: "All fields" };
const HELP = 'Words at their beginning, "a phrase", -without, *within, tag:x, tool:x, id:x';

/**
 * What a list of cases is narrowed, ordered and shown by. All of it stands in the address.
 * Gives `{ node, update(list, narrowed, cases, columns) }`; `narrowed` is that of `narrow`, `cases` and `columns` are shown.
 */
export function toolbar(app) {
  const search = el("input", {
    type: "search", id: "q", placeholder: "Search questions, answers, reasons", title: HELP, "aria-label": "Search", "aria-keyshortcuts": "/",
    autocomplete: "off", spellcheck: "false", on: { input: () => change({ q: search.value }, true) },
  });
  const shows = el("div", { class: "modes", role: "group", "aria-label": "Show" });
  const choices = Object.entries(CHOICES).map(([name, all]) => [name, choice(name, all, (values) => change({ [name]: values }))]);
  const columns = choice("cols", "All columns", (keys) => change({ columns: app.index.columns.filter(({ key }) => keys.includes(key)) }));
  const mark = picker("mark", "Mark", (value) => change({ mark: value }));
  const order = picker("sort", "Order", (value) => change({ sort: value }));
  const lines = picker("lines", "Rows", (value) => change({ lines: value }));
  const told = el("p", { class: "told", role: "status" });
  const csv = el("button", { type: "button", class: "plain", title: "These cases with question, expected and answers" }, "CSV");
  const chips = el("span", { class: "chips" });
  let buttonOf = null;
  const pair = pairLine(app, choosePair, (...of) => buttonOf(...of));
  const node = el(
    "section",
    { class: "toolbar", "aria-label": "Filters" },
    el("div", { class: "line" }, el("span", { class: "searchbox" }, icon("search"), search, el("kbd", { "aria-hidden": "true" }, "/")), shows),
    el("div", { class: "line second" }, choices.map(([, each]) => each.node), mark.node, order.node, lines.node, columns.node, chips, told, csv),
    pair.node,
  );

  function change(values, replace = false) {
    const list = listOf(readAddress().params, app.index);
    const next = { ...list, ...values };
    if (list.vs === defaultOther(app.index, list) && !("vs" in values)) next.vs = defaultOther(app.index, next);
    go(href("results", [], listValues(next, app.index)), { replace });
  }

  /** Both columns of a chosen pair are shown. A column that was the other side changes its side. */
  function choosePair(values) {
    const list = listOf(readAddress().params, app.index);
    const { ref, vs } = { ...list, ...values };
    const pair = ref === vs ? { ref: list.vs, vs: list.ref } : { ref, vs };
    change({ ...pair, columns: app.index.columns.filter((each) => list.columns.includes(each) || Object.values(pair).includes(each.key)) });
  }

  return {
    node,
    update(list, narrowed, cases, shownColumns) {
      const { index } = app;
      if (search.value !== list.q && document.activeElement !== search) search.value = list.q;
      const focused = document.activeElement?.dataset?.show;
      buttonOf = (name, text) => showButton(index, name, text, list, narrowed.cases, change);
      show(shows, Object.entries(SHOWS).filter(([, { pair }]) => !pair).map(([name, { text }]) => buttonOf(name, text)));
      pair.update(list);
      if (focused) node.querySelector(`[data-show="${focused}"]`)?.focus();
      for (const [name, each] of choices) each.update(optionsOf(narrowed.counts[name]), list[name]);
      columns.update(index.columns.map(({ key, name, what }) => [key, name, what]), list.columns.length === index.columns.length ? [] : list.columns.map(({ key }) => key));
      mark.update([["", "nothing"], ...(cases.some((each) => each.expected !== null) ? [["expected", "expected words"]] : []), ...(list.ref === "" ? [] : [["ref", "difference to reference"]])], list.mark);
      order.update([...Object.entries(ORDERS), ...scoreOrders(index)], list.sort);
      lines.update(Object.entries(LINES), list.lines);
      show(told, tellCount(index, cases), cases.length === 0 ? null : hiddenColumns(list, shownColumns));
      csv.onclick = () => saveCsv(cases, shownColumns);
      csv.hidden = cases.length === 0;
      show(chips, chipsOf(list, change));
      chips.hidden = chips.childNodes.length === 0;
    },
  };
}

function showButton(index, name, text, list, cases, change) {
  const { title, test, offered } = SHOWS[name];
  if (!offered(index) && list.show !== name) return null;
  const number = cases.reduce((sum, each) => sum + (test(each, list, index) ? 1 : 0), 0);
  return el(
    "button",
    { type: "button", title, class: number === 0 ? "zero" : null, "data-show": name, "aria-pressed": String(list.show === name), on: { click: () => change({ show: name }) } },
    text, " ", el("span", { class: "n" }, count(number)),
  );
}

/** Values with how many cases have them, in the order of the alphabet. */
function optionsOf(counts) {
  const text = new Intl.Collator("en", { numeric: true });
  return [...counts].sort(([one], [other]) => text.compare(one, other)).map(([value, number]) => [value, value, count(number)]);
}

function scoreOrders(index) {
  return index.figure === null ? [] : index.columns.map(({ key, name }) => [`score:${key}`, `Lowest ${index.figure.title} of ${name}`]);
}

function tellCount({ cases: all }, cases) {
  return cases.length === all.length ? plural(all.length, "case") : `${count(cases.length)} of ${plural(all.length, "case")}`;
}

function hiddenColumns(list, columns) {
  const hidden = list.columns.filter((each) => !columns.includes(each));
  return hidden.length === 0 ? null : el("span", { title: hidden.map(({ name }) => name).join(", ") }, ` · ${plural(hidden.length, "column")} without a run here`);
}

/** Filters that have no control of their own, to be taken off, and a way to take off all. */
function chipsOf(list, change) {
  const reason = list.reason === "" ? null : el("button", { type: "button", class: "chip", "aria-label": `Remove the filter ${list.reason}`, on: { click: () => change({ reason: "" }) } }, list.reason, el("span", { "aria-hidden": "true" }, " ×"));
  const narrowed = list.show !== "all" || list.q !== "" || list.reason !== "" || SEVERAL.some((name) => list[name].length > 0);
  const all = { show: "all", q: "", reason: "", tag: [], dataset: [], field: [] };
  return [reason, narrowed ? el("button", { type: "button", class: "plain", id: "clear", on: { click: () => change(all) } }, "Clear all") : null];
}
