import { readBlock, unpack } from "./data.js";

const MOST_KEPT = 4;
const chunks = new Map();
const expected = new Map();

/** Scripts beside the page call this with their name and their chunk. */
globalThis.agentbenchChunk = (name, text) => expected.get(name)?.(text);

/** What is stored of a run (of `indexed`): `{run, evaluation, notes}`, see details.py. Rejects with what went wrong. */
export async function loadDetail(app, run) {
  const facts = app.data.details;
  if (facts === null) return { run: null, evaluation: null, notes: ["This page was made without the details of runs."] };
  if (facts.kind === "live") return fetchDetail(run);
  const { starts } = facts;
  let at = starts.length - 1;
  while (starts[at] > run.at) at -= 1;
  const details = facts.kind === "chunks" ? await readOnce(facts.files[at], readScript) : await readOnce(facts.blocks[at], readBlock);
  return details[run.at - starts[at]];
}

async function fetchDetail(run) {
  const answer = await fetch(`run.json?nodeid=${encodeURIComponent(run.row.nodeid)}`, { cache: "no-cache" });
  if (!answer.ok) throw new Error(`The server answered ${answer.status} ${answer.statusText}.`);
  return answer.json();
}

/** The few chunks that were used last stay unpacked. */
function readOnce(name, read) {
  const found = chunks.get(name) ?? read(name);
  chunks.delete(name);
  chunks.set(name, found);
  found.catch(() => chunks.delete(name));
  if (chunks.size > MOST_KEPT) chunks.delete(chunks.keys().next().value);
  return found;
}

/** A chunk from a script beside the page: the one kind of file that a page opened as a file may read. */
async function readScript(address) {
  const name = address.slice(address.lastIndexOf("/") + 1);
  const script = document.createElement("script");
  const text = await new Promise((resolve, reject) => {
    expected.set(name, resolve);
    script.addEventListener("load", () => reject(new Error(`${decodeURI(address)} beside this page holds no details.`)));
    script.addEventListener("error", () =>
      reject(new Error(`${decodeURI(address)} is missing beside this page. Keep that folder together with the page.`)),
    );
    script.src = address;
    document.head.append(script);
  }).finally(() => {
    expected.delete(name);
    script.remove();
  });
  return unpack(text);
}
