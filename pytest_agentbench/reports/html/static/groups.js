import { href } from "./address.js";
import { columnKey } from "./columns.js";
import { el } from "./dom.js";
import { scrolled } from "./tables.js";
import { count, interval, percent, plural, score } from "./text.js";

/** Items of a group below which its figures say too little. */
const FEWEST = 5;

/** Each dataset on each model, and the groups of its rows that are large enough; null without datasets. */
export function groups(app) {
  const { datasets } = app.data.report;
  if (datasets.length === 0) return null;
  return datasets.map((each) => {
    const label = app.index.labels.get(each.model_id);
    const head = `${each.dataset} on ${label}`;
    return el(
      "details",
      {},
      el("summary", {}, el("strong", {}, head), ` · pass rate ${percent(each.pass_rate)}, ${count(each.items)} items${each.mean_score === null ? "" : `, ${each.scored_by} ${score(each.mean_score)}${of(each.scored, each.items)}`}`),
      breakdown(head, each.breakdown),
      el("p", {}, el("a", { href: href("results", [], { dataset: each.dataset, cols: columnKey(each) }) }, "Its cases")),
    );
  });
}

/** How many are judged, where that is known and not all. */
function of(judged, items) {
  return judged == null || judged === items ? "" : ` (${count(judged)} judged)`;
}

function breakdown(head, groups) {
  const large = groups.filter(({ items }) => items >= FEWEST);
  const small = groups.length - large.length;
  return [
    large.length === 0 ? null : scrolled(head, table(large)),
    small === 0 ? null : el("p", { class: "note" }, `${plural(small, "group")} of fewer than ${FEWEST} items left out.`),
  ];
}

function table(groups) {
  return el(
    "table",
    {},
    el("thead", {}, el("tr", {}, ["Group", "Items", "Pass rate", "95 % interval", "Mean score"].map((title) => el("th", { scope: "col" }, title)))),
    el("tbody", {}, groups.map((group) =>
      el(
        "tr",
        {},
        el("th", { scope: "row" }, el("span", { class: "faint" }, `${group.field} `), group.value),
        el("td", {}, `${count(group.items)}${of(group.judged, group.items)}`),
        el("td", {}, percent(group.pass_rate)),
        el("td", {}, interval(group.pass_rate_ci95, percent)),
        el("td", {}, score(group.mean_score)),
      ),
    )),
  );
}
