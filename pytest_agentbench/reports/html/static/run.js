import { go } from "./address.js";
import { answerSection, askedSection } from "./asked.js";
import { changesSection } from "./changes.js";
import { loadDetail } from "./detail.js";
import { el, show } from "./dom.js";
import { LABEL_KEYS } from "./labels.js";
import { runHref } from "./listing.js";
import { guardPart, notesBox, part, placesOf } from "./parts.js";
import { commandLine, runFacts, storedFacts, usageTable } from "./runfacts.js";
import { figuresList, runHead, runMarks } from "./runhead.js";
import { sideBySide } from "./sidebyside.js";
import { timingSection } from "./timing.js";
import { traceSection } from "./trace.js";
import { checksOf, verdictSection } from "./verdict.js";
import { placeOf, rail, stepsFrom, thumbBar } from "./walk.js";

/** A run: what was asked, expected and answered, why it failed, and everything that is known of it. */
export function runView(app, address) {
  const place = placeOf(app, address);
  if (place === null) return noSuchRun(address.rest);
  const steps = stepsFrom(app, place);
  const list = rail(app, place);
  const article = el("article", { class: "run" });
  const node = el("div", { class: "with-rail" }, list, article, thumbBar(place, steps));
  let drawn = null;
  draw(place);
  queueMicrotask(() => showInRail(list));
  return {
    title: `${place.each.id} · ${place.columns.find(({ key }) => key === place.cell.column).name}`,
    node,
    refresh() {
      const now = placeOf(app, address);
      if (now !== null && JSON.stringify(now.run.row) !== drawn) draw(now);
    },
    keys: runKeys(app, place, steps),
  };

  function draw(current) {
    drawn = JSON.stringify(current.run.row);
    const asked = el("div", {});
    const ask = (run) => show(asked, guardPart("Question", () => askedSection(current.each, current.run.row, run)));
    ask(null);
    show(article, runHead(app, current, steps), asked, current.side ? sideBySide(app, current) : runBody(app, current, ask));
  }
}

/** Answer, verdict and details at the left, figures at the right. `ask` draws the question again once the stored run is there. */
function runBody(app, place, ask) {
  const { run } = place;
  const where = placesOf(app, run.row).run;
  const answer = el("div", {}, answerSection(app, place, null, where));
  const parts = el("div", { class: "parts", "aria-busy": "true" }, el("p", { class: "note" }, "Reading what is stored of this run …"));
  loadDetail(app, run)
    .then((detail) => {
      ask(detail.run);
      show(answer, guardPart("Answer", () => answerSection(app, place, detail.run, where)));
      fill(parts, sectionsOf(app, run, detail));
    })
    .catch((error) => fill(parts, [el("p", { class: "warnings" }, `What is stored of this run cannot be read: ${error.message}`)]));
  const aside = el("aside", { class: "run-aside", "aria-label": "Figures" }, figuresList(run.row), runMarks(app, run.row), commandLine(app, run));
  return el("div", { class: "runbody" }, el("div", { class: "runmain" }, answer, parts), aside);
}

/** What the view of a run shows below its answer, in the order in which people look. */
function sectionsOf(app, run, detail) {
  const places = placesOf(app, run.row);
  return [
    notesBox(detail.notes),
    guardPart("Verdict", () => verdictSection(run.row, detail.evaluation, places, app.data.sections)),
    guardPart("Trace", () => traceSection(detail.run, places, checksOf(run.row, detail.evaluation))),
    guardPart("Timing", () => timingSection(detail.run)),
    guardPart("Workspace", () => changesSection(detail.run, places)),
    guardPart("Usage", () => part("usage", "Usage and cost", usageTable(run.row, detail))),
    guardPart("Run", () => part("made", "Run", runFacts(run.row, detail))),
    guardPart("Stored", () => part("stored", "Stored", storedFacts(app, run.row, detail))),
  ];
}

function fill(parts, sections) {
  parts.removeAttribute("aria-busy");
  show(parts, sections);
}

function showInRail(list) {
  const current = list.querySelector("[aria-current]");
  if (current !== null) list.scrollTop = current.offsetTop - list.clientHeight / 2;
}

function runKeys(app, place, steps) {
  const to = (target) => () => target !== null && go(target);
  const column = (by) => () => {
    const next = place.columns[place.columns.findIndex(({ key }) => key === place.cell.column) + by];
    if (next) go(runHref(app.index, place.each.cells.get(next.key).shown, place.values));
  };
  const label = Object.entries(LABEL_KEYS).map(([key, verdict]) => [key, () => document.querySelector(`[data-label="${verdict}"]`)?.click()]);
  const beside = runHref(app.index, place.run, { ...place.values, side: place.side ? "" : "1" });
  return {
    n: to(steps.next), p: to(steps.previous), j: to(steps.next), k: to(steps.previous), x: to(steps.differs), X: to(steps.differed),
    h: column(-1), l: column(1), d: to(place.columns.length > 1 ? beside : null), Escape: to(steps.list), ...Object.fromEntries(label),
  };
}

function noSuchRun(rest) {
  const node = el("div", {}, el("h1", {}, "No such run"), el("p", {}, "This report has no run ", el("code", {}, rest.join(" / ")), ". ", el("a", { href: "#/results" }, "All results")));
  return { title: "No such run", node };
}
