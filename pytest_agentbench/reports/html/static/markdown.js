import { el } from "./dom.js";

// A strict subset of Markdown as nodes. Its texts are an agent's, so there is no HTML and there are no images: both stay text.
// Quantifiers are bounded and blocks nest DEEPEST deep, so that no text takes more than a moment.

const DEEPEST = 8;
const MARKUP = /^ {0,3}(#{1,6} |> ?\S|```|~~~|[-*+] |\d{1,9}[.)] |\|.*\|)|\*\*\S|`[^`\n]+`|\]\(https?:/m;
const FENCE = /^ {0,3}(\x60{3,}|~{3,})/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*)/;
const RULE = /^ {0,3}([-*_])([ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])( {1,4}|$)/;
/** What ends a paragraph: a number other than 1 at the beginning of a line is mostly a part of a sentence. */
const INTERRUPTS = [FENCE, HEADING, RULE, QUOTE, /^ {0,3}([-*+]|1[.)]) /];
const INDENTED = /^( {4}|\t)/;
const DASHES = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

/** Whether a text has markup that `markdownNodes` renders; any other text is shown as it is. */
export function hasMarkup(text) {
  return MARKUP.test(text);
}

/** The nodes of a text in Markdown. `mark(text)` gives the nodes of the texts within, with parts of them marked. */
export function markdownNodes(text, mark = (part) => part) {
  return blocksOf(text.split(/\r?\n/), mark, 0);
}

function blocksOf(lines, mark, depth) {
  if (depth > DEEPEST) return [el("p", {}, lines.join("\n"))];
  const nodes = [];
  let at = 0;
  while (at < lines.length) {
    if (lines[at].trim() === "") {
      at += 1;
      continue;
    }
    const [node, end] = blockAt(lines, at, mark, depth);
    nodes.push(node);
    at = end;
  }
  return nodes;
}

