import { el, show } from "./dom.js";
import { clip, count } from "./text.js";

const EDGE = 8;

/**
 * A filter that takes several values: a button that opens a list of boxes to tick. `all` is its name while none is
 * ticked; `changed(values)` gets the ticked ones. Gives `{ node, update(options, chosen) }`, options as `[value, text, note]`.
 */
export function choice(name, all, changed) {
  const button = el("button", { type: "button", id: `filter-${name}`, popovertarget: `choices-${name}` });
  const list = el("fieldset", { class: "choices", id: `choices-${name}`, popover: "auto", on: { change: () => changed(ticked()), toggle: placed } });
  const node = el("div", { class: "choice" }, button, list);
  let known = "";
  let values = [];

  function boxes() {
    return list.querySelectorAll("input");
  }

  function ticked() {
    return values.filter((_, at) => boxes()[at].checked);
  }

  function placed() {
    const { left, bottom } = button.getBoundingClientRect();
    list.style.left = `${Math.max(EDGE, Math.min(left, document.documentElement.clientWidth - list.offsetWidth - EDGE))}px`;
    list.style.top = `${Math.max(EDGE, Math.min(bottom + 4, innerHeight - list.offsetHeight - EDGE))}px`;
  }

  return {
    node,
    update(options, chosen) {
      const gone = chosen.filter((value) => options.every(([each]) => each !== value)).map((value) => [value, value]);
      const entries = [...options, ...gone];
      const texts = new Map(entries);
      node.hidden = texts.size < 2 && chosen.length === 0;
      const now = JSON.stringify(entries);
      if (now !== known) show(list, el("legend", { class: "unseen" }, all), entries.map(box));
      [known, values] = [now, [...texts.keys()]];
      for (const [at, each] of [...boxes()].entries()) each.checked = chosen.includes(values[at]);
      show(button, chosen.length === 0 ? all : chosen.length === 1 ? clip(texts.get(chosen[0]), 40) : `${count(chosen.length)} ${all.replace("All ", "")}`);
      button.classList.toggle("on", chosen.length > 0);
    },
  };
}

function box([, text, note]) {
  return el("label", {}, el("input", { type: "checkbox" }), el("span", {}, text), note == null ? null : el("span", { class: "faint" }, note));
}
