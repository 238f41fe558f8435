import { href } from "./address.js";
import { el, show } from "./dom.js";
import { count } from "./text.js";

const TITLES = { summary: "Summary", results: "Results", comparison: "Comparison", session: "Session" };

/** Draws the links to views; gives what marks the one that is shown. A run belongs to Results and keeps its list. */
export function navigation(app) {
  const nav = document.getElementById("views");
  return (name, { params }) => {
    const views = Object.keys(TITLES).filter((view) => view !== "comparison" || app.data.comparison != null);
    show(
      nav,
      views.map((view) => {
        const below = view === "results" && name === "run";
        const number = view === "results" ? el("span", { class: "n" }, count(app.index.cases.length)) : null;
        return el("a", { href: below ? href(view, [], params) : href(view), "aria-current": view === name ? "page" : below ? "true" : null }, TITLES[view], number);
      }),
    );
    const marked = nav.querySelector("[aria-current]");
    if (marked !== null) nav.scrollLeft = marked.offsetLeft + marked.offsetWidth - nav.offsetLeft - nav.clientWidth;
  };
}
