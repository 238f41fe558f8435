import { el, show } from "./dom.js";
import { cutNote, textOf } from "./longtext.js";
import { part } from "./parts.js";
import { count, plural } from "./text.js";

const OPEN = 8;
const MOST_LINES = 200;
const NOTE = "agentbench.workspace";

/** What the run did to its folder. */
export function changesSection(run, places) {
  if (run === null) return null;
  const note = run.metadata?.[NOTE] ?? {};
  const told = [
    note.not_compared ? `Not compared: ${note.not_compared}` : null,
    note.more_changes ? `${count(note.more_changes)} more changes are not listed.` : null,
    note.not_kept ? `The folder was not kept: ${note.not_kept}` : null,
  ].filter(Boolean);
  const changes = (Array.isArray(run.changes) ? run.changes : []).filter((each) => each?.path !== undefined);
  if (changes.length === 0 && told.length === 0) return null;
  return part(
    "workspace",
    `Workspace (${plural(changes.length, "change")})`,
    changes.map((change, at) => changeItem(change, at < OPEN, places)),
    told.map((text) => el("p", { class: "note" }, text)),
  );
}

function changeItem(change, open, places) {
  const sentence = el("summary", {}, el("span", { class: `change ${CHANGES.has(change.change) ? change.change : ""}` }, change.change), " ", el("code", {}, pathOf(change)), " ", el("span", { class: "faint" }, factsOf(change)));
  if (change.diff == null) return el("details", {}, sentence, el("p", { class: "note" }, change.note ?? "There is no text to compare."));
  return el("details", { open }, sentence, diffBox(change.diff, places), change.note ? el("p", { class: "note" }, change.note) : null);
}

const CHANGES = new Set(["added", "removed", "modified", "renamed", "mode"]);

function pathOf(change) {
  const path = textOf(change.path).text;
  return change.change === "renamed" ? `${textOf(change.renamed_from).text} → ${path}` : path;
}

function factsOf(change) {
  const facts = [change.before, change.after].filter((each) => each != null);
  if (change.change === "mode") return facts.map((each) => Number(each.mode).toString(8).padStart(3, "0")).join(" → ");
  const told = facts.map((each) => (each.kind === "link" ? `link to ${textOf(each.target).text}` : each.size == null ? each.kind : `${count(each.size)} bytes`));
  return [...new Set(told)].join(" → ");
}

/** A unified diff with its lines coloured; the sign in front tells without colours. */
function diffBox(diff, places) {
  const { text, of } = textOf(diff);
  const lines = text.replace(/\n$/, "").split("\n");
  const box = el("pre", { class: "diff", tabindex: "0", role: "group", "aria-label": "Changed lines" });
  const more = el("p", {});
  draw(MOST_LINES);
  return el("div", { class: "textbox" }, box, more, of === null ? null : cutNote(text.length, of, places.run));

  function draw(n) {
    show(box, lines.slice(0, n).map((line) => el("span", { class: LINES[line[0]] ?? "" }, line || " ")));
    show(more, lines.length <= n ? null : el("button", { type: "button", class: "more", on: { click: () => draw(lines.length) } }, `Show all ${count(lines.length)} lines`));
  }
}

const LINES = { "+": "come", "-": "gone", "@": "hunk" };
