import { el, show } from "./dom.js";
import { fragment } from "./router.js";

const TITLES = { overview: "Overview", matrix: "Cases × models", runs: "Runs", comparison: "Comparison" };
const BELOW = { run: "runs", case: "matrix", compare: "matrix" };

/** Draws the links to views; gives what marks the one shown. */
export function navigation(app) {
  const nav = document.getElementById("views");
  return (name) => {
    const shown = Object.keys(TITLES).filter((view) => view !== "comparison" || app.data.comparison != null);
    const here = BELOW[name] ?? name;
    show(
      nav,
      shown.map((view) =>
        el("a", { href: fragment({ view }), "aria-current": view === name ? "page" : view === here ? "true" : null }, TITLES[view]),
      ),
    );
    const marked = nav.querySelector("[aria-current]");
    if (marked !== null) nav.scrollLeft = marked.offsetLeft + marked.offsetWidth - nav.offsetLeft - nav.clientWidth;
  };
}
