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

/**
 * Two texts line by line: `{kind, left, right}` with kind "same", "changed", "removed" or "added"; a removed line that
 * an added one stands in place of is changed.
 */
export function lineDiff(left, right) {
  const [one, other] = [left.split("\n"), right.split("\n")];
  const rows = [];
  let removed = [];
  let added = [];

  function flush() {
    for (let at = 0; at < Math.max(removed.length, added.length); at += 1) {
      const [gone, come] = [removed[at] ?? null, added[at] ?? null];
      rows.push({ kind: gone === null ? "added" : come === null ? "removed" : "changed", left: gone, right: come });
    }
    removed = [];
    added = [];
  }

  for (const [a, b] of aligned(one, other)) {
    if (a === null) added.push(other[b]);
    else if (b === null) removed.push(one[a]);
    else {
      flush();
      rows.push({ kind: "same", left: one[a], right: other[b] });
    }
  }
  flush();
  return rows;
}

const LONGEST_LINE = 2000;
const LEAST_ALIKE = 0.4;

/** The words of two lines: for each line a list of `[text, differs]`. In lines that are hardly alike nothing is told apart. */
export function wordDiff(left, right) {
  if (left.length > LONGEST_LINE || right.length > LONGEST_LINE) return [[[left, false]], [[right, false]]];
  const [one, other] = [left.match(/\s+|\w+|[^\s\w]/gu) ?? [], right.match(/\s+|\w+|[^\s\w]/gu) ?? []];
  const [gone, come] = [[], []];
  for (const [a, b] of aligned(one, other)) {
    if (a !== null) gone.push([one[a], b === null]);
    if (b !== null) come.push([other[b], a === null]);
  }
  const same = gone.reduce((sum, [text, differs]) => sum + (differs ? 0 : text.length), 0);
  if (same < LEAST_ALIKE * Math.max(left.length, right.length)) return [[[left, false]], [[right, false]]];
  return [joinedRuns(gone), joinedRuns(come)];
}

function joinedRuns(words) {
  const runs = [];
  for (const [text, differs] of words) {
    const last = runs.at(-1);
    if (last && last[1] === differs) last[0] += text;
    else runs.push([text, differs]);
  }
  return runs;
}
