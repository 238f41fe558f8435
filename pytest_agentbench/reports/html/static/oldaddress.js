import { href } from "./address.js";
import { runHref } from "./listing.js";

const VIEWS = { overview: "summary", matrix: "results", runs: "results", comparison: "comparison" };
const SHOWS = { failed: "failed", passed: "passed", error: "errors", skipped: "skipped" };

/** The address that an address of an earlier version means, null for one of this version. Links to pages are kept for two releases. */
export function rewriteAddress(hash, index) {
  if (hash === "" || hash.startsWith("#/")) return null;
  const params = new URLSearchParams(hash.slice(1));
  if (params.has("run")) return runOr(index, params.get("run"));
  if (params.has("compare")) return runOr(index, params.get("compare"), { side: "1" });
  if (params.has("case")) return runOr(index, index.byCase.get(params.get("case"))?.[0].row.nodeid ?? params.get("case"));
  const view = params.get("view") ?? "overview";
  if (!Object.hasOwn(VIEWS, view)) return href(view);
  if (VIEWS[view] !== "results") return href(VIEWS[view]);
  return href("results", [], {
    show: SHOWS[params.get("outcome")] ?? (params.get("only") === "flaky" ? "flaky" : params.get("only") === "must_pass" ? "must" : ""),
    q: params.get("q"), tag: params.getAll("tag"), dataset: params.getAll("dataset"), reason: params.get("reason"),
    cols: index.columns.filter(({ model }) => params.getAll("model").includes(model)).map(({ key }) => key),
  });
}

function runOr(index, nodeid, values = {}) {
  const run = index.byNodeid.get(nodeid);
  return run === undefined ? href("run", [nodeid]) : runHref(index, run, values);
}
