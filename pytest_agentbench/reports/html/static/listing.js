import { href } from "./address.js";
import { BASELINE } from "./baseline.js";
import { searched, shareOf } from "./cases.js";
import { columnKey } from "./columns.js";
import { hasLabels, labelOf } from "./labels.js";
import { defaultOther, endOnPair, pairShares } from "./pair.js";
import { reasonOf } from "./reasons.js";
import { found, parseSearch } from "./search.js";

export const LINES = { 1: "compact", 4: "up to 4 lines", 12: "up to 12 lines" };
export const ORDERS = { trouble: "Trouble first", file: "As in the file", spread: "Largest difference", cost: "Most expensive", time: "Slowest" };
export const SEVERAL = ["tag", "dataset", "field"];
const SINGLE = ["show", "q", "reason", "ref", "mark", "lines", "sort"];
const DEFAULTS = { show: "all", lines: "4", sort: "trouble" };
/** With more columns than MANY, the compared pair and the BEST of the others are shown. */
const MANY = 6;
const BEST = 3;

/** The list of cases that parameters ask for: filters, `ref` and `vs` (the compared pair), order, columns, how it is shown. */
export function listOf(params, index) {
  const list = {};
  for (const name of SINGLE) list[name] = params.get(name) ?? DEFAULTS[name] ?? "";
  for (const name of SEVERAL) list[name] = params.getAll(name);
  if (!Object.hasOwn(LINES, list.lines)) list.lines = DEFAULTS.lines;
  if (!Object.hasOwn(SHOWS, list.show)) list.show = DEFAULTS.show;
  if (!references(index).includes(list.ref)) list.ref = index.reference;
  const other = params.get("vs");
  const chosen = index.columns.filter(({ key }) => params.getAll("cols").includes(key));
  list.columns = chosen.length > 0 ? chosen : defaultColumns(index, list.ref, other);
  list.vs = other !== list.ref && index.columns.some(({ key }) => key === other) ? other : defaultOther(index, list);
  return list;
}

/** The parameters of a list; what is as by default is left out, so that addresses stay short. */
export function listValues(list, index) {
  const values = {};
  for (const name of SINGLE) values[name] = list[name] === (name === "ref" ? index.reference : DEFAULTS[name]) ? "" : list[name];
  for (const name of SEVERAL) values[name] = list[name];
  values.vs = list.vs === defaultOther(index, list) ? "" : list.vs;
  const keys = (columns) => columns.map(({ key }) => key);
  values.cols = String(keys(list.columns)) === String(keys(defaultColumns(index, list.ref, list.vs))) ? [] : keys(list.columns);
  return values;
}

/** The address of a run in a list. */
export function runHref(index, run, values = {}) {
  return href("run", [index.caseOf.get(run.case).name, columnKey(run.row), run.row.repetition], values);
}

/** What columns can be measured against: each other and the baseline. */
export function references(index) {
  const columns = index.columns.length > 1 ? index.columns.map(({ key }) => key) : [];
  return index.baseline === null ? columns : [...columns, BASELINE];
}

/** Whether a list has the baseline as a column of its own: what it compares one column with. */
export function showsBaseline(list) {
  return list.ref === BASELINE && list.columns.length === 1;
}

function defaultColumns(index, ref, vs) {
  if (index.columns.length <= MANY) return index.columns;
  const best = index.columns.filter(({ key }) => key !== ref).sort((one, other) => index.rates.get(other.key) - index.rates.get(one.key));
  const kept = new Set([ref, vs, ...best.slice(0, BEST).map(({ key }) => key)]);
  return index.columns.filter(({ key }) => kept.has(key));
}

/** 1 if a column is better on the case than the reference, -1 if it is worse, else 0. */
export function changeOf(index, each, key, reference) {
  const shares = pairShares(index, each, { ref: reference, vs: key });
  return shares === null ? 0 : Math.sign(shares[1] - shares[0]);
}

const some = (test) => (each, list) => list.columns.some(({ key }) => each.cells.has(key) && test(each.cells.get(key)));
const moved = (sign) => (each, list, index) => list.columns.some(({ key }) => each.cells.has(key) && changeOf(index, each, key, list.ref) === sign);

const ended = (end, text, title) => ({ text, title, pair: true, test: (each, list, index) => endOnPair(index, each, list) === end, offered: () => true });

/** Whether the columns of a list have several verdicts on a case. */
function differs(each, list) {
  return new Set(list.columns.map(({ key }) => each.cells.get(key)?.verdict).filter(Boolean)).size > 1;
}

