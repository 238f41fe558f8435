import { found, parseSearch, subjectOf } from "./search.js";

const SEVERAL = ["outcome", "model", "tag", "dataset", "reason"];

/** What a list of runs is narrowed by, of the parameters. */
export function filtersOf(params) {
  const found = { q: params.get("q") ?? "", only: params.get("only") ?? "" };
  for (const name of SEVERAL) found[name] = params.getAll(name);
  return found;
}

/** The parameters of a view with these filters. */
export function filterParams(filters, rest = {}) {
  const pairs = Object.entries(rest);
  for (const name of SEVERAL) pairs.push(...filters[name].map((value) => [name, value]));
  pairs.push(["only", filters.only], ["q", filters.q]);
  return pairs;
}

/** Runs (of `indexed`) that all filters and the search let through. */
export function filterRuns(runs, filters, flaky) {
  const terms = parseSearch(filters.q);
  const sets = SEVERAL.filter((name) => filters[name].length > 0).map((name) => [name, new Set(filters[name])]);
  return runs.filter(
    (run) =>
      sets.every(([name, wanted]) => HAS[name](run, wanted)) &&
      (filters.only === "" || (Object.hasOwn(ONLY, filters.only) && ONLY[filters.only].test(run, flaky))) &&
      found(terms, searched(run)),
  );
}

const HAS = {
  outcome: (run, wanted) => wanted.has(run.row.outcome),
  model: (run, wanted) => wanted.has(run.row.model_id),
  tag: (run, wanted) => run.row.tags.some((tag) => wanted.has(tag)),
  dataset: (run, wanted) => wanted.has(run.row.dataset),
  reason: (run, wanted) => wanted.has(reasonOf(run.row)),
};

/** Further narrowings, by their name in the URL. */
export const ONLY = {
  must_pass: { label: "must pass", test: (run) => run.row.must_pass },
  flaky: { label: "flaky cases", test: (run, flaky) => flaky.has(`${run.case}\n${run.row.model_id}`) },
  reused: { label: "reused runs", test: (run) => run.row.reused },
};

/** Cases and models whose repetitions differ: keys `CASE\nMODEL`. */
export function flakyOf(runs) {
  const seen = new Map();
  for (const { case: key, row } of runs) {
    if (row.outcome !== "passed" && row.outcome !== "failed") continue;
    const name = `${key}\n${row.model_id}`;
    seen.set(name, (seen.get(name) ?? 0) | (row.outcome === "passed" ? 1 : 2));
  }
  return new Set([...seen].filter(([, found]) => found === 3).map(([name]) => name));
}

/** Who was asked, or which line of which file is meant: the same trouble of several models or cases is one reason. */
const ABOUT = /^(?:(?:scripted )?model '[^']*'(?: at \S+)?|(?:[A-Za-z]:)?[^:\n]{1,400}:\d{1,9}(?::\d{1,9})?): /;

/** Why a run failed, in the few words before its message's colon: "check has-answer", "HTTP 503". */
export function reasonOf(row) {
  if (row.outcome !== "failed" && row.outcome !== "error") return null;
  if (!row.message) return row.status === null || row.status === "success" ? "no reason told" : `run ${row.status}`;
  const [head] = row.message.replace(ABOUT, "").split(/: |\n/, 1);
  return head.length > 80 ? `${head.slice(0, 79)}…` : head;
}

/** What the search looks through of a run. */
function searched(run) {
  const { row, tools } = run;
  run.subject ??= subjectOf({
    texts: [row.title, row.question, row.expected, row.answer, row.message, row.status, row.dataset, ...Object.values(row.fields ?? {}), ...row.checks.flatMap(checkTexts)],
    tags: row.tags,
    tools,
    ids: [row.nodeid, row.label ?? row.model_id],
  });
  return run.subject;
}

function checkTexts(check) {
  return [check.check_id, check.kind, check.outcome === "passed" ? null : check.message];
}
