import { el, show } from "./dom.js";

/** A choice of one value with its title; hidden if there is only one. Gives `{ node, update(options, value) }`. */
export function picker(name, title, changed) {
  const select = el("select", { id: `pick-${name}`, on: { change: () => changed(select.value) } });
  const node = el("label", { class: "pick" }, el("span", {}, title), select);
  let known = "";
  return {
    node,
    update(options, value) {
      const now = JSON.stringify(options);
      if (now !== known) show(select, options.map(([each, text]) => el("option", { value: each }, text)));
      known = now;
      node.hidden = options.length < 2;
      select.value = value;
    },
  };
}
