import { indexReport, readData } from "./data.js";
import { el, show } from "./dom.js";
import { listen } from "./keyboard.js";
import { followData } from "./live.js";
import { navigation } from "./navigation.js";
import { startRouter } from "./router.js";
import { comparisonView } from "./comparison.js";
import { matrixView } from "./matrix.js";
import { overview } from "./overview.js";
import { runsView } from "./runs.js";
import { caseView } from "./case.js";
import { pairView } from "./pair.js";
import { runView } from "./run.js";

/**
 * Views by name. A view is a function of (app, params: URLSearchParams) that gives
 * `{ title, node, update?(params), refresh?(), close?() }`: `update` where only its own parameters changed,
 * `refresh` where the data did, `close` before it goes.
 */
const VIEWS = { overview, matrix: matrixView, runs: runsView, comparison: comparisonView, run: runView, case: caseView, compare: pairView };

/** What every view gets: the report's data, an index of it, and ways to move. */
const app = { data: null, index: null, live: document.body.dataset.live === "true" };

async function start() {
  const main = document.getElementById("main");
  try {
    app.data = await readData(app.live);
  } catch (error) {
    show(main, el("h1", {}, "This report cannot be read"), el("p", {}, error.message));
    return;
  }
  app.index = indexReport(app.data);
  const router = startRouter(app, VIEWS, main, navigation(app));
  listen(app, router);
  if (app.live) followData(app, router);
}

start();
