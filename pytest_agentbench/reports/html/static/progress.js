import { el } from "./dom.js";
import { count, plural } from "./text.js";

let opened = false;

/** How far the session is that `agentbench watch` follows (`data.live`, see live_data.py); null in a report's own page. */
export function progress(live) {
  if (!live) return null;
  return el(
    "section",
    { class: `progress ${live.state}`, "aria-labelledby": "progress" },
    el("p", { id: "progress" }, live.text),
    bar(live),
    running(live),
    sessions(live.sessions),
  );
}

function bar({ planned, made, state }) {
  if (planned === null || state === "ended") return null;
  return el("progress", { max: planned, value: made, "aria-label": `${count(made)} of ${count(planned)} runs are made` });
}

function running({ running: names, in_flight: all }) {
  if (names.length === 0) return null;
  const more = (all ?? 0) - names.length;
  return el(
    "details",
    { class: "running", open: opened, on: { toggle: ({ target }) => (opened = target.open) } },
    el("summary", {}, `${plural(all ?? names.length, "run")} under way`),
    el("ul", {}, names.map((name) => el("li", {}, name)), more > 0 ? el("li", {}, `and ${count(more)} more`) : null),
  );
}

function sessions(links) {
  if (links.length < 2) return null;
  return el(
    "nav",
    { class: "sessions", "aria-label": "Sessions of this output folder" },
    el("ul", {}, links.map(({ href, text, shown }) => el("li", {}, el("a", { href, ...(shown ? { "aria-current": "page" } : {}) }, text)))),
  );
}
