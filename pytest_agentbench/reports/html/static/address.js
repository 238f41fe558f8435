/**
 * What is shown stands in the URL's fragment: `#/VIEW/PART/PART?name=value`. Results are
 * `#/results?show=failed&q=refund`, a run is `#/run/CASE/COLUMN/REPETITION` with the parameters of its list.
 */
export function readAddress(hash = location.hash) {
  const [path, query = ""] = splitOnce(hash.replace(/^#\/?/, ""), "?");
  const [view, ...rest] = path.split("/").map(decoded);
  return { view: view || "summary", rest, params: new URLSearchParams(query) };
}

/** The fragment for a view. `values` are pairs, an object or URLSearchParams; empty and null values are left out. */
export function href(view, rest = [], values = {}) {
  const pairs = values instanceof URLSearchParams || Array.isArray(values) ? [...values] : Object.entries(values);
  const single = pairs.flatMap(([name, value]) => (Array.isArray(value) ? value.map((each) => [name, each]) : [[name, value]]));
  const query = new URLSearchParams(single.filter(([, value]) => value != null && value !== "")).toString();
  return `#/${[view, ...rest].map((part) => encodeURIComponent(wellFormed(part))).join("/")}${query ? `?${query}` : ""}`;
}

/** A text as an address can hold it: a report of a stranger may have halves of characters. */
export function wellFormed(text) {
  return String(text).replace(/\p{Surrogate}/gu, "\ufffd");
}

/** Goes to an address; `replace`: without a new entry in the history, as while somebody types. */
export function go(target, { replace = false } = {}) {
  if (target === location.hash) return;
  if (replace) history.replaceState(history.state, "", target);
  else history.pushState(null, "", target);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

function splitOnce(text, sign) {
  const at = text.indexOf(sign);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
