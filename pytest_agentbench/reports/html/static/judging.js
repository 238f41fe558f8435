import { el } from "./dom.js";
import { textBox, textOf } from "./longtext.js";
import { scrolled } from "./tables.js";
import { plural, score, seconds, usd } from "./text.js";

/** What the judges said: the scores that count, what each iteration gave, and the evidence it named. */
export function judgeParts(judge, places) {
  if (judge === null || typeof judge !== "object") return null;
  const iterations = (Array.isArray(judge.iterations) ? judge.iterations : []).filter((each) => each !== null && typeof each === "object");
  const wanted = judge.pass_threshold == null ? null : ` of at least ${score(10 * judge.pass_threshold)}`;
  return [
    el("h3", {}, "Judge ", el("span", { class: `outcome ${judge.passed ? "passed" : "failed"}` }, score(judge.overall)), el("span", { class: "faint" }, `${wanted ?? ""}, ${methodOf(judge)}`)),
    listOfTexts("Hard expectations that are not met", judge.unmet_hard),
    textOf(judge.summary).text === "" ? null : textBox(judge.summary, { where: places.evaluation, lines: 12, prose: true }),
    scoresTable(judge, iterations),
    iterations.map((each, at) => iterationItem(each, at, iterations.length, places)),
  ];
}

function methodOf(judge) {
  const told = [`${judge.method ?? "?"} over ${plural(judge.sampled ?? 0, "verdict")}`];
  if (judge.expectations != null) told.push(`expectations ${score(judge.expectations)} of 1`);
  if (judge.cv_percent != null) told.push(`CV ${score(judge.cv_percent)} %`);
  return told.join(", ");
}

function listOfTexts(title, texts) {
  if (!Array.isArray(texts) || texts.length === 0) return null;
  return el("div", { class: "verdict failed" }, el("p", {}, `${title}:`), el("ul", {}, texts.map((text) => el("li", {}, textOf(text).text))));
}

/** One row a dimension: what counts, its spread, and what each iteration gave. */
function scoresTable(judge, iterations) {
  const verdicts = iterations.filter((each) => each.verdict != null).slice(0, 12);
  const names = [...new Set([...Object.keys(judge.dimensions ?? {}), ...verdicts.flatMap((each) => Object.keys(each.verdict.dimensions ?? {}))])];
  if (names.length === 0) return null;
  const failed = new Set(judge.failed_dimensions ?? []);
  const columns = verdicts.length > 1 ? verdicts : [];
  const rows = [...names, "overall"].map((name) => {
    const value = name === "overall" ? judge.overall : judge.dimensions?.[name];
    const given = columns.map((each) => (name === "overall" ? each.verdict.overall : each.verdict.dimensions?.[name])?.score);
    return el(
      "tr",
      { class: name === "overall" ? "sum" : null },
      el("th", { scope: "row" }, name.replaceAll("_", " ")),
      el("td", { class: `number${failed.has(name) ? " outcome failed" : ""}` }, score(value)),
      el("td", {}, scoreBar(value)),
      columns.length === 0 ? null : el("td", { class: "number faint" }, judge.spread?.[name] == null ? "" : `± ${score(judge.spread[name])}`),
      given.map((each) => el("td", { class: "number faint" }, score(each))),
    );
  });
  const titles = ["Dimension", "Score", "", ...(columns.length === 0 ? [] : ["Spread"]), ...columns.map((_, at) => `Vote ${at + 1}`)];
  const head = titles.map((title, at) => (title === "" ? el("td") : el("th", { scope: "col", class: at === 1 || at > 2 ? "number" : null }, title)));
  return scrolled("Judge's scores", el("table", { class: "judged" }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows)));
}

/** 0-10 as a bar; the number beside it says the same. */
function scoreBar(value) {
  const bar = el("span", { class: "score-bar", "aria-hidden": "true" }, el("span", {}));
  bar.firstChild.style.width = `${10 * Math.max(0, Math.min(10, value ?? 0))}%`;
  return bar;
}

function iterationItem(iteration, at, of, places) {
  const { verdict = null } = iteration;
  const took = [iteration.status === "success" ? null : iteration.status, seconds(iteration.duration_seconds), iteration.usage?.cost_usd == null ? null : usd(iteration.usage.cost_usd), iteration.attempts > 1 ? `${iteration.attempts} attempts` : null];
  const head = [el("strong", {}, of > 1 ? `Vote ${at + 1}: ` : "Evidence: ", `${iteration.model ?? iteration.judge_id}`), " ", verdict?.overall?.score == null ? null : score(verdict.overall.score), " ", el("span", { class: "faint" }, took.filter(Boolean).join(", "))];
  const body = [
    iteration.error == null ? null : el("div", { class: "outcome error" }, textBox(iteration.error, { where: places.evaluation })),
    verdict === null || of === 1 ? null : textBox(verdict.summary, { where: places.evaluation, lines: 12, prose: true }),
    verdict === null ? null : evidenceList(verdict),
    verdict === null ? null : expectationsList(verdict.expectations),
  ];
  return el("details", { class: "iteration", open: of === 1 }, el("summary", {}, head), body);
}

function evidenceList(verdict) {
  const given = [...Object.entries(verdict.dimensions ?? {}), ["overall", verdict.overall]].filter(([, scored]) => Array.isArray(scored?.evidence) && scored.evidence.length > 0);
  if (given.length === 0) return el("p", { class: "faint" }, "It named no evidence.");
  return el(
    "dl",
    { class: "evidence" },
    given.map(([name, scored]) =>
      el("div", {}, el("dt", {}, `${name.replaceAll("_", " ")} `, el("strong", {}, score(scored.score))), el("dd", {}, el("ul", {}, scored.evidence.map((text) => el("li", {}, textOf(text).text))))),
    ),
  );
}

function expectationsList(expectations) {
  if (!Array.isArray(expectations) || expectations.length === 0) return null;
  const items = expectations.map((each) =>
    el("li", {}, el("span", { class: `outcome ${each.met >= 1 ? "passed" : each.met > 0 ? "error" : "failed"}` }, `${score(each.met)} `), `${each.kind} expectation ${Number(each.index) + 1}`, textOf(each.evidence).text === "" ? null : el("span", { class: "faint" }, `: ${textOf(each.evidence).text}`)),
  );
  return [el("h4", {}, "Expectations, met from 0 to 1"), el("ul", { class: "expectations" }, items)];
}
