import { columnKey } from "./columns.js";

/** The mean of a figure over each column's runs in which it is known, as `{mean, known, ran}` by column. */
export function runMeans(app, figure) {
  const means = new Map();
  for (const { row } of app.index.runs) {
    if (row.outcome === "skipped") continue;
    const key = columnKey(row);
    if (!means.has(key)) means.set(key, { sum: 0, known: 0, ran: 0 });
    const each = means.get(key);
    const value = figure(row);
    each.ran += 1;
    if (value === null) continue;
    each.sum += value;
    each.known += 1;
  }
  for (const each of means.values()) each.mean = each.known === 0 ? null : each.sum / each.known;
  return means;
}