/** What of the cases is shown: `{text, title, test(case, list, index), offered(index)}` by its name in the address. */
export const SHOWS = {
  all: { text: "All", test: () => true, offered: () => true },
  failed: { text: "Failed", title: "every judged repetition failed", test: some((cell) => cell.verdict === "failed"), offered: () => true },
  passed: { text: "Passed", title: "every judged repetition passed", test: some((cell) => cell.verdict === "passed"), offered: () => true },
  differs: { text: "Differs", title: "the columns have several verdicts", test: differs, offered: (index) => index.columns.length > 1 },
  regressed: { text: "Regressed", title: "worse than the reference; a single change may be chance", test: moved(-1), offered: (index) => references(index).length > 0 },
  improved: { text: "Improved", title: "better than the reference; a single change may be chance", test: moved(1), offered: (index) => references(index).length > 0 },
  both: ended("both", "Both pass", "every judged repetition passed on both columns"),
  onlyref: ended("onlyref", "Only reference passes", "the reference passes, or more of its repetitions"),
  onlyvs: ended("onlyvs", "Only other passes", "the other column passes, or more of its repetitions"),
  neither: ended("neither", "Neither passes", "neither column passes every time, and neither is better"),
  flaky: { text: "Flaky", title: "some repetitions passed and some failed", test: some((cell) => cell.verdict === "mixed"), offered: () => true },
  errors: { text: "Errors", title: "a run could not be judged", test: some((cell) => cell.errors > 0), offered: () => true },
  must: { text: "Must pass", title: "the gate fails if one of these fails", test: (each) => each.must, offered: (index) => index.cases.some(({ must }) => must) },
  labelled: { text: "Labelled", title: "you labelled a run of it", test: (each) => each.runs.some(({ row }) => labelOf(row) !== null), offered: hasLabels },
  skipped: { text: "Skipped", title: "no repetition ran", test: some((cell) => cell.verdict === "skipped"), offered: () => false },
};

/** "name: value" of each field of a case's row. */
export function fieldsOf(each) {
  return Object.entries(each.fields).map(([name, value]) => `${name}: ${value}`);
}

const VALUES = { tag: (each) => each.tags, dataset: (each) => (each.dataset === null ? [] : [each.dataset]), field: fieldsOf };

/**
 * The cases that all filters but `show` let through, and for tags, datasets and fields how many cases have each value among those
 * that the other filters let through.
 */
export function narrow(index, list) {
  const filters = activeFilters(list);
  const cases = [];
  const counts = Object.fromEntries(SEVERAL.map((name) => [name, new Map()]));
  for (const each of index.cases) {
    const against = filters.filter(([, passes]) => !passes(each)).map(([name]) => name);
    if (against.length === 0) cases.push(each);
    for (const name of SEVERAL) {
      if (!against.every((other) => other === name)) continue;
      for (const value of VALUES[name](each)) counts[name].set(value, (counts[name].get(value) ?? 0) + 1);
    }
  }
  return { cases, counts };
}

function activeFilters(list) {
  const terms = parseSearch(list.q);
  const filters = [["cols", (each) => list.columns.some(({ key }) => each.cells.has(key))]];
  for (const name of SEVERAL) {
    const chosen = groupChosen(name, list[name]);
    if (chosen.length > 0) filters.push([name, (each) => chosen.every((group) => VALUES[name](each).some((value) => group.has(value)))]);
  }
  if (list.reason !== "") filters.push(["reason", (each) => list.columns.some(({ key }) => each.cells.get(key)?.runs.some(({ row }) => reasonOf(row) === list.reason))]);
  if (terms.length > 0) filters.push(["q", (each) => found(terms, searched(each))]);
  return filters;
}

/** Chosen values of one filter are alternatives; those of several fields are not. */
function groupChosen(name, values) {
  const groups = new Map();
  for (const value of values) {
    const group = name === "field" ? value.split(": ", 1)[0] : "";
    if (!groups.has(group)) groups.set(group, new Set());
    groups.get(group).add(value);
  }
  return [...groups.values()];
}

/** The cases of a list in its order. */
export function casesIn(index, list, narrowed = narrow(index, list).cases) {
  const { test } = SHOWS[list.show];
  const cases = narrowed.filter((each) => test(each, list, index));
  const key = orderKey(index, list);
  if (key === null) return cases;
  const keyed = cases.map((each) => [key(each), each]);
  keyed.sort(([one, left], [other, right]) => other - one || left.at - right.at);
  return keyed.map(([, each]) => each);
}

/** What cases are ordered by, largest first; null for the order of the report. */
function orderKey(index, list) {
  const cells = (each) => list.columns.map(({ key }) => each.cells.get(key)).filter(Boolean);
  const sum = (each, value) => cells(each).reduce((total, cell) => total + (value(cell.shown.row) ?? 0), 0);
  if (list.sort === "cost") return (each) => sum(each, (row) => row.cost_usd.run);
  if (list.sort === "time") return (each) => sum(each, (row) => row.duration_seconds);
  if (list.sort === "spread") return (each) => spread(cells(each).map(shareOf).filter((share) => share !== null));
  if (list.sort.startsWith("score:")) {
    const column = list.sort.slice("score:".length);
    return (each) => -(index.figure?.value(each.cells.get(column)?.shown.row) ?? Infinity);
  }
  return list.sort === "file" ? null : (each) => trouble(cells(each));
}

function spread(shares) {
  return shares.length === 0 ? 0 : Math.max(...shares) - Math.min(...shares);
}

/** How much of a case failed; what could not be judged counts half, what was skipped hardly. */
function trouble(cells) {
  return cells.reduce((sum, cell) => sum + (shareOf(cell) === null ? (cell.verdict === "error" ? 0.5 : 0.001) : 1 - shareOf(cell)), 0) / cells.length;
}
