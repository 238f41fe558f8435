import { href } from "./address.js";
import { el } from "./dom.js";
import { runHref } from "./listing.js";
import { scrolled } from "./tables.js";
import { DASH, clip, compact, count, percent, plural, score, seconds, sign, usd } from "./text.js";

const VERDICTS = { worse: "worse", better: "better", no_difference_seen: "no difference seen", not_enough_runs: "not enough runs to tell", nothing_compared: "nothing to compare" };
const TONES = { worse: "failed", better: "passed" };
/** Figures that every run has, as `[title, how it is written]`. */
const FIGURES = {
  pass_rate: ["Pass rate", percent], score: ["Mean score", score], "cost_usd.run": ["Cost of a run", usd], "cost_usd.judge": ["Cost of judging", usd],
  "tokens.total": ["Tokens of a run", compact], duration_seconds: ["Time of a run", seconds],
};
const MOST = 200;

/** This report against an earlier one: what each model lost and gained, and how sure that is. */
export function comparisonView(app) {
  const found = app.data.comparison;
  const node = el("div", { class: "comparison" });
  if (found === null) {
    node.append(el("h1", {}, "Comparison"), el("p", {}, "This report was not compared with another: see --agentbench-compare and agentbench compare."));
    return { title: "Comparison", node };
  }
  node.append(
    el("h1", {}, "Comparison"),
    el("p", { class: "note" }, `${side(found.current)} compared with ${side(found.baseline)}`),
    failuresBox(found.failures),
    ...found.models.map((model) => section(app, model)),
    rest(found),
  );
  return { title: "Comparison", node };
}

function failuresBox(failures) {
  if (failures.length === 0) return "";
  return el("div", { class: "verdict failed" }, el("p", {}, el("strong", {}, `${sign("failed")} The comparison fails`)), el("ul", {}, failures.map((text) => el("li", {}, text))));
}

function side(told) {
  const name = told.report ?? "this session";
  return told.model === null ? name : `${name}#${told.model}`;
}

function section(app, model) {
  const subject = subjectOf(app, model);
  const figures = Object.entries({ pass_rate: model.pass_rate, score: model.score, ...model.others }).filter(([, figure]) => figure.cases > 0);
  const main = figures.filter(([name]) => Object.hasOwn(FIGURES, name));
  return el(
    "section",
    { "aria-label": subject },
    el("h2", {}, subject, " ", pill(model)),
    el("p", {}, model.summary),
    changes(app, "Regressions", "failed", model.regressions),
    changes(app, "Gains", "passed", model.gains),
    changes(app, "Not more than chance", null, model.by_chance ?? []),
    main.length === 0 ? null : scrolled(`Figures of ${subject}`, table(main)),
    scores(subject, figures.filter(([name]) => !Object.hasOwn(FIGURES, name))),
    leftOut(model.cases),
  );
}

function pill(model) {
  return el("span", { class: `pill ${TONES[model.verdict] ?? "skipped"}` }, VERDICTS[model.verdict] ?? model.verdict);
}

/** Metrics and judges' dimensions on demand: those that differ as a table, the others by name. */
function scores(subject, figures) {
  if (figures.length === 0) return null;
  const differ = ([, figure]) => score(figure.baseline) !== score(figure.current);
  const [changed, same] = [figures.filter(differ), figures.filter((each) => !differ(each))];
  return el(
    "details",
    {},
    el("summary", {}, `Metrics and judges: ${count(changed.length)} of ${count(figures.length)} differ`),
    changed.length === 0 ? null : scrolled(`Metrics and judges of ${subject}`, table(changed)),
    same.length === 0 ? null : el("p", { class: "note" }, `The same on both sides: ${same.map(([name]) => titleOf(name)).join(", ")}.`),
  );
}

/** "Pass rate", "race (metric)", "task (judge)". */
function titleOf(name) {
  if (Object.hasOwn(FIGURES, name)) return FIGURES[name][0];
  if (name.startsWith("cost_usd.")) return `Cost of ${name.slice("cost_usd.".length)}`;
  const [, kind, rest] = /^(metric|judge)\.(.*)$/s.exec(name) ?? [null, null, name];
  return kind === null ? rest.replaceAll("_", " ") : `${rest} (${kind})`;
}

