import { choice } from "./choice.js";
import { el, show } from "./dom.js";
import { ONLY, filterParams, filtersOf } from "./filters.js";
import { fragment, go, parameters } from "./router.js";
import { OUTCOMES, count, sign } from "./text.js";

/** What can be ticked of what a run has one or several of. */
const CHOICES = {
  model: ({ models, labels }) => models.map((id) => [id, labels.get(id)]),
  tag: ({ tags }) => tags.map((tag) => [tag, tag]),
  dataset: ({ datasets }) => datasets.map((name) => [name, name]),
};

/**
 * The filters of a view over runs: search, outcomes, model, tag, dataset. All of them stand in the URL.
 * Gives `{ node, update(filters, shown) }`; `shown` are the runs that are left, for the count.
 */
export function filterBar(app, view) {
  const search = el("input", {
    type: "search", id: "q", placeholder: "Search questions, answers, reasons", title: "Words, \"a phrase\", -without, *within, tag:x, tool:x, id:x", "aria-label": "Search", "aria-keyshortcuts": "/",
    autocomplete: "off", spellcheck: "false",
    on: { input: () => changed((filters) => ({ ...filters, q: search.value }), true) },
  });
  const outcomes = el("div", { class: "chips", role: "group", "aria-label": "Outcome" });
  const choices = Object.keys(CHOICES).map((name) => [name, choice(name, `All ${name}s`, (values) => changed((filters) => ({ ...filters, [name]: values })))]);
  const only = el(
    "select",
    { id: "filter-only", "aria-label": "All runs", on: { change: () => changed((filters) => ({ ...filters, only: only.value })) } },
    [["", "All runs"], ...Object.entries(ONLY).map(([name, { label }]) => [name, `Only ${label}`])].map(([value, text]) => el("option", { value }, text)),
  );
  const reasons = el("div", { class: "chips" });
  const selects = el("div", { class: "selects" }, choices.map(([, each]) => each.node), only);
  const told = el("p", { class: "told", role: "status" });
  const node = el("section", { class: "filters", "aria-label": "Filters" }, search, outcomes, selects, reasons, told);

  function changed(change, replace = false) {
    const params = parameters();
    const rest = Object.fromEntries(["view", "sort"].map((name) => [name, params.get(name)]));
    go(filterParams(change(filtersOf(params)), { ...rest, view }), { replace });
  }

  return {
    node,
    update(filters, shown, unit = "runs") {
      if (search.value !== filters.q && document.activeElement !== search) search.value = filters.q;
      const { index } = app;
      const focused = document.activeElement?.id || document.activeElement?.dataset?.outcome;
      show(outcomes, OUTCOMES.map((outcome) => outcomeChip(app, outcome, filters, changed)));
      for (const [name, each] of choices) each.update(CHOICES[name](index), filters[name]);
      only.value = filters.only;
      only.classList.toggle("on", filters.only !== "");
      show(
        reasons,
        filters.reason.map((reason) =>
          el("button", { type: "button", class: "chip", title: "Show every reason again", on: { click: () => changed((all) => ({ ...all, reason: [] })) } }, `${reason} ×`),
        ),
      );
      const narrowed = filterParams(filters).some(([, value]) => value !== "");
      show(
        told,
        shown === index.runs.length ? `${count(shown)} ${unit}` : `${count(shown)} of ${count(index.runs.length)} ${unit}`,
        narrowed ? [" · ", el("a", { href: fragment({ view, sort: parameters().get("sort") }), id: "clear" }, "Show all")] : null,
      );
      if (focused && document.activeElement === document.body) {
        (document.getElementById(focused) ?? outcomes.querySelector(`[data-outcome="${focused}"]`))?.focus();
      }
    },
  };
}

/** A button that lets the runs of an outcome through, with their number in the whole report. */
function outcomeChip(app, outcome, filters, changed) {
  const on = filters.outcome.includes(outcome);
  const toggled = on ? filters.outcome.filter((each) => each !== outcome) : [...filters.outcome, outcome];
  return el(
    "button",
    { type: "button", class: `chip ${outcome}`, "aria-pressed": String(on), "data-outcome": outcome,
      on: { click: () => changed((all) => ({ ...all, outcome: toggled })) } },
    el("span", { class: "sign", "aria-hidden": "true" }, sign(outcome)), ` ${outcome} `,
    el("span", { class: "n" }, count(app.index.runs.reduce((n, run) => n + (run.row.outcome === outcome), 0))),
  );
}
