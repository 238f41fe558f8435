import { el } from "./dom.js";
import { scrolled } from "./tables.js";
import { score, usd } from "./text.js";

/** The parts of the POET score, in the order in which they make it up. */
const POET = [
  ["poet", "POET score"],
  ["quality", "Quality"], ["race", "RACE"], ["race_comprehensiveness", "Comprehensiveness"], ["race_insight", "Insight"],
  ["race_instruction_following", "Instruction following"], ["race_readability", "Readability"], ["race_weighted_dims", "RACE by weighted dimensions"],
  ["fact_accuracy", "Citation accuracy (FACT)"], ["fact_citations", "Citations"], ["fact_valid_citations", "Citations that hold"],
  ["fact_supported_per_1000_words", "Supported statements in 1,000 words"],
  ["efficiency", "Efficiency"], ["time_saving", "Time saved"], ["cost_saving_usd", "Cost saved"], ["automation", "Automation"], ["resource_efficiency", "Resource efficiency"],
  ["strategic", "Strategic value"], ["knowledge_creation_value", "Value of new knowledge"], ["knowledge_units", "Units of new knowledge"],
  ["complexity_adaptability", "Adapting to complexity"], ["interaction_efficiency", "Interaction efficiency"],
];
const POET_MAIN = ["poet", "quality", "efficiency", "strategic"];

/** Means of what scores gave, by model: research reports, sections of packs, other metrics, judges; null where there are none. */
export function scoresTable(app) {
  const { models } = app.data.report;
  const names = (kind) => [...new Set(models.flatMap((model) => Object.keys(model[kind] ?? {})))];
  const metrics = names("metrics");
  const poet = POET.filter(([name]) => metrics.includes("race") && metrics.includes(name));
  const taken = new Set(poet.map(([name]) => name));
  const plain = (found) => found.map((name) => [name, name.replaceAll("_", " ")]);
  const groups = [
    group(models, "Research reports (POET)", poet, (model, name) => model.metrics?.[name], POET_MAIN),
    ...(app.data.sections ?? []).map((section) =>
      group(models, section.model.title, section.model.figures, (model, name) => section.figures[models.indexOf(model)]?.[name], section.sums),
    ),
    group(models, "Metrics", metrics.filter((name) => !taken.has(name)).map((name) => [name, name]), (model, name) => model.metrics?.[name]),
    group(models, "Judge, 0 to 10", plain(names("judge").filter((name) => name !== "expectations")), (model, name) => model.judge?.[name], ["overall"]),
    group(models, "Judge, 0 to 1", plain(names("judge").filter((name) => name === "expectations")), (model, name) => model.judge?.[name]),
  ].filter((each) => each !== null);
  if (groups.length === 0) return null;
  const head = el("tr", {}, el("th", { scope: "col" }, "Mean of"), models.map((model) => el("th", { scope: "col" }, model.label || model.model_id)));
  return [
    scrolled("Mean scores by model", el("table", { class: "scores" }, el("thead", {}, head), groups)),
    poet.length === 0 ? null : el("p", { class: "note" }, "agentbench research poet --session FOLDER writes the whole POET report of an output folder."),
  ];
}

/** A body of the table with a heading of its own, its `main` figures in bold; null where no model has any of its figures. */
function group(models, title, lines, value, main = []) {
  const told = lines.filter(([name]) => models.some((model) => value(model, name) != null));
  if (told.length === 0) return null;
  const rows = told.map(([name, text]) =>
    el("tr", { class: main.includes(name) ? "sum" : null }, el("th", { scope: "row" }, text), models.map((model) => el("td", {}, (name.endsWith("_usd") ? usd : score)(value(model, name))))),
  );
  return el("tbody", {}, el("tr", { class: "group" }, el("th", { scope: "rowgroup", colspan: models.length + 1 }, title)), rows);
}
