import { el, show } from "./dom.js";
import { icon } from "./icons.js";
import { saveFile } from "./savefile.js";
import { plural } from "./text.js";

// Labels are the reader's opinion of runs: they change no verdict. `agentbench watch` appends them to human.jsonl if the page was
// opened at the address that it printed, which has the token. Otherwise they are kept in this tab and saved as a file.

const KEPT = `agentbench labels ${location.pathname}`;
const TOKEN = "agentbench token";
const WORDS = { passed: "Pass", failed: "Fail" };
export const LABEL_KEYS = { "+": "passed", "-": "failed" };

/** Labels by node id: `{nodeid, run_id, rubric, judges, verdict, comment, at, stored}`. */
const labels = new Map(readKept(KEPT) ?? []);
const token = sentToken();
let annotator = "";

addEventListener("beforeunload", (event) => {
  if ([...labels.values()].some(({ stored }) => !stored)) event.preventDefault();
});

/** The reader's label of a row's run, null without one. */
export function labelOf(row) {
  const label = labels.get(row.nodeid);
  return label === undefined || (row.run_id != null && row.run_id !== label.run_id) ? null : label;
}

/** Whether the reader has labelled any run. */
export function hasLabels() {
  return labels.size > 0;
}

/** A sign for a run that the reader has labelled, null for any other. */
export function labelSign(row) {
  const label = labelOf(row);
  return label === null ? null : el("span", { class: `thumb ${label.verdict}`, title: `your label: ${WORDS[label.verdict]}` }, icon("thumb"), el("span", { class: "unseen" }, `your label: ${WORDS[label.verdict]}`));
}

/** Two buttons and a note for the reader's opinion of a run; null if nothing is stored of the run. */
export function labelBox(row, run) {
  const runId = row.run_id ?? run?.run_id;
  if (typeof runId !== "string") return null;
  const current = () => (labels.get(row.nodeid)?.run_id === runId ? labels.get(row.nodeid) : null);
  const note = el("input", { type: "text", class: "label-note", placeholder: "Note (why)", "aria-label": "Note on your label", maxlength: 2000, value: current()?.comment, on: { change: () => current() !== null && give(current().verdict) } });
  const buttons = Object.entries(LABEL_KEYS).map(([key, verdict]) =>
    el("button", { type: "button", class: `btn thumb ${verdict}`, "data-label": verdict, "aria-keyshortcuts": key, on: { click: () => press(verdict) } }, icon("thumb"), WORDS[verdict]),
  );
  const told = el("span", { class: "note", role: "status" });
  const saving = el("span", { class: "saving" });
  draw();
  return el("div", { class: "labelbox", role: "group", "aria-label": "Your label" }, buttons, note, told, saving);

  /** A second press takes a label back that nobody else has yet. */
  function press(verdict) {
    if (token !== null || current()?.verdict !== verdict) return give(verdict);
    labels.delete(row.nodeid);
    show(told, "");
    draw();
    keep();
  }

  async function give(verdict) {
    const judged = row.judged ?? [];
    const label = { nodeid: row.nodeid, run_id: runId, rubric: judged[0]?.rubric ?? null, judges: Object.fromEntries(judged.map(({ by, judge }) => [by, judge])), verdict, comment: note.value.trim() || null, at: new Date().toISOString(), stored: false };
    labels.set(row.nodeid, label);
    draw();
    if (token === null) show(told, "Kept in this tab until you save it.");
    else show(told, await postLabel(label));
    keep();
  }

  function draw() {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.label === current()?.verdict));
    show(saving, token === null && labels.size > 0 ? saveControls() : null);
  }
}

function saveControls() {
  const name = el("input", { type: "text", placeholder: "Your name", "aria-label": "Your name", value: annotator, size: 12, on: { input: () => (annotator = name.value) } });
  const save = () => {
    if (annotator.trim() === "") name.focus();
    else saveLabels();
  };
  return [name, el("button", { type: "button", class: "btn", title: "human.jsonl, as agentbench review writes it", on: { click: save } }, `Save ${plural(labels.size, "label")}`)];
}

function saveLabels() {
  const lines = [...labels.values()].map(({ stored, at, ...label }) => JSON.stringify({ schema_version: 1, annotator: annotator.trim(), ...label, score: null, blind: false, at }));
  saveFile("human.jsonl", "application/jsonl", `${lines.join("\n")}\n`);
  for (const label of labels.values()) label.stored = true;
  keep();
}

/** Sends a label to `agentbench watch`. Gives what became of it. */
async function postLabel(label) {
  const { nodeid, run_id, verdict, comment } = label;
  try {
    const answer = await fetch("label", { method: "POST", headers: { "X-Agentbench-Token": token }, body: JSON.stringify({ nodeid, run_id, verdict, comment }) });
    label.stored = answer.ok;
    return await answer.text();
  } catch {
    return "Not stored: agentbench watch does not answer.";
  }
}

/** The token of the address, kept for the other sessions that this tab shows; null without one. */
function sentToken() {
  const sent = new URLSearchParams(location.search).get("token");
  if (sent !== null) keepValue(TOKEN, sent);
  return document.body.dataset.live === "true" ? sent ?? readKept(TOKEN) : null;
}

function keep() {
  keepValue(KEPT, [...labels]);
}

/** A browser may refuse storage: then labels last until the page is closed. */
function keepValue(name, value) {
  try {
    sessionStorage.setItem(name, JSON.stringify(value));
  } catch {
    return;
  }
}

function readKept(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name));
  } catch {
    return null;
  }
}
