import { prepareSearch } from "./cases.js";
import { readData } from "./data.js";
import { el, show } from "./dom.js";
import { listen } from "./keyboard.js";
import { followData } from "./live.js";
import { navigation } from "./navigation.js";
import { indexReport } from "./reportindex.js";
import { startRouter } from "./router.js";
import { startTheme } from "./theme.js";
import { comparisonView } from "./comparison.js";
import { resultsView } from "./results.js";
import { runView } from "./run.js";
import { sessionView, summaryView } from "./summary.js";

/**
 * Views by name. A view is a function of (app, address), see address.js, that gives
 * `{ title, node, update?(address), refresh?(), close?(), keys? }`: `update` where only its own parameters changed,
 * `refresh` where the data did, `close` before it goes.
 */
const VIEWS = { summary: summaryView, results: resultsView, run: runView, comparison: comparisonView, session: sessionView };

/** What every view gets: the report's data, an index of it, and ways to move. */
const app = { data: null, index: null, live: document.body.dataset.live === "true" };

async function start() {
  startTheme();
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
  else prepareSearch(app.index.cases);
}

start();
