import { changedCases } from "./changedcases.js";
import { chartFigure } from "./charts.js";
import { el } from "./dom.js";
import { failures } from "./failures.js";
import { groups } from "./groups.js";
import { judges } from "./judges.js";
import { progress } from "./progress.js";
import { scoreboard } from "./scoreboard.js";
import { scoresTable } from "./scores.js";
import { facts, firstWarnings, headline, warnings } from "./session.js";
import { topics } from "./topics.js";

/** What came of the session: the verdict, columns side by side, what failed, what was won and lost, groups, charts, scores. */
export function summaryView(app) {
  const { report, live } = app.data;
  if (live && report.runs.length === 0) return { title: "Summary", node: el("div", { class: "overview" }, el("h1", { class: "unseen" }, "Summary"), progress(live)) };
  const node = el("div", { class: "overview" }, progress(live), headline(app), firstWarnings(report.session));
  if (report.runs.length === 0) node.append(el("p", { class: "empty-report" }, "This session has no runs: nothing was selected, or nothing was started."));
  addSections(node, [["Columns", scoreboard(app), "panel wide"]]);
  const panels = el("div", { class: "panels" });
  addSections(panels, [
    ["What fails", failures(app), "panel"],
    ["Won and lost", changedCases(app), "panel"],
    ["By group", topics(app), "panel"],
    ["Charts", app.data.charts.length > 0 ? app.data.charts.map(chartFigure) : null, "panel charts"],
  ]);
  node.append(panels);
  addSections(node, [
    ["Datasets", groups(app)],
    ["Figures", scoresTable(app)],
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
  for (const [title, content, kind = null] of sections) {
    if (content === null) continue;
    const id = title.toLowerCase().replaceAll(" ", "-");
    node.append(el("section", { class: kind, "aria-labelledby": id }, el("h2", { id }, title), content));
  }
}