/** The block that begins at a line, and the place of the line after it. */
function blockAt(lines, at, mark, depth) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence !== null) return codeBlock(lines, at, fence[1]);
  const heading = HEADING.exec(line);
  // No h1 to h6: an agent's headings are none of the page, whose outline they would break.
  if (heading !== null) return [el("p", { class: `heading level${heading[1].length}` }, inlineNodes(heading[2].replace(/[ \t]#+$/, ""), mark)), at + 1];
  if (RULE.test(line)) return [el("hr"), at + 1];
  if (QUOTE.test(line)) return quote(lines, at, mark, depth);
  if (ITEM.test(line)) return list(lines, at, mark, depth);
  if (isTable(lines, at)) return table(lines, at, mark);
  if (INDENTED.test(line)) return indentedCode(lines, at);
  return paragraph(lines, at, mark);
}

function endOf(lines, from, belongs) {
  let end = from;
  while (end < lines.length && belongs(lines[end], end)) end += 1;
  return end;
}

function codeBlock(lines, at, fence) {
  const end = endOf(lines, at + 1, (line) => !(line.trimStart().startsWith(fence) && line.trim() === fence[0].repeat(line.trim().length)));
  return [el("pre", {}, lines.slice(at + 1, end).join("\n")), end + 1];
}

function indentedCode(lines, at) {
  const end = endOf(lines, at, (line) => INDENTED.test(line));
  return [el("pre", {}, lines.slice(at, end).map((line) => line.replace(INDENTED, "")).join("\n")), end];
}

function quote(lines, at, mark, depth) {
  const end = endOf(lines, at, (line) => QUOTE.test(line));
  return [el("blockquote", {}, blocksOf(lines.slice(at, end).map((line) => line.replace(QUOTE, "")), mark, depth + 1)), end];
}

/** A list: each item has its line and those that are indented as far as its text. */
function list(lines, at, mark, depth) {
  const ordered = /\d/.test(ITEM.exec(lines[at])[2]);
  const isItem = (line) => {
    const item = ITEM.exec(line ?? "");
    return item !== null && /\d/.test(item[2]) === ordered && !RULE.test(line);
  };
  const items = [];
  let end = at;
  while (isItem(lines[end])) {
    const [start, indent] = [end, ITEM.exec(lines[end])[0].length];
    const within = (line) => line.search(/\S/) >= Math.min(indent, 2);
    end = endOf(lines, start + 1, (line, place) => within(line) || (line.trim() === "" && within(lines[place + 1] ?? "")));
    const rest = lines.slice(start + 1, end).map((line) => line.slice(Math.min(indent, Math.max(0, line.search(/\S/)))));
    items.push(el("li", {}, itemNodes([lines[start].slice(indent), ...rest], mark, depth)));
    if (lines[end]?.trim() === "" && isItem(lines[end + 1])) end += 1;
  }
  const first = Number.parseInt(ITEM.exec(lines[at])[2], 10);
  return [ordered ? el("ol", { start: first === 1 ? null : first }, items) : el("ul", {}, items), end];
}

/** An item's first paragraph is its text. */
function itemNodes(lines, mark, depth) {
  const [first, ...rest] = blocksOf(lines, mark, depth + 1);
  return [first?.localName === "p" && first.className === "" ? [...first.childNodes] : first, rest];
}

function isTable(lines, at) {
  return lines[at].includes("|") && DASHES.test(lines[at + 1] ?? "") && lines[at + 1].includes("|");
}

function table(lines, at, mark) {
  const end = endOf(lines, at + 2, (line) => line.includes("|"));
  const [head, ...rows] = [lines[at], ...lines.slice(at + 2, end)].map(cellsOf);
  const row = (cells, tag) => el("tr", {}, head.map((_, place) => el(tag, {}, inlineNodes(cells[place] ?? "", mark))));
  return [el("div", { class: "scroll" }, el("table", {}, el("thead", {}, row(head, "th")), el("tbody", {}, rows.map((cells) => row(cells, "td"))))), end];
}

function cellsOf(line) {
  return line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function paragraph(lines, at, mark) {
  const end = endOf(lines, at + 1, (line, place) => line.trim() !== "" && !INTERRUPTS.some((start) => start.test(line)) && !isTable(lines, place));
  return [el("p", {}, inlineNodes(lines.slice(at, end).map((line) => line.trim()).join("\n"), mark)), end];
}

const INLINE = new RegExp(
  [
    String.raw`\\(?<escaped>[\\\x60*_{}[\]()#+.!|~>-])`,
    String.raw`(?<ticks>\x60{1,3})(?<code>[^\x60](?:.{0,999}?[^\x60])?)\k<ticks>(?!\x60)`,
    String.raw`\*\*(?=\S)(?<strong>.{0,999}?[^\s*])\*\*`,
    String.raw`(?<!\w)__(?=\S)(?<strong2>.{0,999}?[^\s_])__(?!\w)`,
    String.raw`\*(?=[^\s*])(?<em>[^*]{0,999}?[^\s*])\*`,
    String.raw`(?<!\w)_(?=[^\s_])(?<em2>[^_]{0,999}?[^\s_])_(?!\w)`,
    String.raw`~~(?=\S)(?<del>[^~]{1,999})~~`,
    String.raw`(?<image>!?)\[(?<label>[^[\]\n]{1,500})\]\((?<target>[^\s()<>]{1,2000})\)`,
  ].join("|"),
  "gs",
);

function inlineNodes(text, mark, depth = 0) {
  const nodes = [];
  let end = 0;
  for (const match of depth > DEEPEST ? [] : text.matchAll(INLINE)) {
    const node = inlineNode(match.groups, mark, depth);
    if (node === null) continue;
    if (match.index > end) nodes.push(mark(text.slice(end, match.index)));
    nodes.push(node);
    end = match.index + match[0].length;
  }
  if (end < text.length) nodes.push(mark(text.slice(end)));
  return nodes;
}

/** The node of a match; null if the text stays as it is. */
function inlineNode({ escaped, code, strong, strong2, em, em2, del, image, label, target }, mark, depth) {
  const inner = (text) => inlineNodes(text, mark, depth + 1);
  if (escaped !== undefined) return escaped;
  if (code !== undefined) return el("code", {}, mark(code));
  if (label !== undefined) return image === "!" ? null : linkNodes(target, inner(label), label);
  if (strong ?? strong2) return el("strong", {}, inner(strong ?? strong2));
  if (em ?? em2) return el("em", {}, inner(em ?? em2));
  return el("del", {}, inner(del));
}

/** A link with the address that it leads to in sight; null if that is no plain web address. */
function linkNodes(target, nodes, label) {
  const url = URL.canParse?.(target) ? new URL(target) : null;
  if (url === null || !/^https?:$/.test(url.protocol) || url.username !== "" || url.password !== "") return null;
  const link = (...children) => el("a", { href: url.href, rel: "noopener noreferrer nofollow", target: "_blank" }, children);
  return label === target || label === url.href ? link(url.href) : [link(nodes), el("span", { class: "target" }, ` (${url.href})`)];
}
