import { el } from "./dom.js";

/** A titled part of a view; without children, null. */
export function part(id, title, ...children) {
  const inside = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  if (inside.length === 0) return null;
  return el("section", { class: `part ${id}`, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), inside);
}

/** A part, or a line that says what kept it from being shown: stored files may hold anything. */
export function guardPart(title, make) {
  try {
    return make();
  } catch (error) {
    return part(title.toLowerCase(), title, el("p", { class: "warnings" }, `This part of the stored files cannot be shown: ${error.message}`));
  }
}

/** Where the files of a run are, as a person finds them: `{run, evaluation}`, null where nobody knows. */
export function placesOf(app, row) {
  const output = app.data.details?.output ?? null;
  const place = (path) => (path == null ? null : output === null ? path : `${output.replace(/\/$/, "")}/${path}`);
  return { run: place(row.artifact), evaluation: place(row.evaluation) };
}

export function notesBox(notes) {
  return notes.length === 0 ? null : el("div", { class: "warnings notes", role: "note" }, el("ul", {}, notes.map((note) => el("li", {}, note))));
}
