import { BASELINE } from "./baseline.js";
import { el, show } from "./dom.js";
import { SHOWS, references } from "./listing.js";
import { pairFigures } from "./pair.js";
import { picker } from "./picker.js";
import { clip, interval, plural } from "./text.js";
import { nameOf, pText, points, verdictsOf } from "./verdicts.js";

const NAME = 24;

/**
 * The line of the filters that compares two columns: which ones, their difference, and a button for each way in which a case can
 * end on them. `changed(values)` gets a chosen column, `button(name, text)` makes a filter's button. Gives `{ node, update(list) }`.
 */
export function pairLine(app, changed, button) {
  const reference = picker("ref", "with reference", (ref) => changed({ ref }));
  const other = picker("vs", "Compare", (vs) => changed({ vs }));
  const told = el("span", { class: "pairtold", role: "status" });
  const ends = el("div", { class: "modes", role: "group", "aria-label": "How cases end on the two columns" });
  const node = el("div", { class: "line second pair" }, other.node, reference.node, told, ends);
  return {
    node,
    update(list) {
      const { index } = app;
      node.hidden = list.vs === "";
      const named = (key) => [key, key === BASELINE ? "baseline" : nameOf(app, key)];
      reference.update(references(index).map(named), list.ref);
      other.update(index.columns.map(({ key }) => named(key)), list.vs);
      [reference.node.hidden, other.node.hidden] = [false, false]; // also of a single column and its baseline
      show(told, differenceText(app, list));
      show(ends, node.hidden ? null : endTexts(app, list).map(([name, text]) => button(name, text)));
    },
  };
}

function differenceText(app, list) {
  const verdicts = verdictsOf(app);
  const figures = list.vs === "" ? null : pairFigures(app, verdicts, list);
  if (figures === null) return "no common case";
  const ends = figures.ci95 === null ? "" : ` (95\u00a0%: ${interval(figures.ci95, points)})`;
  const adjusted = figures.p_adjusted != null && verdicts.length > 1 ? `adjusted for ${verdicts.length} comparisons (Holm)` : "for this pair alone";
  const p = figures.p === null ? null : [", ", el("span", { title: `${figures.test}; ${adjusted}` }, pText(figures))];
  return [el("strong", {}, points(figures.difference)), ` points${ends}`, p, `, ${plural(figures.cases, "case")}`];
}

/** The ways a case can end on the pair with the texts of their buttons. */
function endTexts(app, { ref, vs }) {
  const name = (key) => clip(key === BASELINE ? "baseline" : nameOf(app, key), NAME);
  const only = (key) => (app.index.repeated ? `${name(key)} better` : `Only ${name(key)}`);
  return [["both", SHOWS.both.text], ["onlyvs", only(vs)], ["onlyref", only(ref)], ["neither", SHOWS.neither.text]];
}
