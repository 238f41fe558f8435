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

/** What the page shows: `{report, comparison, charts, topics, details}`, see `page_data` in page.py. */
export async function readData(live) {
  if (!live) return readBlock("data");
  const answer = await fetch("data.json", { cache: "no-cache" });
  if (!answer.ok) throw new Error(`The data cannot be read: ${answer.status} ${answer.statusText}`);
  return answer.json();
}
