import { columnKey } from "./columns.js";
import { subjectOf } from "./search.js";

/**
 * The cases of a report, in its order, from its indexed runs.
 *
 * A case is `{key, name, at, id, title, question, expected, must, tags, dataset, fields, runs, cells}`; `name` stands in
 * addresses. `cells` has by column's key all repetitions of the case on it, see `cellOf`.
 */
export function casesOf(runs) {
  const cases = new Map();
  const ids = new Map();
  for (const run of runs) {
    if (!cases.has(run.case)) {
      cases.set(run.case, newCase(run, cases.size));
      ids.set(run.row.case_id, (ids.get(run.row.case_id) ?? 0) + 1);
    }
    cases.get(run.case).runs.push(run);
  }
  for (const each of cases.values()) {
    const texts = (name) => each.runs.find(({ row }) => row[name] != null)?.row[name] ?? null;
    Object.assign(each, { title: texts("title"), question: texts("question"), expected: texts("expected") });
    each.name = ids.get(each.id) === 1 ? each.id : each.key;
    each.cells = cellsOf(each.runs);
  }
  return [...cases.values()];
}

function newCase({ case: key, row }, at) {
  return { key, at, id: row.case_id, must: row.must_pass, tags: row.tags, dataset: row.dataset, fields: row.fields ?? {}, runs: [], subject: null };
}

function cellsOf(runs) {
  const groups = new Map();
  for (const run of runs) {
    const key = columnKey(run.row);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(run);
  }
  return new Map([...groups].map(([key, group]) => [key, cellOf(key, group)]));
}

/**
 * A case on a column: `{column, runs, verdict, passed, judged, errors, shown}`. The verdict is "passed" (all repetitions),
 * "failed" (none), "mixed", "error" (nothing could be judged) or "skipped". `shown` is the first run that failed, else the first.
 */
function cellOf(column, runs) {
  const number = (outcome) => runs.filter(({ row }) => row.outcome === outcome).length;
  const [passed, failed, errors] = [number("passed"), number("failed"), number("error")];
  const shown = ["failed", "passed", "error"].map((outcome) => runs.find(({ row }) => row.outcome === outcome)).find(Boolean) ?? runs[0];
  return { column, runs, verdict: verdictOf(passed, failed, errors), passed, judged: passed + failed, errors, shown };
}

function verdictOf(passed, failed, errors) {
  if (passed > 0) return failed > 0 ? "mixed" : "passed";
  if (failed > 0) return "failed";
  return errors > 0 ? "error" : "skipped";
}

/** The share of a cell's judged runs that passed; null if there is none, or no cell. */
export function shareOf(cell) {
  return cell === undefined || cell.judged === 0 ? null : cell.passed / cell.judged;
}

/** What the search looks through of a case: everything that its runs say. */
export function searched(each) {
  each.subject ??= subjectOf({
    texts: [each.title, each.question, each.expected, each.dataset, ...Object.values(each.fields), ...each.runs.flatMap(textsOf)],
    tags: each.tags,
    tools: [...new Set(each.runs.flatMap(({ tools }) => tools))],
    ids: [each.key],
  });
  return each.subject;
}

function textsOf({ row }) {
  const checks = row.checks.filter(({ outcome }) => outcome !== "passed").flatMap((check) => [check.check_id, check.message]);
  return [row.answer, row.message, row.status, row.label ?? row.model_id, ...checks];
}

const AT_ONCE = 200;

/** Prepares the search while nothing else is to do, so that the first letter finds as fast as the next. */
export function prepareSearch(cases, from = 0) {
  for (const each of cases.slice(from, from + AT_ONCE)) searched(each);
  if (from + AT_ONCE < cases.length) setTimeout(() => prepareSearch(cases, from + AT_ONCE));
}
