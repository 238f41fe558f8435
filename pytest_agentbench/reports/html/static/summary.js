import { chartFigures } from "./charts.js";
import { el } from "./dom.js";
import { failures } from "./failures.js";
import { groups } from "./groups.js";
import { judges } from "./judges.js";
import { compared } from "./comparison.js";
import { modelsTable } from "./models.js";
import { progress } from "./progress.js";
import { scoresTable } from "./scores.js";
import { facts, headline, warnings } from "./session.js";

/** What came of the session: verdict, models side by side, what failed, charts, groups, scores. */
export function summaryView(app) {
  const { report, live } = app.data;
  if (live && report.runs.length === 0) return { title: "Summary", node: el("div", { class: "overview" }, el("h1", { class: "unseen" }, "Summary"), progress(live)) };
  const node = el("div", { class: "overview" }, progress(live), headline(app), warnings(report.session), compared(app.data.comparison));
  if (report.runs.length === 0) node.append(el("p", { class: "empty-report" }, "This session has no runs: nothing was selected, or nothing was started."));
  addSections(node, [
    ["Models", modelsTable(app)],
    ["What failed", failures(app)],
    ["Charts", app.data.charts.length > 0 ? chartFigures(app.data.charts) : null],
    ["Groups", groups(app)],
    ["Scores", scoresTable(app)],
  ]);
  return { title: "Summary", node };
}

/** How the session was made: how far judges agree, command, profiles, versions. */
export function sessionView(app) {
  const node = el("div", { class: "overview" }, el("h1", {}, "Session"), warnings(app.data.report.session));
  addSections(node, [
    ["Judges", judges(app)],
    ["How it was made", facts(app)],
  ]);
  return { title: "Session", node };
}

function addSections(node, sections) {
  for (const [title, content] of sections) {
    if (content === null) continue;
    const id = title.toLowerCase().replaceAll(" ", "-");
    node.append(el("section", { "aria-labelledby": id }, el("h2", { id }, title), content));
  }
}
