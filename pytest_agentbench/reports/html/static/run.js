import { answerSection, askedSection } from "./asked.js";
import { changesSection } from "./changes.js";
import { loadDetail } from "./detail.js";
import { el, show } from "./dom.js";
import { guardPart, notesBox, part, placesOf } from "./parts.js";
import { fragment, go } from "./router.js";
import { commandLine, runFacts, storedFacts, usageTable } from "./runfacts.js";
import { runHead, runMarks } from "./runhead.js";
import { timingSection } from "./timing.js";
import { traceSection } from "./trace.js";
import { verdictSection } from "./verdict.js";

/** Everything that is known of one run: `#run=NODEID`. */
export function runView(app, params) {
  const nodeid = params.get("run");
  const run = app.index.byNodeid.get(nodeid);
  if (run === undefined) return noSuchRun(nodeid);
  const node = el("article", { class: "run" });
  let shown = null;
  draw(run);

  function draw(found) {
    shown = found.row;
    const parts = el("div", { class: "parts", "aria-busy": "true" }, el("p", { class: "note" }, "Reading what is stored of this run …"));
    const asked = el("div", { class: "asked-answered" });
    const ask = (run) => show(asked, askedSection(found.row, run), guardPart("Answer", () => answerSection(found.row, run, placesOf(app, found.row).run)));
    ask(null);
    show(node, runHead(app, found), asked, runMarks(app, found), parts);
    loadDetail(app, found)
      .then((detail) => {
        ask(detail.run);
        fill(parts, sectionsOf(app, found, detail));
      })
      .catch((error) => fill(parts, [el("p", { class: "warnings" }, `What is stored of this run cannot be read: ${error.message}`), commandLine(app, found)]));
  }

  const { runs } = app.index;
  const beside = (step) => () => runs[run.at + step] && go({ run: runs[run.at + step].row.nodeid });
  return {
    title: `${run.row.case_id} · ${app.index.labels.get(run.row.model_id) ?? run.row.model_id}`,
    node,
    refresh() {
      const now = app.index.byNodeid.get(nodeid);
      if (now !== undefined && JSON.stringify(now.row) !== JSON.stringify(shown)) draw(now);
    },
    keys: { n: beside(1), p: beside(-1), c: () => go({ case: run.case }) },
  };
}

/** What the view of a run shows below its head, in the order in which people look. */
function sectionsOf(app, run, detail) {
  const places = placesOf(app, run.row);
  return [
    notesBox(detail.notes),
    guardPart("Verdict", () => verdictSection(run.row, detail.evaluation, places, app.data.sections)),
    guardPart("Trace", () => traceSection(detail.run, places)),
    guardPart("Timing", () => timingSection(detail.run)),
    guardPart("Workspace", () => changesSection(detail.run, places)),
    guardPart("Usage", () => part("usage", "Usage and cost", usageTable(run.row, detail))),
    guardPart("Run", () => part("made", "Run", commandLine(app, run), runFacts(run.row, detail))),
    guardPart("Stored", () => part("stored", "Stored", storedFacts(app, run.row, detail))),
  ];
}

function fill(parts, sections) {
  const shown = sections.filter((section) => section !== null);
  parts.removeAttribute("aria-busy");
  show(parts, jumps(shown), shown);
}

/** Ways down a long page. The fragment names the view, so these are no links. */
function jumps(sections) {
  const titled = sections.map((section) => [section, section.querySelector("h2")]).filter(([, title]) => title !== null);
  const buttons = titled.map(([section, title]) => el("button", { type: "button", class: "link", on: { click: () => section.scrollIntoView() } }, title.textContent));
  return el("nav", { class: "jumps", "aria-label": "On this page" }, buttons);
}

function noSuchRun(nodeid) {
  const node = el("div", {}, el("h1", {}, "No such run"), el("p", {}, "This report has no run ", el("code", {}, nodeid), ". ", el("a", { href: fragment({ view: "runs" }) }, "All runs")));
  return { title: "No such run", node };
}
