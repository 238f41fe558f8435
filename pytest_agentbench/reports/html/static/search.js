/**
 * The search over cases: all words must be found, each at the beginning of a word.
 *
 * `"two words"` is a phrase, `-word` must not be found, `*part` may begin within a word, and `tag:`, `tool:` and `id:` look at
 * these only. There are no regular expressions, so that no search can hang.
 */
const TERM = /(-?)(?:(tag|tool|id):)?(?:"([^"]*)"?|(\S+))/g;
const BETWEEN = "\u0000";
const IN_WORD = /[\p{L}\p{N}\p{M}]/u;
/** Scripts that are written without spaces: their words can begin anywhere. */
const UNSPACED = /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]/u;

/** The terms of a search: `{not, key, text}` with key "tag", "tool", "id" or null. */
export function parseSearch(query) {
  return [...fold(query).matchAll(TERM)]
    .map(([, minus, key = null, phrase, word]) => ({ not: minus !== "", key, text: phrase ?? word }))
    .filter(({ text }) => text !== "" && text !== "*");
}

/** The words that a search must find in texts, for marking them. */
export function wordsOf(terms) {
  return terms.filter(({ not, key }) => !not && key === null).map(({ text }) => text);
}

/** Lower case and spaces for line breaks, each character in its place. */
export function fold(text) {
  const spaced = text.replace(/\s/g, " ");
  const lower = spaced.toLowerCase();
  if (lower.length === text.length) return lower;
  return spaced.replace(/./gu, (sign) => sign.toLowerCase().slice(0, sign.length));
}

/** What is looked through: `texts` together, and `tags`, `tools` and `ids` each. Null and undefined texts are left out. */
export function subjectOf({ texts, tags, tools, ids }) {
  const all = [...texts, ...tags, ...tools, ...ids].filter((text) => text != null);
  return { text: fold([...new Set(all)].join(BETWEEN)), tag: tags.map(fold), tool: tools.map(fold), id: ids.map(fold) };
}

/** Whether a subject has all that the terms ask for. */
export function found(terms, subject) {
  return terms.every(({ not, key, text }) => {
    const has = key === null ? wordAt(subject.text, text) >= 0 : subject[key].some((each) => wordAt(each, text) >= 0);
    return has !== not;
  });
}

/** The first place from which a word begins in a folded text; -1 if there is none. */
export function wordAt(text, word, from = 0) {
  if (word.startsWith("*")) return text.indexOf(word.slice(1), from);
  const anywhere = UNSPACED.test(word) || !IN_WORD.test(word[0]);
  for (let at = text.indexOf(word, from); at >= 0; at = text.indexOf(word, at + 1)) {
    if (anywhere || at === 0 || !IN_WORD.test(text[at - 1])) return at;
  }
  return -1;
}

/** A text in parts `[text, matches]`, those that the words match apart. */
export function splitMatches(text, words) {
  const folded = fold(text);
  const parts = [];
  let at = 0;
  while (at < text.length) {
    let [next, length] = [text.length, 0];
    for (const word of words) {
      const place = wordAt(folded, word, at);
      if (place >= 0 && place < next) [next, length] = [place, word.length - word.startsWith("*")];
    }
    if (next > at) parts.push([text.slice(at, next), false]);
    if (length > 0) parts.push([text.slice(next, next + length), true]);
    at = next + length;
  }
  return parts;
}

/** The text from shortly before its first match, if that lies beyond the first `visible` characters. */
export function fromMatch(text, words, visible) {
  const folded = fold(text);
  const places = words.map((word) => wordAt(folded, word)).filter((at) => at >= 0);
  const first = Math.min(...places);
  if (places.length === 0 || first < visible) return text;
  const from = text.lastIndexOf(" ", first - BEFORE) + 1 || first - BEFORE;
  return `…${text.slice(from)}`;
}

const BEFORE = 40;
