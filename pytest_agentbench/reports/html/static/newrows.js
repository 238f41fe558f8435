import { el, show } from "./dom.js";
import { plural } from "./text.js";

/**
 * A chip for runs that arrive in a list while somebody reads it: nothing moves until they press it, which calls `update`.
 * Gives `{ node, drawn(runs), holds(runs) }`, with the number of runs in the page's data.
 */
export function newRowsChip(update) {
  const node = el("div", { class: "new-rows", role: "status" });
  let inList = 0;
  return {
    node,
    drawn(runs) {
      inList = runs;
      show(node);
    },
    holds(runs) {
      if (runs <= inList || (scrollY === 0 && document.activeElement.closest("tr[data-at]") === null)) return false;
      show(node, el("button", { type: "button", class: "btn", on: { click: update } }, plural(runs - inList, "new run")));
      return true;
    },
  };
}
