import { wellFormed } from "./address.js";
import { BASELINE, readBaseline } from "./baseline.js";
import { casesOf } from "./cases.js";
import { columnKey, columnsOf } from "./columns.js";

/**
 * The report by what its parts are looked up by.
 *
 * `runs` holds for each row `{row, at, case, tools}`: its place, the key of its case (node id without bracket), the tools that it
 * called. `byNodeid` and `byCase` are maps of these. `cases` are those of cases.js, `caseOf` and `caseByName` maps of them.
 * `columns` are those of columns.js, `rates` their pass rates. `reference` is what columns are measured against by default,
 * `tested` has "REFERENCE\nCOLUMN" of the pairs that the report tests, `repeated` is whether a case was judged more than once on a
 * column. `baseline` is that of baseline.js. `figure` is the score that runs have, `{title, value(row)}`, or null.
 */
export function indexReport(data) {
  const { report } = data;
  const tools = data.details?.tools ?? { names: [], runs: [] };
  const runs = report.runs.map((row, at) => ({ row, at, case: caseKey(row), tools: (tools.runs[at] ?? []).map((place) => tools.names[place]) }));
  const byCase = grouped(runs);
  const byNodeid = new Map(runs.map((run) => [run.row.nodeid, run]));
  const cases = casesOf(runs);
  const columns = columnsOf(report);
  const baseline = readBaseline(data.comparison);
  return {
    runs, byCase, byNodeid, cases, columns, baseline,
    caseOf: new Map(cases.map((each) => [each.key, each])),
    caseByName: new Map(cases.map((each) => [wellFormed(each.name), each])),
    labels: new Map(report.models.map((model) => [model.model_id, model.label || model.model_id])),
    rates: new Map(columns.map(({ key }) => [key, passRate(cases, key)])),
    reference: baseline !== null ? BASELINE : firstReference(report, columns),
    tested: new Set((report.column_comparisons ?? []).map((pair) => `${pair.baseline_model_id}\n${columnKey(pair)}`)),
    repeated: cases.some(({ cells }) => [...cells.values()].some(({ judged }) => judged > 1)),
    figure: figureOf(report.runs),
  };
}

function grouped(runs) {
  const groups = new Map();
  for (const run of runs) {
    if (!groups.has(run.case)) groups.set(run.case, []);
    groups.get(run.case).push(run);
  }
  return groups;
}

/** The node id without model and repetition, with the parameters of a parametrized test: each asks something else of a run. */
function caseKey({ nodeid, parameters, variant, asked_model: asked }) {
  const at = nodeid.lastIndexOf("[");
  const place = at < 0 ? nodeid : nodeid.slice(0, at);
  // Reports of earlier versions have parameters as `variant`. If a row has `asked_model`, its variant is a part of its column.
  const own = parameters ?? (asked === undefined ? variant : null);
  return own == null ? place : `${place}[${own}]`;
}

function firstReference(report, columns) {
  if (columns.length < 2) return "";
  const tested = report.column_comparisons?.[0]?.baseline_model_id;
  return columns.some(({ key }) => key === tested) ? tested : columns[0].key;
}

/** The share of judged runs of a column that passed; null if none was judged. */
function passRate(cases, key) {
  const { passed, judged } = countPassed(cases, key);
  return judged === 0 ? null : passed / judged;
}

/** How many runs of a column were `judged`, and how many of these `passed`. */
export function countPassed(cases, key) {
  let [passed, judged] = [0, 0];
  for (const each of cases) {
    passed += each.cells.get(key)?.passed ?? 0;
    judged += each.cells.get(key)?.judged ?? 0;
  }
  return { passed, judged };
}

/** The final score, or the metric that most runs have. */
function figureOf(rows) {
  if (rows.some((row) => row.final_score !== null)) return { title: "score", value: (row) => row?.final_score ?? null };
  const counts = new Map();
  for (const row of rows) for (const name of Object.keys(row.metrics)) counts.set(name, (counts.get(name) ?? 0) + 1);
  const [name] = [...counts].sort((one, other) => other[1] - one[1])[0] ?? [];
  return name === undefined ? null : { title: name, value: (row) => row?.metrics[name] ?? null };
}
