import { baselineOf } from "./baseline.js";
import { reasonLine } from "./reasons.js";

/** Shares of the table's width that question and expected take; the columns share the rest. */
const SHARES = { one: { question: 0.28, expected: 0.16 }, several: { question: 0.22, expected: 0.11 } };
/** Pixels: of a column, of question and expected together, at least. With more than STRETCHED columns the table is wider than the window. */
const NARROWEST = 190;
const FIRST_COLUMNS = 320;
const STRETCHED = 4;
const PHONE = 760;
/** Of an answer alone, in letters: a line longer than this is hard to read. */
const LONGEST_LINE = 96;

/** Whether the window is so narrow that cases are cards. */
export function isNarrow(columns) {
  return innerWidth < PHONE || innerWidth < FIRST_COLUMNS + NARROWEST * Math.min(columns, STRETCHED);
}

/** The least width of the table, null if the window's is enough. */
export function leastWidth(columns) {
  return columns <= STRETCHED ? null : FIRST_COLUMNS + 1.25 * NARROWEST * columns;
}

/** Shares of the width: `{question, expected, column}`; without expected answers the question has some of its room. */
export function sharesOf(columns, hasExpected) {
  const { question, expected } = columns === 1 ? SHARES.one : SHARES.several;
  const first = hasExpected ? [question, expected] : [question + expected / 3, 0];
  return { question: first[0], expected: first[1], column: (1 - first[0] - first[1]) / columns };
}

/** Parts of a row's height in letter sizes: results.css has the same. */
const LINE = 1.5;
const PADDING = 1.45;
const HEAD = 1.9;
const COMPACT = 2.72;
/** Letters that id, marks and tags of a case take besides their own. */
const TAG = 4;

/**
 * The top of each row and the end of the last, in pixels. Heights are reckoned from lengths of texts and the mean width of a letter,
 * so that thousands of rows have their places without being drawn.
 */
export function rowTops(cases, view, width) {
  const { columns, drawn, lines, hasExpected } = view;
  const em = letterSize();
  const tops = new Float64Array(cases.length + 1);
  const letter = letterWidth(em);
  const shares = sharesOf(drawn, hasExpected);
  const letters = (share, factor = 1) => Math.max(8, Math.floor((share * width - 2 * em) / (letter * factor)));
  const room = { question: letters(shares.question), small: letters(shares.question, 0.95), expected: letters(shares.expected || 1), answer: letters(shares.column) };
  if (drawn === 1) room.answer = Math.min(room.answer, LONGEST_LINE);
  const most = Number(lines);
  cases.forEach((each, at) => {
    const height = most === 1 ? COMPACT : PADDING + LINE * Math.max(askedLines(each, room, most), answerLines(each, room, most, view) + HEAD / LINE);
    tops[at + 1] = tops[at] + Math.round(height * em);
  });
  return tops;
}

function askedLines(each, room, most) {
  const question = Math.min(most + 1, linesOf(each.question ?? each.title ?? "", room.question));
  const meta = Math.ceil((each.id.length + (each.must ? 10 : 0) + each.tags.reduce((sum, tag) => sum + tag.length + TAG, 0)) / room.small);
  return Math.max(question + meta + 0.25, Math.min(most + 1, linesOf(each.expected ?? "", room.expected)));
}

function answerLines(each, room, most, { app, columns, drawn, marksDifference }) {
  const before = drawn > columns.length ? baselineOf(app.index, each, columns[0].key) : null;
  let lines = Math.max(1, Math.min(most, linesOf(before?.answer ?? "", room.answer)));
  for (const { key } of columns) {
    const row = each.cells.get(key)?.shown.row;
    if (row === undefined) continue;
    const answer = Math.min(most, linesOf(row.answer ?? "", marksDifference ? room.answer / 1.35 : room.answer));
    lines = Math.max(lines, answer + (reasonLine(row) === null ? 0 : 1));
  }
  return lines;
}

/** How many lines of an answer fit below the head of a cell, and below its reason. */
export function linesBelow(height, hasReason) {
  return Math.max(1, Math.floor((height / letterSize() - PADDING - HEAD + 0.1) / LINE) - (hasReason ? 1 : 0));
}

const WIDE = /[\u1100-\u11ff\u2e80-\uffdc]/g;

function linesOf(text, letters) {
  const wide = /[\u1100-\uffdc]/.test(text) ? (text.match(WIDE)?.length ?? 0) : 0;
  return Math.ceil((text.length + wide) / letters);
}

/** The grid's size of letters in pixels: 0.875rem. */
function letterSize() {
  return 0.875 * parseFloat(getComputedStyle(document.documentElement).fontSize);
}

/** The mean width of a letter in pixels. */
function letterWidth(em) {
  const pen = document.createElement("canvas").getContext("2d");
  const text = "The parcel left our warehouse on Monday, 14 March, and was scanned this morning.";
  pen.font = `${em}px ${getComputedStyle(document.body).fontFamily}`;
  return (1.05 * pen.measureText(text).width) / text.length;
}
