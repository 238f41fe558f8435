import { el, show } from "./dom.js";
import { part } from "./parts.js";
import { scrolled } from "./tables.js";
import { count, plural, seconds } from "./text.js";
import { eventsOf, pairCalls } from "./trace.js";

const MOST_BARS = 100;

/** When which model call and which tool call ran. */
export function timingSection(run) {
  if (run === null) return null;
  const spans = spansOf(eventsOf(run));
  if (spans.length === 0) return null;
  const end = Math.max(run.duration_seconds ?? 0, ...spans.map((span) => span.end ?? span.start));
  const body = el("tbody");
  const more = el("p", {});
  draw(MOST_BARS);
  const head = ["What", "Began", "Took"].map((title, at) => el("th", { scope: "col", class: at > 0 ? "number" : null }, title));
  const scale = el("th", { scope: "col", class: "lane" }, el("span", { class: "scale" }, [0, 0.25, 0.5, 0.75, 1].map((share) => el("span", {}, seconds(share * end)))));
  return part(
    "timing",
    "Timing",
    el("p", { class: "faint" }, summed(spans, run.duration_seconds)),
    scrolled("When each call ran", el("table", { class: "waterfall" }, el("thead", {}, el("tr", {}, head, scale)), body)),
    more,
  );

  function draw(n) {
    show(body, spans.slice(0, n).map((span) => spanRow(span, end)));
    show(more, spans.length <= n ? null : el("button", { type: "button", class: "more", on: { click: () => draw(spans.length) } }, `Show all ${count(spans.length)}`));
  }
}

/**
 * Model calls and tool calls: `{kind, name, start, end, own, failed, notes, event}` in seconds, `end` null where none was seen,
 * `own` the time that the tool itself took.
 */
function spansOf(events) {
  const spans = [];
  const requests = new Map();
  for (const { event, result } of pairCalls(events)) {
    const number = event.data?.number;
    if (event.type === "runner" && event.name === "request") {
      const span = { kind: "model", name: `model call ${number ?? ""}`, start: event.at, end: null, own: null, failed: false, notes: [], event };
      requests.set(number, span);
      spans.push(span);
    } else if (event.type === "runner" && event.name === "retry" && requests.has(number)) {
      requests.get(number).notes.push(`retried: ${event.data.reason}`);
    } else if (event.type === "runner" && event.name === "reply" && requests.has(number)) {
      requests.get(number).end = event.at;
    } else if (event.type === "tool_call") {
      const own = result?.duration_seconds ?? null;
      spans.push({ kind: "tool", name: event.name, start: event.at, end: result?.at ?? null, own, failed: result?.is_error === true, notes: [], event });
    }
  }
  return spans.filter((span) => Number.isFinite(span.start));
}

function summed(spans, total) {
  const told = ["model", "tool"].map((kind) => {
    const mine = spans.filter((span) => span.kind === kind && span.end !== null);
    return mine.length === 0 ? null : `${seconds(covered(mine))} in ${plural(mine.length, `${kind} call`)}`;
  });
  const all = spans.filter((span) => span.end !== null);
  const rest = total == null ? null : `${seconds(Math.max(0, total - covered(all)))} beside them`;
  return [total == null ? null : `${seconds(total)} in all`, ...told, rest].filter(Boolean).join(", ");
}

/** Seconds that are in any of the spans: calls at the same time count once. */
function covered(spans) {
  let [sum, until] = [0, 0];
  for (const { start, end } of [...spans].sort((one, other) => one.start - other.start)) {
    sum += Math.max(0, end - Math.max(until, start));
    until = Math.max(until, end);
  }
  return sum;
}

/** The tool's own time, where the call took notably longer: it waited for its sandbox, or for its turn. */
function waited({ start, end, own }) {
  return own === null || end === null || end - start - own < Math.max(0.005, 0.1 * own) ? null : el("small", {}, `tool ${seconds(own)}`);
}

function spanRow(span, end) {
  const bar = el("span", { class: `bar-of ${span.kind}${span.end === null ? " open" : ""}` });
  bar.style.marginInlineStart = `${(100 * span.start) / (end || 1)}%`;
  bar.style.width = `max(2px, ${(100 * ((span.end ?? end) - span.start)) / (end || 1)}%)`;
  const name = el("button", { type: "button", class: "link", on: { click: () => revealEvent(span.event) } }, span.name);
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, name, span.failed ? [" ", el("span", { class: "flag" }, "failed")] : null, span.notes.map((note) => [" ", el("span", { class: "flag plain" }, note)])),
    el("td", { class: "number" }, seconds(span.start)),
    el("td", { class: "number" }, span.end === null ? "no end seen" : seconds(span.end - span.start), waited(span)),
    el("td", { class: "lane" }, bar),
  );
}

/** Shows the event in the trace; what the runner did is switched on for it. */
export function revealEvent(event) {
  const find = () => document.getElementById(`event-${event.sequence}`);
  while (find() === null) {
    const more = document.querySelector(".part.trace > p > .more");
    if (more === null) return;
    more.click();
  }
  const found = find();
  const runner = document.querySelector(".part.trace .bar input");
  if (found.classList.contains("runner") && !runner.checked) runner.click();
  const fold = found.querySelector("details");
  if (fold) fold.open = true;
  found.setAttribute("tabindex", "-1");
  found.focus();
  found.scrollIntoView({ block: "center" });
}
