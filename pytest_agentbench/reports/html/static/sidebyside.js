import { loadDetail } from "./detail.js";
import { el, show } from "./dom.js";
import { figures, movement } from "./gridrow.js";
import { verdictSign } from "./icons.js";
import { runHref } from "./listing.js";
import { textBox, textOf } from "./longtext.js";
import { differenceMarked } from "./marks.js";
import { placesOf } from "./parts.js";
import { reasonLine } from "./reasons.js";
import { answerOf, eventItem, eventsOf, pairCalls } from "./trace.js";

const MOST_COLUMNS = 4;
const MOST_EVENTS = 100;

/** A case's answers and conversations on up to four columns beside each other, answers with their difference to the reference. */
export function sideBySide(app, place) {
  const columns = shownColumns(place);
  const reference = columns.find(({ key }) => key === place.list.ref) ?? columns[0];
  const runs = columns.map(({ key }) => (key === place.cell.column ? place.run : place.each.cells.get(key).shown));
  const node = el("div", { class: "side", "aria-busy": "true" });
  node.style.setProperty("--n", columns.length);
  const empty = { run: null, notes: [] };
  draw(runs.map(() => empty));
  Promise.all(runs.map((run) => loadDetail(app, run).catch((error) => ({ run: null, notes: [error.message] })))).then((details) => {
    draw(details);
    node.removeAttribute("aria-busy");
  });
  return node;

  function draw(details) {
    const answers = runs.map((run, at) => answerOf(details[at].run) ?? run.row.answer ?? null);
    const base = answers[columns.indexOf(reference)];
    show(node, columns.map((column, at) => {
      const { row } = runs[at];
      const differs = column !== reference && base !== null && answers[at] !== null;
      const mark = differs ? (text) => differenceMarked(textOf(base).text, text) : undefined;
      return el(
        "section",
        { class: "sidecol", "aria-label": column.name },
        el("h2", {}, verdictSign(row.outcome), el("a", { href: runHref(app.index, runs[at], { ...place.values, side: "" }) }, column.name), column === reference ? el("span", { class: "tagline" }, "reference") : movement({ app, list: { ...place.list, ref: reference.key } }, place.each, column.key), figures(app, row)),
        reasonLine(row) === null ? null : el("p", { class: `why ${row.outcome}` }, reasonLine(row)),
        textBox(answers[at], { label: `Answer of ${column.name}`, prose: true, lines: 60, mark, empty: answers[at] === null ? "There is no answer." : "The answer is empty." }),
        details[at].notes.map((note) => el("p", { class: "note" }, note)),
        conversation(details[at].run, placesOf(app, row)),
      );
    }));
  }
}

function shownColumns({ columns, cell, list }) {
  if (columns.length <= MOST_COLUMNS) return columns;
  const first = columns.filter(({ key }) => key === cell.column || key === list.ref);
  const rest = columns.filter((column) => !first.includes(column)).slice(0, MOST_COLUMNS - first.length);
  return columns.filter((column) => first.includes(column) || rest.includes(column));
}

/** Messages and tool calls without what is equal by construction: the first question, and the answer above. */
function conversation(run, places) {
  const events = eventsOf(run).filter(({ type, role }) => type !== "runner" && type !== "final_output" && role !== "system");
  const first = events.findIndex(({ role }) => role === "user");
  const entries = pairCalls(events.filter((_, at) => at !== first));
  if (entries.length === 0) return null;
  const items = entries.slice(0, MOST_EVENTS).map((entry) => {
    const item = eventItem(entry, places);
    item.removeAttribute("id");
    return item;
  });
  const more = entries.length > MOST_EVENTS ? el("p", { class: "note" }, `The first ${MOST_EVENTS} of ${entries.length} steps.`) : null;
  return [el("h3", {}, "Conversation"), el("ol", { class: "events" }, items), more];
}
