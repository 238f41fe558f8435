import { el, show, visible } from "./dom.js";
import { hasMarkup, markdownNodes } from "./markdown.js";
import { count, plural } from "./text.js";

const LINES = 30;
const PER_LINE = 200;
/** Code, tables and what else stands in columns. */
const LAID_OUT = /^(```|\s*\||\t| {4})/m;

/** A text of a detail, which may be cut, and how many characters it had then: `{text, of}`, `of` null where it is whole. */
export function textOf(value) {
  if (typeof value === "string") return { text: value, of: null };
  if (value == null) return { text: "", of: null };
  if (typeof value.cut === "string") return { text: value.cut, of: value.of };
  return { text: JSON.stringify(value, withCuts, 2), of: null };
}

function withCuts(key, value) {
  if (value === null || typeof value !== "object" || typeof value.of !== "number" || !("cut" in value)) return value;
  return typeof value.cut === "string" ? `${value.cut} … [${count(value.of)} characters]` : `… [${count(value.of)} in all]`;
}

/**
 * A text that others wrote, as it is: the first lines of a long one, all of it on demand.
 * `where` names the file that has what is cut. `prose` is not shown in columns, unless it has some. `markdown` is rendered, and
 * shown as it is on demand. `mark(text)` gives the nodes of a text, with parts of it marked.
 */
export function textBox(value, { where = null, label = null, lines = LINES, empty = "empty", prose = false, markdown = false, mark = (part) => part } = {}) {
  const { text, of } = textOf(value);
  if (text === "") return el("p", { class: "faint" }, empty);
  const start = beginning(text, lines);
  const rest = start.length < text.length ? toggle("more", () => (open = !open)) : null;
  const source = markdown && hasMarkup(text) ? toggle("more source", () => (raw = !raw)) : null;
  let [open, raw] = [false, source === null];
  const node = el("div", { class: "textbox" }, el("div"), rest, source, of === null ? null : cutNote(text.length, of, where));
  draw();
  return node;

  function toggle(style, change) {
    const click = () => {
      change();
      draw();
    };
    return el("button", { type: "button", class: style, on: { click } });
  }

  function draw() {
    const shown = open ? text : start;
    const style = raw ? (prose && !LAID_OUT.test(text) ? "text prose" : "text") : "text prose rendered";
    const clipped = rest !== null && !open ? " clipped" : "";
    node.firstChild.replaceWith(el(raw ? "pre" : "div", { class: style + clipped, tabindex: "0", role: "group", "aria-label": label }, raw ? mark(shown) : markdownNodes(shown, mark)));
    if (rest !== null) show(rest, open ? "Show less" : `Show all ${wholeSize(text)}`);
    if (source !== null) show(source, raw ? "Rendered" : "Raw");
  }
}

export function cutNote(shown, of, where) {
  return el("p", { class: "note" }, `The first ${count(shown)} of ${count(of)} characters`, where ? [". All of them are in ", el("code", {}, where)] : null, ".");
}

/** A button that copies a text; where the browser forbids it, it says so. */
export function copyButton(text, title = "Copy") {
  const button = el("button", { type: "button", class: "quiet copy" }, title);
  button.addEventListener("click", async () => {
    let done = "Copied";
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      done = "Not allowed here";
    }
    show(button, done);
    setTimeout(() => show(button, title), 1500);
  });
  return button;
}

/** The text in one line of at most so many characters. */
export function inLine(value, most = 120) {
  const text = visible(textOf(value).text.slice(0, 4 * most)).replace(/\s+/g, " ").trim();
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

function beginning(text, lines) {
  let end = -1;
  for (let line = 0; line < lines; line += 1) {
    end = text.indexOf("\n", end + 1);
    if (end < 0) break;
  }
  const start = end < 0 ? text : text.slice(0, end);
  return start.slice(0, lines * PER_LINE);
}

function wholeSize(text) {
  let lines = 1;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) lines += 1;
  return lines * PER_LINE < text.length ? plural(text.length, "character") : plural(lines, "line");
}
