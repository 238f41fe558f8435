/** The key of the column that a run belongs to. Only this function decides what is compared side by side. */
export function columnKey(row) {
  return row.model_id;
}

/** The columns of a report in its order: `{key, model, name, what}`; `what` says what it is, as far as the name does not. */
export function columnsOf(report) {
  const columns = new Map();
  const models = new Map(report.models.map((model) => [model.model_id, model]));
  for (const row of [...report.models, ...report.runs]) {
    const key = columnKey(row);
    if (!columns.has(key)) columns.set(key, column(key, models.get(row.model_id) ?? row));
  }
  return [...columns.values()];
}

function column(key, model) {
  const name = model.label ? key.replace(model.model_id, model.label) : key;
  const what = [
    name === key ? null : (model.asked_model ?? model.model_id),
    model.scripted ? "scripted, not a model" : null,
    model.own_agent ? "own agent" : null,
    model.predictions ? `predictions of ${model.predictions}` : null,
  ];
  return { key, model: model.model_id, name, what: what.filter(Boolean).join(" · ") };
}
