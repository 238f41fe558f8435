const MOST_EDITS = 800;

/**
 * The shortest edit between two lists (Myers, "An O(ND) Difference Algorithm and Its Variations", 1986): pairs
 * `[at in one or null, at in other or null]` in order. Lists that differ in more than 800 places are not matched in
 * between what they begin and end with in common.
 */
export function aligned(one, other) {
  let start = 0;
  while (start < one.length && start < other.length && one[start] === other[start]) start += 1;
  let [left, right] = [one.length, other.length];
  while (left > start && right > start && one[left - 1] === other[right - 1]) [left, right] = [left - 1, right - 1];
  const pairs = [];
  for (let at = 0; at < start; at += 1) pairs.push([at, at]);
  const inner = edits(one.slice(start, left), other.slice(start, right));
  for (const [a, b] of inner) pairs.push([a === null ? null : a + start, b === null ? null : b + start]);
  for (let at = left; at < one.length; at += 1) pairs.push([at, at - left + right]);
  return pairs;
}

function edits(one, other) {
  const [n, m] = [one.length, other.length];
  const most = Math.min(n + m, MOST_EDITS);
  const furthest = new Int32Array(2 * most + 3);
  const steps = [];
  for (let d = 0; d <= most; d += 1) {
    steps.push(furthest.slice(most - d, most + d + 3));
    for (let k = -d; k <= d; k += 2) {
      const at = most + 1 + k;
      let x = k === -d || (k !== d && furthest[at - 1] < furthest[at + 1]) ? furthest[at + 1] : furthest[at - 1] + 1;
      while (x < n && x - k < m && one[x] === other[x - k]) x += 1;
      furthest[at] = x;
      if (x >= n && x - k >= m) return traced(steps, n, m);
    }
  }
  return [...one.map((_, at) => [at, null]), ...other.map((_, at) => [null, at])];
}

function traced(steps, n, m) {
  const pairs = [];
  let [x, y] = [n, m];
  for (let d = steps.length - 1; d >= 0; d -= 1) {
    const furthest = (k) => steps[d][k + d + 1];
    const k = x - y;
    const down = k === -d || (k !== d && furthest(k - 1) < furthest(k + 1));
    const before = down ? k + 1 : k - 1;
    const from = d === 0 ? 0 : furthest(before);
    while (x > (d === 0 ? 0 : down ? from : from + 1)) pairs.push([(x -= 1), (y -= 1)]);
    if (d === 0) break;
    if (down) pairs.push([null, (y -= 1)]);
    else pairs.push([(x -= 1), null]);
  }
  return pairs.reverse();
}

/** Texts with less in common than this are told apart as a whole: their words would match by chance. */
const LEAST_ALIKE = 0.2;
const LONGEST = 20_000;
/** Fewer equal words than this between two changes belong to the change, so that it can be read. */
const ISLAND = 3;

/**
 * The words of two texts: `[kind, text]` with kind "same", "gone" or "come", what is gone before what came in its place; null
 * if the texts have next to nothing in common, or are too long to be compared.
 */
export function wordDiff(left, right) {
  if (Math.max(left.length, right.length) > LONGEST) return null;
  const [one, other] = [left, right].map((text) => text.match(/\s*\S+/g) ?? []);
  const runs = equalRuns(aligned(one, other));
  const parts = [];
  let [gone, come] = ["", ""];
  runs.forEach(({ equal, pairs }, at) => {
    const island = equal && at > 0 && at < runs.length - 1 && pairs.length < ISLAND;
    const text = (words, side) => pairs.map((pair) => (pair[side] === null ? "" : words[pair[side]])).join("");
    if (!equal || island) {
      gone += text(one, 0);
      come += text(other, 1);
      return;
    }
    flush();
    parts.push(["same", text(other, 1)]);
  });
  flush();
  const same = parts.reduce((sum, [kind, text]) => sum + (kind === "same" ? text.length : 0), 0);
  return same < LEAST_ALIKE * Math.max(left.length, right.length) ? null : parts;

  function flush() {
    if (gone !== "") parts.push(["gone", gone]);
    if (come !== "") parts.push(["come", come]);
    [gone, come] = ["", ""];
  }
}

/** Pairs in runs of equal ones and of others: `{equal, pairs}`. */
function equalRuns(pairs) {
  const runs = [];
  for (const pair of pairs) {
    const equal = pair[0] !== null && pair[1] !== null;
    if (runs.at(-1)?.equal !== equal) runs.push({ equal, pairs: [] });
    runs.at(-1).pairs.push(pair);
  }
  return runs;
}
