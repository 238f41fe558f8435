import { href } from "./address.js";
import { el } from "./dom.js";
import { scrolled } from "./tables.js";
import { count, plural, wholePercent } from "./text.js";

/** Pass rates of tags and of fields of datasets by column, darker where worse; null without a group that is large enough. */
export function topics(app) {
  const { rows, left_out: small, fewest } = app.data.topics;
  if (rows.length === 0) return null;
  const columns = app.index.columns;
  const head = [el("th", { scope: "col" }, "Group"), el("th", { scope: "col", class: "number" }, "Cases"), ...columns.map(({ name }) => el("th", { scope: "col", class: "number" }, name))];
  return [
    scrolled("Pass rates by group", el("table", { class: "topics" }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows.map((row) => line(row, columns))))),
    small === 0 ? null : el("p", { class: "note" }, `The largest groups of at least ${fewest} cases; ${plural(small, "other")} left out.`),
  ];
}

function line({ field, value, cases, rates }, columns) {
  const filter = field === "tag" ? { tag: value } : { field: `${field}: ${value}` };
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, field === "tag" ? null : el("span", { class: "faint" }, `${field} `), el("a", { href: href("results", [], filter) }, value)),
    el("td", { class: "number faint" }, count(cases)),
    columns.map(({ key }, at) => rateCell(rates[at] ?? null, href("results", [], { ...filter, cols: key }))),
  );
}

function rateCell(rate, address) {
  if (rate === null) return el("td", { class: "number" }, "–");
  const cell = el("td", { class: "number heat" }, el("a", { href: address }, wholePercent(rate)));
  cell.style.setProperty("--worse", `${Math.round(100 * (1 - rate))}%`);
  return cell;
}
