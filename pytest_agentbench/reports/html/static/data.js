/** A JSON value or a text that the page carries compressed in the element with this id; null where there is none. */
export async function readBlock(id, kind = "json") {
  const element = document.getElementById(id);
  if (element === null) return null;
  return unpack(element.textContent, kind);
}

/** The JSON value or the text in gzip in base64. */
export async function unpack(packed, kind = "json") {
  if (typeof DecompressionStream === "undefined") throw new Error("This browser is too old to read the page's data.");
  const stream = new Blob([bytesOf(packed)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return kind === "json" ? new Response(stream).json() : new Response(stream).text();
}

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const signs = atob(base64);
  const bytes = new Uint8Array(signs.length);
  for (let at = 0; at < signs.length; at += 1) bytes[at] = signs.charCodeAt(at);
  return bytes;
}

/** What the page shows: `{report, comparison, charts, details}`, see `page_data` in page.py. */
export async function readData(live) {
  if (!live) return readBlock("data");
  const answer = await fetch("data.json", { cache: "no-cache" });
  if (!answer.ok) throw new Error(`The data cannot be read: ${answer.status} ${answer.statusText}`);
  return answer.json();
}

/**
 * The report's runs by what they are looked up by.
 *
 * `runs` holds for each row `{row, at, case, tools, subject}`: its place, the key of its case (node id without bracket), the
 * tools that it called, what the search looks through. `byNodeid` and `byCase` are maps of these, `models` the ids and their names in order.
 */
export function indexReport(data) {
  const report = data.report;
  const labels = new Map(report.models.map((model) => [model.model_id, model.label || model.model_id]));
  const tools = data.details?.tools ?? { names: [], runs: [] };
  const runs = report.runs.map((row, at) => ({ row, at, case: caseKey(row), tools: (tools.runs[at] ?? []).map((place) => tools.names[place]), subject: null }));
  const byCase = new Map();
  for (const run of runs) {
    if (!byCase.has(run.case)) byCase.set(run.case, []);
    byCase.get(run.case).push(run);
  }
  return {
    runs,
    byCase,
    byNodeid: new Map(runs.map((run) => [run.row.nodeid, run])),
    labels,
    models: report.models.map((model) => model.model_id),
    tags: distinct(report.runs.flatMap((row) => row.tags)),
    datasets: distinct(report.runs.map((row) => row.dataset).filter((name) => name !== null)),
  };
}

/** The node id without model and repetition. */
function caseKey({ nodeid, variant }) {
  const at = nodeid.lastIndexOf("[");
  const place = at < 0 ? nodeid : nodeid.slice(0, at);
  return variant == null ? place : `${place}[${variant}]`;
}

function distinct(values) {
  return [...new Set(values)].sort((one, other) => one.localeCompare(other, "en", { numeric: true }));
}
