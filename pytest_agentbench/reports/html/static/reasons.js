/** Who was asked, or which line of which file is meant: the same trouble of several models or cases is one reason. */
const ABOUT = /^(?:(?:scripted )?model '[^']*'(?: at \S+)?|(?:[A-Za-z]:)?[^:\n]{1,400}:\d{1,9}(?::\d{1,9})?): /;

/** Why a run failed, in the few words before its message's colon: "check has-answer", "HTTP 503"; null if it did not. */
export function reasonOf(row) {
  if (row.outcome !== "failed" && row.outcome !== "error") return null;
  if (!row.message) return row.status === null || row.status === "success" ? "no reason told" : `run ${row.status}`;
  const [head] = row.message.replace(ABOUT, "").split(/: |\n/, 1);
  return head.length > 80 ? `${head.slice(0, 79)}…` : head;
}

/** Why a run failed, in one line; null if it did not. */
export function reasonLine(row) {
  if (!row.message) return reasonOf(row);
  if (row.outcome === "passed") return null;
  return row.message.replace(ABOUT, "").split("\n", 1)[0];
}
