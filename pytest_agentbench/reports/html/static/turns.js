import { el } from "./dom.js";
import { textOf } from "./longtext.js";
import { outcomeSign } from "./outcomes.js";

/** The heading of a turn of a conversation, with the checks of this turn. */
export function turnItem(turn, checks) {
  const own = checks.filter((check) => check.turn === turn);
  const told = own.map((check) => el("span", { class: "turn-check", title: textOf(check.message).text }, outcomeSign(check.outcome), " ", textOf(check.check_id).text));
  return el("li", { class: "turn" }, el("h3", {}, `Turn ${turn}`), told);
}
