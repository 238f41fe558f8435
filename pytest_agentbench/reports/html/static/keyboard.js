import { el } from "./dom.js";
import { go } from "./router.js";

const KEYS = [
  ["?", "this list"],
  ["/", "search"],
  ["1, 2, 3", "overview, cases × models, runs"],
  ["j, k", "next and previous row"],
  ["Enter", "open what is marked"],
  ["n, p", "in a run: next and previous run"],
  ["c", "in a run: its case"],
  ["Esc", "leave the search, close this list"],
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
    case "1": return () => go({ view: "overview" });
    case "2": return () => go({ view: "matrix" });
    case "3": return () => go({ view: "runs" });
    case "/": return () => search();
    case "j": return view.rows ? () => move(view.rows, 1) : null;
    case "k": return view.rows ? () => move(view.rows, -1) : null;
    default: return null;
  }
}

function search() {
  if (document.getElementById("q") === null) go({ view: "runs" });
  document.getElementById("q").focus();
}

function move(rows, step) {
  if (rows.length() === 0) return;
  const marked = document.activeElement.closest("tr[data-at]");
  const next = marked === null ? rows.inSight() : Number(marked.dataset.at) + step;
  rows.reveal(Math.max(0, Math.min(rows.length() - 1, next)))?.querySelector("a")?.focus({ preventScroll: true });
}

function helpDialog() {
  const close = el("button", { type: "button", on: { click: () => dialog.close() } }, "Close");
  const keys = KEYS.map(([key, what]) => el("div", {}, el("dt", {}, el("kbd", {}, key)), el("dd", {}, what)));
  const dialog = el("dialog", { "aria-labelledby": "keys-title" }, el("h2", { id: "keys-title" }, "Keys"), el("dl", { class: "keys" }, keys), close);
  document.body.append(dialog);
  return dialog;
}
