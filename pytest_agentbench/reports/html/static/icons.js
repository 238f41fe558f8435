import { el, svg } from "./dom.js";

const stroke = (d, width = 1.9, colour = "currentColor") => ["path", { d, fill: "none", stroke: colour, "stroke-width": width, "stroke-linecap": "round", "stroke-linejoin": "round" }];
const filled = (d, rest = {}) => ["path", { d, fill: "currentColor", ...rest }];

/** Drawings of 16 by 16. Each verdict has another outline, so that none depends on its colour. */
const SHAPES = {
  passed: [["circle", { cx: 8, cy: 8, r: 7, fill: "currentColor", opacity: 0.16 }], stroke("M4.6 8.3l2.3 2.3 4.6-5")],
  failed: [["rect", { x: 1, y: 1, width: 14, height: 14, rx: 3.5, fill: "currentColor" }], stroke("M5.2 5.2l5.6 5.6M10.8 5.2l-5.6 5.6", 1.9, "var(--ground)")],
  mixed: [["circle", { cx: 8, cy: 8, r: 6.2, fill: "none", stroke: "currentColor", "stroke-width": 1.6 }], filled("M8 1.8a6.2 6.2 0 0 1 0 12.4z")],
  error: [filled("M8 1.4l7 12.8H1z"), stroke("M8 6v4", 1.7, "var(--ground)"), ["circle", { cx: 8, cy: 12.1, r: 0.95, fill: "var(--ground)" }]],
  skipped: [stroke("M3 8h10")],
  up: [stroke("M8 13V3.5M3.8 7.5L8 3.2l4.2 4.3", 1.8)],
  down: [stroke("M8 3v9.5M3.8 8.5L8 12.8l4.2-4.3", 1.8)],
  thumb: [stroke("M4.6 7.2L7.4 1.8c1.3 0 1.9.9 1.6 2l-.6 2.4h3.9c1 0 1.7.9 1.4 1.9l-1.1 4.4c-.2.8-.8 1.3-1.6 1.3H4.6M1.8 7.2h2.8v6.6H1.8z", 1.4)],
  search: [["circle", { cx: 7, cy: 7, r: 4.6, fill: "none", stroke: "currentColor", "stroke-width": 1.5 }], stroke("M10.6 10.6L14 14", 1.6)],
};

/** A drawing that says nothing to screen readers: text stands next to it. */
export function icon(name) {
  return svg("svg", { class: `icon ${name}`, viewBox: "0 0 16 16", "aria-hidden": "true" }, (SHAPES[name] ?? []).map(([tag, props]) => svg(tag, props)));
}

export const VERDICTS = { passed: "passed", failed: "failed", mixed: "flaky", error: "error", skipped: "skipped" };

/** The sign of a verdict with a text; without one its word for those who cannot see it. */
export function verdictSign(verdict, text = null) {
  const word = VERDICTS[verdict] ?? verdict;
  return el("span", { class: `sign-of ${verdict}` }, icon(verdict), text === null ? el("span", { class: "unseen" }, word) : el("span", {}, text));
}

/** What a cell's verdict is in a few characters: "passed", or of repetitions "2/3". */
export function verdictText(cell) {
  const errors = cell.errors > 0 && cell.judged > 0 ? `, ${cell.errors} error${cell.errors > 1 ? "s" : ""}` : "";
  if (cell.judged === 0 || cell.runs.length === 1) return `${VERDICTS[cell.verdict]}${errors}`;
  return `${cell.passed}/${cell.judged}${errors}`;
}
