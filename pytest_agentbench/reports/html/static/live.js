import { el, show } from "./dom.js";
import { indexReport } from "./reportindex.js";

const PAUSE = 1000;

/**
 * Asks for `data.json` again and again and shows what has changed (ETag: an unchanged answer is cheap).
 * `data.live`, where the server gives it, is `{state, text}` shown in the status line; state "ended" stops nothing,
 * for the session may be started again.
 */
export function followData(app, router) {
  let tag = null;

  async function ask() {
    try {
      const answer = await fetch("data.json", { cache: "no-store", headers: tag === null ? {} : { "If-None-Match": tag } });
      if (answer.status === 200) {
        tag = answer.headers.get("ETag");
        app.data = await answer.json();
        app.index = indexReport(app.data);
        router.refresh();
      }
      if (answer.ok || answer.status === 304) told(app.data.live);
      else status(`No data: ${answer.status} ${answer.statusText}`);
    } catch (error) {
      status("agentbench watch does not answer; what is shown is the last it told.");
    }
    setTimeout(ask, document.hidden ? 5 * PAUSE : PAUSE);
  }

  told(app.data.live);
  setTimeout(ask, PAUSE);
}

/** How far a session is changes every second; screen readers tell of what becomes of it, not of each number. */
function told(live) {
  status(live?.text ?? "", live?.state === "running" ? "off" : "polite");
}

function status(text, politeness = "polite") {
  const line = document.getElementById("status");
  line.setAttribute("aria-live", politeness);
  if (line.textContent !== text) show(line, el("span", {}, text));
}
