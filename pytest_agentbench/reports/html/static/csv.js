import { reasonLine } from "./reasons.js";
import { saveFile } from "./savefile.js";

/** Saves the cases of a list with question, expected and each column's answer as a file for spreadsheets. */
export function saveCsv(cases, columns) {
  const head = ["case", "tags", "question", "expected", ...columns.flatMap(({ name }) => [name, `${name} passed`, `${name} why`])];
  const lines = [head, ...cases.map((each) => line(each, columns))].map((cells) => cells.map(quoted).join(","));
  saveFile("results.csv", "text/csv", `\ufeff${lines.join("\r\n")}\r\n`);
}

function line(each, columns) {
  const answers = columns.flatMap(({ key }) => {
    const cell = each.cells.get(key);
    return cell === undefined ? ["", "", ""] : [cell.shown.row.answer, `${cell.passed} of ${cell.judged}`, reasonLine(cell.shown.row)];
  });
  return [each.key, each.tags.join(" "), each.question, each.expected, ...answers];
}

/** A cell that no spreadsheet takes for a formula. */
function quoted(value) {
  const text = String(value ?? "");
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
