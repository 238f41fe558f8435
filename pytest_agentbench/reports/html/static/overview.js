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

/** What came of the session: verdict, models side by side, charts, what failed, groups, scores, how it was made. */
export function overview(app) {
  const { report, live } = app.data;
  if (live && report.runs.length === 0) return { title: "Overview", node: el("div", { class: "overview" }, el("h1", { class: "unseen" }, "Overview"), progress(live)) };
  const node = el("div", { class: "overview" }, progress(live), headline(app), warnings(report.session), compared(app.data.comparison));
  if (report.runs.length === 0) node.append(el("p", { class: "empty-report" }, "This session has no runs: nothing was selected, or nothing was started."));
  const sections = [
    ["Models", modelsTable(app)],
    ["What failed", failures(app)],
    ["Charts", app.data.charts.length > 0 ? chartFigures(app.data.charts) : null],
    ["Groups", groups(app)],
    ["Scores", scoresTable(app)],
    ["Judges", judges(app)],
    ["How it was made", facts(app)],
  ];
  for (const [title, content] of sections) {
    if (content === null) continue;
    const id = title.toLowerCase().replaceAll(" ", "-");
    node.append(el("section", { "aria-labelledby": id }, el("h2", { id }, title), content));
  }
  return { title: "Overview", node };
}
