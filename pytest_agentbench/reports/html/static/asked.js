import { baselineOf } from "./baseline.js";
import { el } from "./dom.js";
import { verdictSign } from "./icons.js";
import { labelBox } from "./labels.js";
import { copyButton, textBox, textOf } from "./longtext.js";
import { expectedMarked } from "./marks.js";
import { repetitionTabs, tagLinks } from "./runhead.js";
import { revealEvent } from "./timing.js";
import { answerOf, eventsOf, pairCalls } from "./trace.js";

const LONG = 1_200;

/** What was asked and what was expected, first on a run's page. `run` is the stored run, null without one. */
export function askedSection(each, row, run = null) {
  const question = wholeQuestion(row.question ?? each.question, run);
  const heading = textOf(question).text.length > LONG ? null : question;
  return el(
    "section",
    { class: "asked" },
    el(
      "div",
      {},
      el("h2", {}, question === null ? "Case" : "Question"),
      el("h1", { class: heading === null ? "unseen" : "question" }, heading ?? each.title ?? each.id),
      question === null || heading !== null ? null : textBox(question, { label: "Question", prose: true, lines: 12 }),
      el("p", { class: "meta" }, el("span", { class: "id", title: each.key }, each.id), each.must ? el("span", { class: "must" }, "must pass") : null, tagLinks(each.tags)),
    ),
    each.expected === null ? null : el("div", {}, el("h2", {}, "Expected"), textBox(each.expected, { label: "Expected", prose: true, lines: 12 })),
  );
}

/** The report has the beginning of a long question. The stored run has the message that begins with it, unless an own agent was asked. */
function wholeQuestion(question, run) {
  if (question == null || !question.endsWith("…")) return question ?? null;
  const start = question.slice(0, -1);
  const message = eventsOf(run).find((event) => event.role === "user" && textOf(event.content).text.startsWith(start));
  return message?.content ?? question;
}

/** The answer with its verdict and the reason: from the stored run (null without one), else the beginning in the report. */
export function answerSection(app, place, run, where = null) {
  const { row } = place.run;
  const answer = answerOf(run) ?? row.answer ?? null;
  const empty = answer === null ? "There is no answer." : "The answer is empty.";
  return el(
    "section",
    { class: `answer-box ${row.outcome}` },
    el("h2", {}, verdictSign(row.outcome, row.outcome), el("span", { class: "faint" }, "Answer"), repetitionTabs(app, place), answer === null ? null : copyButton(textOf(answer).text)),
    textBox(answer, { where, label: "Answer", prose: true, markdown: true, lines: 60, empty, mark: (text) => expectedMarked(text, place.each.expected) }),
    row.message === null ? null : el("pre", { class: "message" }, row.message),
    row.outcome === "failed" ? failedStep(run) : null,
    baselineAnswer(app, place),
    answer === null ? null : labelBox(row, run),
  );
}

/** The answer of the compared report, folded; null if it is not known. */
function baselineAnswer({ index }, { each, cell }) {
  const before = baselineOf(index, each, cell.column);
  if (before === null || before.answer === null) return null;
  return el("details", { class: "before" }, el("summary", {}, "Baseline ", verdictSign(before.verdict, before.text)), textBox(before.answer, { label: "Answer in the baseline", prose: true, markdown: true }));
}

function failed({ type, is_error, content }) {
  return type === "tool_result" && (is_error === true || FAILURE.test(textOf(content).text));
}

const FAILURE = /^\s*["'{[]*(error|timeout|timed out|traceback)\b/i;

/** A tool that failed before the answer is a hint, not the cause; null if none did. */
function failedStep(run) {
  const entry = pairCalls(eventsOf(run)).findLast(({ event, result }) => failed(result ?? event));
  if (entry === undefined) return null;
  const show = el("button", { type: "button", class: "link", on: { click: () => revealEvent(entry.event) } }, "Show the step");
  return el("p", { class: "note" }, el("code", {}, entry.event.name), " failed before this answer. ", show);
}
