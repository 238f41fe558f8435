import { el } from "./dom.js";
import { go, href } from "./address.js";

const KEYS = [
  ["?", "this list"],
  ["/", "search"],
  ["1, 2, 3", "summary, results, session"],
  ["j, k", "next and previous case"],
  ["h, l", "column to the left and to the right"],
  ["Enter", "open what is marked"],
  ["n, p", "next and previous case of the list"],
  ["x, X", "next and previous case on which the compared columns differ"],
  ["f", "all cases, failed ones, those that differ"],
  ["d", "mark differences; in a run: side by side"],
  ["+, -", "in a run: your label, pass or fail"],
  ["Esc", "leave the search, a run, this list"],
];

/** Keys that work everywhere but where somebody types. A view may have more as `view.keys[key]()`. */
export function listen(app, router) {
  const dialog = helpDialog();
  document.getElementById("help").addEventListener("click", () => dialog.showModal());
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    document.getElementById("main").focus();
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
    const typing = event.target.closest("input, select, textarea");
    if (typing) {
      if (event.key === "Escape" && !typing.closest("[popover]")) typing.blur();
      return;
    }
    const action = actionOf(event.key, router, dialog);
    if (action === null) return;
    event.preventDefault();
    action();
  });
}

function actionOf(key, router, dialog) {
  const { view } = router.current();
  if (view.keys && Object.hasOwn(view.keys, key)) return view.keys[key];
  switch (key) {
    case "?": return () => dialog.showModal();
    case "1": return () => go(href("summary"));
    case "2": return () => go(href("results"));
    case "3": return () => go(href("session"));
    case "/": return () => search();
    default: return null;
  }
}

function search() {
  if (document.getElementById("q") === null) go(href("results"));
  document.getElementById("q").focus();
}

function helpDialog() {
  const close = el("button", { type: "button", on: { click: () => dialog.close() } }, "Close");
  const keys = KEYS.map(([key, what]) => el("div", {}, el("dt", {}, el("kbd", {}, key)), el("dd", {}, what)));
  const dialog = el("dialog", { "aria-labelledby": "keys-title" }, el("h2", { id: "keys-title" }, "Keys"), el("dl", { class: "keys" }, keys), close);
  document.body.append(dialog);
  return dialog;
}
