import { readAddress } from "./address.js";
import { el, show, visible } from "./dom.js";
import { rewriteAddress } from "./oldaddress.js";
import { placesIn } from "./places.js";
import { redrawElement } from "./redraw.js";

/** Shows views as the address asks for them. Gives `{ current(), refresh() }`. */
export function startRouter(app, views, main, moved) {
  const places = placesIn(main);
  let current = null;

  function follow() {
    places.leave();
    const rewritten = rewriteAddress(location.hash, app.index);
    if (rewritten !== null) history.replaceState(history.state, "", rewritten);
    const address = readAddress();
    const { view: name } = address;
    if (current !== null && current.name === name && current.view.update) {
      current.view.update(address);
      entitle();
      places.arrive();
      moved(name, address);
      return;
    }
    current?.view.close?.();
    const first = current === null;
    document.body.dataset.view = Object.hasOwn(views, name) ? name : "";
    current = { name, view: Object.hasOwn(views, name) ? views[name](app, address) : unknown(name) };
    show(main, current.view.node);
    entitle();
    moved(name, address);
    if (places.arrive() || first) return;
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }

  function entitle() {
    const project = app.data.report.session.project ?? "Agent benchmark";
    document.title = `${visible(current.view.title)} · ${visible(project)}`;
    show(document.querySelector(".brand a"), project);
  }

  addEventListener("hashchange", follow);
  follow();
  return {
    current: () => current,
    refresh() {
      moved(current.name, readAddress());
      if (current.view.refresh) current.view.refresh();
      else if (!current.view.update) redraw();
      else current.view.update(readAddress());
    },
  };

  function redraw() {
    current.view.close?.();
    current.view = views[current.name](app, readAddress());
    redrawElement(main, () => show(main, current.view.node));
  }
}

function unknown(name) {
  const node = el("div", {}, el("h1", {}, "No such view"), el("p", {}, `The address asks for “${name}”. `, el("a", { href: "#/summary" }, "Summary")));
  return { title: "No such view", node };
}
