import { el, show } from "./dom.js";
import { inLine, textBox } from "./longtext.js";
import { part } from "./parts.js";
import { count, plural, seconds } from "./text.js";
import { turnItem } from "./turns.js";

const AT_ONCE = 150;
const FOLDED = { system: 4, user: 30, assistant: 60 };

/** The events of a stored run that can be shown. */
export function eventsOf(run) {
  return Array.isArray(run?.trace) ? run.trace.filter((event) => event !== null && typeof event === "object") : [];
}

/** The last answer, null where there is none. */
export function answerOf(run) {
  return eventsOf(run).findLast((event) => event.type === "final_output")?.content ?? null;
}

/** What happened: messages, tool calls with their results, what the runner did, the answer. Turns have headings with their `checks`. */
export function traceSection(run, places, checks = []) {
  if (run === null) return null;
  const events = eventsOf(run);
  if (events.length === 0) return part("trace", "Conversation", el("p", { class: "faint" }, "Nothing was recorded."));
  const entries = pairCalls(events);
  const answer = entries.findLast(({ event }) => event.type === "final_output");
  if (answer !== undefined) answer.isAbove = true;
  const list = el("ol", { class: "events" });
  const more = el("p", {});
  const runner = el("input", { type: "checkbox", on: { change: () => list.classList.toggle("with-runner", runner.checked) } });
  let drawn = 0;
  let turn = null;
  draw(AT_ONCE);
  const folds = el("button", { type: "button", class: "quiet", on: { click: () => unfold(list, folds) } }, "Open all");
  const calls = entries.filter((entry) => entry.event.type === "tool_call").length;
  const told = `${plural(events.length, "event")}, ${plural(calls, "tool call")}`;
  return part(
    "trace",
    "Conversation",
    el("p", { class: "bar" }, el("span", { class: "faint" }, told), el("label", {}, runner, " what the runner did"), folds),
    list,
    more,
  );

  function draw(n) {
    for (const entry of entries.slice(drawn, drawn + n)) {
      if (Number.isInteger(entry.event.turn) && entry.event.turn !== turn) list.append(turnItem((turn = entry.event.turn), checks));
      list.append(eventItem(entry, places));
    }
    drawn = Math.min(entries.length, drawn + n);
    list.classList.toggle("many", drawn > 2 * AT_ONCE);
    const left = entries.length - drawn;
    show(more, left === 0 ? null : [button(`Show ${Math.min(left, AT_ONCE)} more`, AT_ONCE), " ", left > AT_ONCE ? button(`Show all ${count(entries.length)}`, left) : null]);
  }

  function button(title, n) {
    return el("button", { type: "button", class: "more", on: { click: () => draw(n) } }, title);
  }
}

/** Events, each tool call with its result: `{event, result}`; `isAbove` marks the answer that the view of a run shows first. A result without a call stands alone. */
export function pairCalls(events) {
  const calls = new Map();
  const entries = [];
  for (const event of events) {
    const waiting = event.type === "tool_result" ? calls.get(event.call_id)?.shift() : undefined;
    if (waiting !== undefined) {
      waiting.result = event;
      continue;
    }
    const entry = { event, result: null };
    entries.push(entry);
    if (event.type !== "tool_call") continue;
    if (!calls.has(event.call_id)) calls.set(event.call_id, []);
    calls.get(event.call_id).push(entry);
  }
  return entries;
}

/** One entry of a trace as an item of a list. */
export function eventItem(entry, places) {
  const { event } = entry;
  const body = typeof event.cut === "number" ? gap(event) : isReasoning(event) ? reasoningItem(entry, places) : (ITEMS[event.type] ?? unknownEvent)(entry, places);
  const kind = isReasoning(event) ? "message" : EVENT_CLASSES[event.type];
  return el("li", { class: `event ${kind ?? "other"}`, id: event.sequence === undefined ? null : `event-${event.sequence}` }, body);
}

const EVENT_CLASSES = { message: "message", tool_call: "tool", tool_result: "tool", runner: "runner", final_output: "answer" };
const ITEMS = { message: messageItem, tool_call: callItem, tool_result: loneResult, runner: runnerItem, final_output: finalItem };

function isReasoning(event) {
  return event.type === "runner" && event.name === "reasoning" && event.data?.text !== undefined;
}

