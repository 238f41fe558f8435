import { el } from "./dom.js";
import { copyButton, textBox, textOf } from "./longtext.js";
import { outcomeName } from "./outcomes.js";
import { answerOf, eventsOf } from "./trace.js";

/** Question and expected answer, as far as the report has them; null for a run with neither. */
export function askedSection(row, run = null) {
  const question = wholeQuestion(row, run);
  if (question === null && row.expected == null) return null;
  return el(
    "section",
    { class: "asked" },
    question === null ? null : el("div", {}, el("h2", {}, "Question"), textBox(question, { label: "Question", prose: true, lines: 12 })),
    row.expected == null ? null : el("div", {}, el("h2", {}, "Expected"), textBox(row.expected, { label: "Expected", prose: true, lines: 12 })),
  );
}

/** The report has the beginning of a long question. The stored run has the message that begins with it, unless an own agent was asked. */
function wholeQuestion({ question }, run) {
  if (question == null || !question.endsWith("…")) return question ?? null;
  const start = question.slice(0, -1);
  const message = eventsOf(run).find((event) => event.role === "user" && textOf(event.content).text.startsWith(start));
  return message?.content ?? question;
}

/** The answer with its verdict and the reason: from the stored run (null without one), else the beginning in the report. */
export function answerSection(row, run, where = null) {
  const answer = answerOf(run) ?? row.answer ?? null;
  const empty = answer === null ? "There is no answer." : "The answer is empty.";
  return el(
    "section",
    { class: `answer-box ${row.outcome}` },
    el("h2", {}, outcomeName(row.outcome), " ", el("span", { class: "faint" }, "Answer"), answer === null ? null : copyButton(textOf(answer).text)),
    textBox(answer, { where, label: "Answer", prose: true, lines: 60, empty }),
    row.message === null ? null : el("pre", { class: "message" }, row.message),
  );
}
