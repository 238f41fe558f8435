/** Why a run failed, in a few words that runs with the same trouble share: "check has-answer", "HTTP 503"; null if it did not. */
export function reasonOf(row) {
  return row.reason;
}

/** Why a run failed, in one line: its message from its reason on; null if it did not. */
export function reasonLine(row) {
  if (!row.message) return row.reason;
  if (row.outcome === "passed") return null;
  const at = row.reason === null ? 0 : row.message.indexOf(row.reason.replace(/…$/, ""));
  return row.message.slice(Math.max(0, at)).split("\n", 1)[0];
}