function subjectOf(app, model) {
  const name = (id) => app.index.labels.get(id) ?? id;
  return model.baseline_model_id === model.model_id ? name(model.model_id) : `${name(model.model_id)} against ${name(model.baseline_model_id)}`;
}

function table(figures) {
  const titles = ["Figure", "Cases", "Baseline", "Current", "Difference", "95 % interval", "p"];
  return el(
    "table",
    { class: "differences" },
    el("thead", {}, el("tr", {}, titles.map((title) => el("th", { scope: "col" }, title)))),
    el("tbody", {}, figures.map(([name, figure]) => {
      const how = FIGURES[name]?.[1] ?? (name.startsWith("cost_usd.") ? usd : score);
      return el(
        "tr",
        {},
        el("th", { scope: "row" }, titleOf(name)),
        el("td", {}, count(figure.cases)),
        el("td", {}, how(figure.baseline)),
        el("td", {}, how(figure.current)),
        el("td", {}, signed(name, figure.difference, how), name === "pass_rate" && figure.difference !== null ? " points" : null),
        el("td", {}, figure.ci95 === null ? DASH : figure.ci95.map((end) => signed(name, end, how)).join(" to ")),
        el("td", { title: figure.test }, probability(figure.p_adjusted ?? figure.p_value)),
      );
    })),
  );
}

/** A difference in its unit, of rates in percentage points. */
function signed(name, value, how) {
  if (value === null) return DASH;
  const mark = value > 0 ? "+" : value < 0 ? "−" : "";
  return mark + (name === "pass_rate" ? (100 * Math.abs(value)).toFixed(1) : how(Math.abs(value)));
}

function probability(value) {
  if (value === null) return DASH;
  return value < 0.0001 ? "< 0.0001" : String(Number(value.toPrecision(2)));
}

function changes(app, title, tone, found) {
  if (found.length === 0) return null;
  return el(
    "details",
    { open: tone !== null && found.length <= 20 },
    el("summary", {}, el("strong", {}, `${title}: ${count(found.length)}`)),
    el("ul", { class: "changes" }, found.slice(0, MOST).map((change) => item(app, change, tone))),
    found.length > MOST ? el("p", { class: "note" }, `The first ${MOST} of ${count(found.length)}; report.json has all.`) : null,
  );
}

function item(app, change, tone) {
  const run = app.index.byNodeid.get(change.nodeid) ?? app.index.byCase.get(change.case)?.[0];
  const sides = [change.baseline, change.current].map((each) => `${each.passed}/${each.judged}`).join(" → ");
  return el(
    "li",
    {},
    run === undefined ? change.case_id : el("a", { href: runHref(app.index, run), title: change.case }, change.case_id),
    el("span", { class: `outcome ${tone ?? (change.difference < 0 ? "failed" : "passed")}` }, ` ${sides}`),
    change.must_pass ? el("span", { class: "mark" }, " must pass") : null,
    change.p_value === null ? null : el("span", { class: "faint" }, ` p ${change.p_value < 0.0001 ? "" : "= "}${probability(change.p_value)}`),
    change.message ? el("span", { class: "faint" }, ` · ${clip(change.message, 200)}`) : null,
  );
}

function leftOut(cases) {
  const titles = { only_baseline: "only in the baseline", only_current: "not in the baseline", unjudged: "without a verdict on one side" };
  return Object.entries(titles).filter(([name]) => cases[name].length > 0).map(([name, title]) =>
    el("details", {}, el("summary", {}, `${plural(cases[name].length, "case")} ${title}`), el("ul", {}, cases[name].slice(0, MOST).map((key) => el("li", {}, key)))),
  );
}

function rest(found) {
  const lines = [
    ...["baseline", "current"].filter((name) => found[`only_${name}`].length > 0).map((name) => `Only in the ${name}: ${found[`only_${name}`].join(", ")}`),
    ...found.notes,
  ];
  return el("ul", { class: "notes" }, lines.map((text) => el("li", {}, text)));
}
