import { el } from "./dom.js";

/** A table that scrolls by itself where the window is narrow. */
export function scrolled(label, table) {
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table);
}

/** What stands below a figure; null where there is nothing to say. */
export function small(text) {
  return text ? el("small", {}, text) : null;
}
