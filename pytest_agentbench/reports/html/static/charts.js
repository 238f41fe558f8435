import { el, svg } from "./dom.js";

/** A chart of charts.py, whose marks are SVG elements; `note` has its figures for those who cannot see it. */
export function chartFigure({ id, title, note, width, height, marks, omissions }) {
  return el(
    "figure",
    { id: `chart-${id}` },
    el("figcaption", {}, el("h3", {}, title)),
    svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}. ${note}` }, marks.map(mark)),
    omissions.map((text) => el("p", { class: "note" }, text)),
  );
}

function mark({ tag, attributes, text, hint }) {
  return svg(tag, attributes, text, hint === null ? null : svg("title", {}, hint));
}
