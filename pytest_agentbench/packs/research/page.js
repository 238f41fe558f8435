import { added } from "./added.js";
import { el } from "./dom.js";
import { textOf } from "./longtext.js";
import { scrolled } from "./tables.js";
import { count, score } from "./text.js";

/** What the scores of a research report rest on. */
function researchParts(found) {
  if (found === null || typeof found !== "object") return null;
  return [
    criteriaTable(found.criteria ?? []),
    statementsTable(found.statements ?? [], found.statements_left_out ?? 0),
    strategicTable(found.strategic ?? {}),
    knowledgeList(found.knowledge ?? []),
    recordedFacts(found),
  ];
}

function tableOf(title, heads, rows, note = null) {
  if (rows.length === 0) return null;
  const head = heads.map(([name, number]) => el("th", { scope: "col", class: number ? "number" : null }, name));
  const body = rows.map((cells) => el("tr", {}, cells.map((cell, at) => el("td", { class: heads[at][1] ? "number" : "why" }, cell))));
  return [el("h3", {}, title), note, scrolled(title, el("table", { class: "research" }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, body)))];
}

/** Where it lost most against its reference first. */
function criteriaTable(criteria) {
  const ordered = [...criteria].sort((one, other) => one.target - (one.reference ?? 0) - (other.target - (other.reference ?? 0)));
  const rows = ordered.map((each) => [textOf(each.dimension).text.replaceAll("_", " "), [textOf(each.criterion).text, textOf(each.analysis).text === "" ? null : el("small", {}, textOf(each.analysis).text)], score(each.target), score(each.reference)]);
  return tableOf("RACE: criteria", [["Dimension"], ["Criterion, and what the judge said"], ["Report", true], ["Reference", true]], rows);
}

const LABELS = { supported: "passed", unsupported: "failed", unknown: "error" };

function statementsTable(statements, more) {
  const rank = ["unsupported", "unknown", "supported"];
  const ordered = [...statements].sort((one, other) => rank.indexOf(one.label) - rank.indexOf(other.label));
  const rows = ordered.map((each) => [el("span", { class: `outcome ${LABELS[each.label] ?? ""}` }, textOf(each.label).text), textOf(each.fact).text, address(textOf(each.url).text)]);
  const note = more > 0 ? el("p", { class: "note" }, `${count(more)} more statements are not listed.`) : null;
  return tableOf("FACT: cited statements", [["Page says"], ["Statement"], ["Source"]], rows, note);
}

/** An address as it is; only http and https can be followed. */
function address(url) {
  return /^https?:\/\//i.test(url) ? el("a", { href: url, rel: "noopener noreferrer", target: "_blank" }, url) : url;
}

function strategicTable(strategic) {
  const rows = Object.entries(strategic).map(([name, [value, reason]]) => [name.replaceAll("_", " "), score(value), textOf(reason).text]);
  return tableOf("Strategic value, 1 to 5", [["Score of"], ["Score", true], ["Reason"]], rows);
}

function knowledgeList(knowledge) {
  return tableOf("New knowledge", [["Unit"], ["Quality", true]], knowledge.map(([text, quality]) => [textOf(text).text, score(quality)]));
}

function recordedFacts(found) {
  const metrics = found.execution_metrics ?? {};
  const facts = [
    ["Domain", found.domain], ["Complexity", found.complexity_level], ["Language", found.language],
    ["Recorded seconds", metrics.total_duration_seconds], ["Recorded cost (USD)", metrics.token_usage?.total_cost_usd], ["Automation", metrics.automation_level], ["Words", metrics.word_count],
  ].filter(([, value]) => value != null);
  return facts.length === 0 ? null : [el("h3", {}, "The report"), el("dl", { class: "figures" }, facts.map(([title, value]) => el("div", {}, el("dt", {}, title), el("dd", {}, typeof value === "number" ? score(value) : textOf(value).text))))];
}

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

added.verdicts.research = researchParts;
added.metricGroups.push({
  title: "Research reports (POET)",
  when: "race",
  figures: POET,
  sums: ["poet", "quality", "efficiency", "strategic"],
  note: "agentbench research poet --session FOLDER writes the whole POET report of an output folder.",
});
