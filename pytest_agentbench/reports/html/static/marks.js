import { el } from "./dom.js";
import { fold, splitMatches } from "./search.js";
import { wordDiff } from "./worddiff.js";

/** A text with the words of the search marked. */
export function marked(text, words) {
  if (words.length === 0) return [text];
  return splitMatches(text, words).map(([part, matches]) => (matches ? el("mark", {}, part) : part));
}

const LEAST_EXPECTED = 2;

/** An answer in which the expected words stand out. */
export function expectedMarked(answer, expected) {
  const wanted = (expected ?? "").trim();
  const at = wanted.length < LEAST_EXPECTED ? -1 : fold(answer).indexOf(fold(wanted));
  if (at < 0) return [answer];
  const end = at + wanted.length;
  return [answer.slice(0, at), el("span", { class: "hit", title: "expected" }, answer.slice(at, end)), answer.slice(end)];
}

/** A text with what differs from the reference's: words that are gone struck out, words that came in green. */
export function differenceMarked(reference, text) {
  const parts = wordDiff(reference, text);
  if (parts === null) return [el("span", { class: "mark-note", title: "has next to nothing in common with the reference" }, "all different"), " ", text];
  return parts.map(([kind, part]) => (kind === "same" ? part : el(kind === "gone" ? "del" : "ins", {}, part)));
}
