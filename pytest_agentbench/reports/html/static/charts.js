import { readBlock } from "./data.js";
import { el, show } from "./dom.js";
import { scrolled } from "./tables.js";
import { score } from "./text.js";

const NO_LIBRARY = 'Charts need the extra "charts": pip install "pytest-agentbench[charts]", then make the page again.';
const FORMATS = { svg: "image/svg+xml", png: "image/png" };
let library = null;
/** What ends a drawing, by the element that holds it. */
const drawn = new Map();

/**
 * A figure for each chart of the data: the drawing, ways to take it along (SVG, PNG, CSV), its figures as a table.
 * Where the page has no library to draw with, it says so once and shows the tables.
 */
export function chartFigures(charts) {
  const drawable = document.getElementById("library") !== null;
  const drawings = [];
  const figures = charts.map((chart) => figure(chart, drawable ? drawings : null));
  setTimeout(async () => {
    for (const drawing of drawings) await drawing();
  });
  return [
    drawable || charts.length === 0 ? null : el("p", { class: "note", id: "without-charts" }, NO_LIBRARY),
    el("div", { class: "charts" }, figures),
  ];
}

function figure(chart, drawings) {
  const drawable = drawings !== null;
  const place = el("div", { class: "drawing", role: "img", "aria-label": `${chart.title}. ${chart.note}` });
  const tools = el("p", { class: "tools" });
  const node = el(
    "figure",
    { id: `chart-${chart.id}` },
    el("figcaption", {}, el("h3", {}, chart.title), el("p", { class: "note" }, chart.note)),
    drawable ? place : null,
    tools,
    el("details", { open: !drawable }, el("summary", {}, "As a table"), scrolled(`${chart.title} as a table`, table(chart.spec.data.values))),
  );
  const csv = toolButton("CSV", () => save(`${chart.id}.csv`, URL.createObjectURL(new Blob([toCsv(chart.spec.data.values)], { type: "text/csv" }))));
  show(tools, csv);
  drawings?.push(() => draw(chart, place, tools));
  return node;
}

async function draw(chart, place, tools) {
  try {
    await startLibrary();
    endHidden();
    if (!place.isConnected) return; // another view is shown by now
    const { view, finalize } = await globalThis.vegaEmbed(place, { ...chart.spec, config: fitConfig(chart.spec.config, place.clientWidth) }, {
      ast: true, actions: false, renderer: "svg", tooltip: false, defaultStyle: false, loader: refuseLoads(),
    });
    drawn.set(place, finalize);
    const images = Object.keys(FORMATS).map((format) =>
      toolButton(format.toUpperCase(), async () => save(`${chart.id}.${format}`, await view.toImageURL(format, format === "png" ? 2 : 1))),
    );
    tools.prepend(...images);
  } catch (error) {
    show(place, el("p", { class: "note" }, `This chart could not be drawn: ${error.message}`));
  }
}

/** Ends drawings that are shown no more: they would follow the window's size for ever. */
function endHidden() {
  for (const [place, end] of drawn) {
    if (place.isConnected) continue;
    end();
    drawn.delete(place);
  }
}

/** Nothing is loaded for a chart: its data stand in its spec. */
function refuseLoads() {
  const refuse = () => Promise.reject(new Error("charts load nothing"));
  return { load: refuse, sanitize: refuse, http: refuse, file: refuse };
}

function startLibrary() {
  library ??= readBlock("library", "text").then((source) => {
    const script = document.createElement("script");
    script.textContent = source;
    document.head.append(script);
    if (typeof globalThis.vegaEmbed !== "function") throw new Error("the drawing library did not start");
  });
  return library;
}

/**
 * The spec's settings in the page's letters and width. Its colours stay, dark on white, so that a picture taken along
 * can be read anywhere; on the page style.css puts those of the theme in their place.
 */
function fitConfig(config, width) {
  return {
    ...config,
    background: "white",
    font: getComputedStyle(document.body).fontFamily,
    axis: { ...config.axis, titleFontWeight: 500 },
    legend: { ...config.legend, labelFontSize: 12, columns: Math.max(1, Math.min(config.legend.columns, Math.floor(width / 160))) },
  };
}

function toolButton(label, act) {
  return el("button", { type: "button", class: "quiet", on: { click: act } }, label);
}

function save(name, url) {
  const link = el("a", { href: url, download: name });
  link.click();
  if (url.startsWith("blob:")) setTimeout(() => URL.revokeObjectURL(url), 10000);
}

function table(values) {
  const names = Object.keys(values[0] ?? {});
  return el(
    "table",
    {},
    el("thead", {}, el("tr", {}, names.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, values.map((each) => el("tr", {}, names.map((name) => el("td", {}, typeof each[name] === "number" ? score(each[name]) : (each[name] ?? "–")))))),
  );
}

/** CSV of values. A text that a spreadsheet would take for a formula gets an apostrophe before it. */
function toCsv(values) {
  const names = Object.keys(values[0] ?? {});
  const lines = [names, ...values.map((each) => names.map((name) => each[name]))];
  return lines.map((line) => line.map(csvCell).join(",")).join("\r\n") + "\r\n";
}

function csvCell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
