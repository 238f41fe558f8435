import { el, show, visible } from "./dom.js";
import { placesIn } from "./places.js";
import { redrawElement } from "./redraw.js";

/**
 * What is shown stands in the URL's fragment, as parameters: `#view=runs&outcome=failed&q=timeout`, `#run=NODEID`,
 * `#case=KEY`, `#compare=NODEID&with=NODEID`; without any of these the overview.
 */
export function parameters() {
  return new URLSearchParams(location.hash.slice(1));
}

/** The fragment for parameters: pairs, an object, or URLSearchParams. Empty and null values are left out. */
export function fragment(values) {
  const pairs = values instanceof URLSearchParams || Array.isArray(values) ? [...values] : Object.entries(values);
  const told = pairs.flatMap(([name, value]) => (Array.isArray(value) ? value.map((each) => [name, each]) : [[name, value]]));
  return `#${new URLSearchParams(told.filter(([, value]) => value != null && value !== ""))}`;
}

/** Goes to parameters; `replace`: without a new entry in the history, as while somebody types. */
export function go(values, { replace = false } = {}) {
  const target = fragment(values);
  if (target === location.hash) return;
  if (replace) history.replaceState(history.state, "", target);
  else history.pushState(null, "", target);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

/** The name of the view that the parameters ask for. */
function viewOf(params) {
  const named = ["run", "case", "compare"].find((name) => params.has(name));
  return named ?? params.get("view") ?? "overview";
}

/** Shows views as the fragment asks for them. Gives `{ current(), refresh() }`. */
export function startRouter(app, views, main, moved) {
  const places = placesIn(main);
  let current = null;

  function follow() {
    places.leave();
    const params = parameters();
    const name = viewOf(params);
    if (current !== null && current.name === name && current.view.update) {
      current.view.update(params);
      places.arrive();
      moved(name, params);
      return;
    }
    current?.view.close?.();
    const first = current === null;
    current = { name, view: Object.hasOwn(views, name) ? views[name](app, params) : unknown(name) };
    show(main, current.view.node);
    document.title = `${visible(current.view.title)} · Agent benchmark`;
    moved(name, params);
    if (places.arrive() || first) return;
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }

  addEventListener("hashchange", follow);
  follow();
  return {
    current: () => current,
    refresh() {
      if (current.view.refresh) current.view.refresh();
      else if (!current.view.update) redraw();
      else current.view.update(parameters());
    },
  };

  function redraw() {
    current.view.close?.();
    current.view = views[current.name](app, parameters());
    redrawElement(main, () => show(main, current.view.node));
  }
}

function unknown(name) {
  const node = el("div", {}, el("h1", {}, "No such view"), el("p", {}, `The address asks for “${name}”. `, el("a", { href: "#" }, "Overview")));
  return { title: "No such view", node };
}