/** What the model told of its reasoning before a reply, folded: people rarely need it, and it is long. */
function reasoningItem({ event }, places) {
  const tokens = event.data.tokens == null ? null : el("span", { class: "faint" }, ` ${count(event.data.tokens)} tokens`);
  return el("details", {}, el("summary", {}, eventHead(event, el("span", { class: "faint" }, "reasoning"), tokens)), textBox(event.data.text, { where: places.run, label: "Reasoning", lines: 30, prose: true }));
}

function messageItem({ event }, places) {
  const role = String(event.role ?? "message");
  const name = event.name == null ? null : el("span", { class: "faint" }, ` ${event.name}`);
  return [
    eventHead(event, el("strong", { class: `role ${Object.hasOwn(FOLDED, role) ? role : "other"}` }, role), name),
    textBox(event.content, { where: places.run, label: `Message of ${role}`, lines: FOLDED[role] ?? 30, prose: true, markdown: role === "assistant" }),
  ];
}

function callItem({ event, result }, places) {
  const flags = [
    event.arguments === null ? el("span", { class: "flag" }, "arguments are no JSON object") : null,
    event.offered === false ? el("span", { class: "flag" }, "no such tool") : null,
    event.schema_valid === false ? el("span", { class: "flag" }, "arguments break the schema") : null,
    result?.is_error ? el("span", { class: "flag" }, result.broken ? "the tool itself broke" : "failed") : null,
    result === null ? el("span", { class: "flag" }, "no result") : null,
  ];
  const told = el("span", { class: "faint preview" }, ` ${inLine(event.arguments ?? event.raw, 110)}`);
  const time = result?.duration_seconds == null ? null : el("span", { class: "faint" }, ` ${seconds(result.duration_seconds)}`);
  return el(
    "details",
    { class: "call", open: Boolean(result?.is_error) },
    el("summary", {}, eventHead(event, el("strong", {}, event.name), told, time, flags)),
    el("h3", { class: "minor" }, "Arguments"),
    event.arguments === null ? textBox(event.raw, { where: places.run, label: "Arguments as they came" }) : argumentsBox(event.arguments, places),
    el("h3", { class: "minor" }, result?.is_error ? "Error" : "Result"),
    result === null ? el("p", { class: "faint" }, "The run ended before the tool answered.") : textBox(result.content, { where: places.run, label: "Result" }),
  );
}

/** Arguments by name, so that a script or a file's text reads as lines and not as one JSON string. */
function argumentsBox(values, places) {
  if (values === null || typeof values !== "object" || Array.isArray(values) || "cut" in values) return textBox(values, { where: places.run, label: "Arguments" });
  const pairs = Object.entries(values);
  if (pairs.length === 0) return el("p", { class: "faint" }, "none");
  return el("dl", { class: "arguments" }, pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, textBox(value, { where: places.run, label: name, lines: 20, empty: value === null ? "null" : "empty" })))));
}

function loneResult({ event }, places) {
  return [eventHead(event, el("strong", {}, event.name), el("span", { class: "flag" }, "a result without a call")), textBox(event.content, { where: places.run, label: "Result" })];
}

function runnerItem({ event }) {
  const said = event.data === undefined || Object.keys(event.data ?? {}).length === 0 ? null : el("span", { class: "preview" }, ` ${inLine(event.data, 160)}`);
  return eventHead(event, el("span", {}, event.name), said);
}

function finalItem({ event, isAbove }, places) {
  const head = eventHead(event, el("strong", { class: "role final" }, "answer"), isAbove ? el("span", { class: "faint" }, " as above") : null);
  return isAbove ? head : [head, textBox(event.content, { where: places.run, label: "Answer", lines: 8, prose: true, markdown: true, empty: "The answer is empty." })];
}

function unknownEvent({ event }, places) {
  return [eventHead(event, el("strong", {}, String(event.type ?? "event"))), textBox(event, { where: places.run })];
}

function gap(event) {
  return el("p", { class: "note" }, `${count(event.of - event.cut)} of ${count(event.of)} events are left out here; the stored run has them.`);
}

function eventHead(event, ...children) {
  return el("span", { class: "event-head" }, el("span", { class: "at", title: "seconds since the run began" }, seconds(event.at)), " ", children);
}

function unfold(list, button) {
  const open = button.textContent === "Open all";
  for (const each of list.querySelectorAll("details")) each.open = open;
  show(button, open ? "Close all" : "Open all");
}
