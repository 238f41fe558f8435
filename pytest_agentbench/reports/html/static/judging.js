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

/** One row a criterion, the rubric's own first: the score that counts, its spread, and the evidence of the vote that is nearest to it. */
function scoresTable(judge, iterations) {
  const verdicts = iterations.map(({ verdict }) => verdict).filter((verdict) => verdict != null);
  const names = [...new Set([...Object.keys(judge.dimensions ?? {}), ...verdicts.flatMap((verdict) => Object.keys(verdict.dimensions ?? {}))])];
  const criteria = Object.entries(judge.criteria ?? {});
  if (names.length === 0 && criteria.length === 0) return null;
  const failed = new Set(judge.failed_dimensions ?? []);
  const spread = verdicts.length > 1;
  const own = criteria.map(([name, scored]) => scoreRow(textOf(name).text, scored?.score, scored));
  const rows = [...names, "overall"].map((name) => {
    const value = name === "overall" ? judge.overall : judge.dimensions?.[name];
    const around = spread && judge.spread?.[name] != null ? el("span", { class: "faint" }, ` ± ${score(judge.spread[name])}`) : null;
    return scoreRow(name.replaceAll("_", " "), value, nearest(verdicts, name, value), { sum: name === "overall", failed: failed.has(name), around });
  });
  const head = ["Criterion", "Score", "", "Evidence"].map((title, at) => (title === "" ? el("td") : el("th", { scope: "col", class: at === 1 ? "number" : null }, title)));
  return scrolled("Judge's scores", el("table", { class: "judged" }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, own, rows)));
}

function scoreRow(title, value, scored, { sum = false, failed = false, around = null } = {}) {
  return el(
    "tr",
    { class: sum ? "sum" : null },
    el("th", { scope: "row" }, title),
    el("td", { class: `number${failed ? " outcome failed" : ""}` }, score(value), around),
    el("td", {}, scoreBar(value)),
    el("td", {}, evidenceOf(scored)),
  );
}

function scoredIn(verdict, name) {
  return name === "overall" ? verdict.overall : verdict.dimensions?.[name];
}

/** What the vote nearest to a criterion's score said of it, null if none said anything. */
function nearest(verdicts, name, value) {
  const scored = verdicts.map((verdict) => scoredIn(verdict, name)).filter((each) => evidenceTexts(each).length > 0);
  return scored.sort((one, other) => Math.abs(one.score - value) - Math.abs(other.score - value))[0] ?? null;
}

function evidenceTexts(scored) {
  return Array.isArray(scored?.evidence) ? scored.evidence.map((text) => textOf(text).text).filter((text) => text !== "") : [];
}

function evidenceOf(scored) {
  const texts = evidenceTexts(scored);
  if (texts.length < 2) return texts;
  return el("ul", {}, texts.map((text) => el("li", {}, text)));
}

/** 0-10 as a bar; the number beside it says the same. */
function scoreBar(value) {
  const bar = el("span", { class: "score-bar", "aria-hidden": "true" }, el("span", {}));
  bar.firstChild.style.width = `${10 * Math.max(0, Math.min(10, value ?? 0))}%`;
  return bar;
}

/** A vote of several with its scores and evidence; of a single one only what the table does not have. */
function iterationItem(iteration, at, of, places) {
  const { verdict = null } = iteration;
  const took = [iteration.status === "success" ? null : iteration.status, seconds(iteration.duration_seconds), iteration.usage?.cost_usd == null ? null : usd(iteration.usage.cost_usd), iteration.attempts > 1 ? `${iteration.attempts} attempts` : null];
  const head = [el("strong", {}, of > 1 ? `Vote ${at + 1}: ` : "Vote: ", `${iteration.model ?? iteration.judge_id}`), " ", verdict?.overall?.score == null ? null : score(verdict.overall.score), " ", el("span", { class: "faint" }, took.filter(Boolean).join(", "))];
  const body = [
    iteration.error == null ? null : el("div", { class: "outcome error" }, textBox(iteration.error, { where: places.evaluation })),
    verdict === null || of === 1 ? null : [textBox(verdict.summary, { where: places.evaluation, lines: 12, prose: true }), evidenceList(verdict)],
    verdict === null ? null : expectationsList(verdict.expectations),
  ].filter(Boolean);
  return body.length === 0 ? el("p", { class: "note" }, head) : el("details", { class: "iteration", open: of === 1 }, el("summary", {}, head), body);
}

function evidenceList(verdict) {
  const names = [...Object.keys(verdict.dimensions ?? {}), "overall"].filter((name) => scoredIn(verdict, name) != null);
  const entries = [...Object.entries(verdict.criteria ?? {}).map(([name, scored]) => [textOf(name).text, scored]), ...names.map((name) => [name.replaceAll("_", " "), scoredIn(verdict, name)])];
  return el("dl", { class: "evidence" }, entries.map(([title, scored]) => el("div", {}, el("dt", {}, `${title} `, el("strong", {}, score(scored?.score))), el("dd", {}, evidenceOf(scored)))));
}

function expectationsList(expectations) {
  if (!Array.isArray(expectations) || expectations.length === 0) return null;
  const items = expectations.map((each) =>
    el("li", {}, el("span", { class: `outcome ${each.met >= 1 ? "passed" : each.met > 0 ? "error" : "failed"}` }, `${score(each.met)} `), `${each.kind} expectation ${Number(each.index) + 1}${Number.isInteger(each.turn) ? `, turn ${each.turn}` : ""}`, textOf(each.evidence).text === "" ? null : el("span", { class: "faint" }, `: ${textOf(each.evidence).text}`)),
  );
  return [el("h4", {}, "Expectations, met from 0 to 1"), el("ul", { class: "expectations" }, items)];
}
