"""report.json, with `report.schema.json` beside this file, and what a session writes beside it."""

from __future__ import annotations

import json
import os
import secrets
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import fsum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.errors import InfrastructureError
from pytest_agentbench.extensions import load_extensions
from pytest_agentbench.metrics.scoring import pass_hat_k
from pytest_agentbench.reports.breakdown import Entry, breakdown
from pytest_agentbench.reports.gate import CaseKey, Counts, apply_gate, case_key, has_verdict
from pytest_agentbench.reports.judge_agreement import judge_results
from pytest_agentbench.reports.rows import Row
from pytest_agentbench.reports.sections import model_sections, sections_in
from pytest_agentbench.statistics.estimates import (
    JUDGED_SCALE,
    by_k,
    flakiness,
    mean,
    over_cases,
    pair,
    pass_rate_interval,
    score_interval,
    sd,
    standard_error,
)
from pytest_agentbench.statistics.resampling import bootstrap_interval

if TYPE_CHECKING:
    pass


FINAL_SCORE = "final_score"
"""What scores a dataset that a judge scored (0-10); any other is scored by a metric (0-1)."""


def dataset_results(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return one entry for each dataset and model, in order of first appearance. Rows that are of no dataset are left
    out.
    """
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row["dataset"] is not None:
            groups[row["dataset"], row["model_id"]].append(row)
    return [_result(group) for group in groups.values()]


def _result(rows: Sequence[Row]) -> dict[str, Any]:
    counts = Counts.of(row["outcome"] for row in rows)
    cases: dict[CaseKey, list[Row]] = defaultdict(list)
    for row in rows:
        cases[case_key(row)].append(row)
    judged = [list(filter(has_verdict, group)) for group in cases.values()]
    verdicts = [[row["outcome"] == "passed" for row in group] for group in judged]
    scorer = _scorer(rows)
    scores = [[score for row in group if (score := _score(row, scorer)) is not None] for group in judged]
    scale = JUDGED_SCALE if scorer == FINAL_SCORE else None
    return {
        "dataset": rows[0]["dataset"],
        "model_id": rows[0]["model_id"],
        "runs": counts.runs,
        "items": len(cases),
        "pass_rate": counts.pass_rate,
        "pass_rate_ci95": pair(pass_rate_interval([(sum(each), len(each)) for each in verdicts])),
        "completion": counts.completion,
        "scored_by": scorer,
        "mean_score": mean([score for group in scores for score in group]),
        "scored": sum(map(bool, scores)),
        "score_ci95": pair(score_interval(scores, scale)),
        "metrics": _metrics(rows, judged),
        "breakdown": breakdown([_entry(row, scorer) for row in rows], scale) if _may_group(rows) else [],
    }


def _may_group(rows: Sequence[Row]) -> bool:
    return any(row["fields"] or row["tags"] for row in rows)


def _scorer(rows: Sequence[Row]) -> str | None:
    """FINAL_SCORE, else the metric that most rows have (of several the first), else None."""
    if any(row["final_score"] is not None for row in rows):
        return FINAL_SCORE
    metrics = Counter(name for row in rows for name in row["metrics"])
    return max(metrics, key=metrics.__getitem__, default=None)


def _score(row: Row, scorer: str | None) -> float | None:
    score: float | None = row["final_score"] if scorer == FINAL_SCORE else row["metrics"].get(scorer)
    return score


def _entry(row: Row, scorer: str | None) -> Entry:
    score, passed = (_score(row, scorer), row["outcome"] == "passed") if has_verdict(row) else (None, None)
    return Entry(row["fields"], row["tags"], score, passed, case_key(row))


def _metrics(rows: Sequence[Row], judged: Sequence[Sequence[Row]]) -> dict[str, Any]:
    """Return the mean of each metric of `rows` with its interval, over the runs with a verdict that have a score, by
    case.
    """
    scores = {
        name: [[score for row in group if (score := row["metrics"].get(name)) is not None] for group in judged]
        for name in dict.fromkeys(name for row in rows for name in row["metrics"])
    }
    return {
        name: {"mean": mean([score for group in groups for score in group]), "ci95": pair(score_interval(groups))}
        for name, groups in scores.items()
    }


Report = dict[str, Any]

_UNKNOWN_COST = {"run": None, "judge": None}
_SESSION: dict[str, Any] = {
    "started_at": None,
    "duration_seconds": None,
    "exit_status": None,
    "command": [],
    "versions": {},
    "profiles": {},
    "shard": None,
    "selection": None,
    "merged": None,
    "warnings": [],
    "faults": [],
    "uncollected": [],
}


def build_report(
    rows: Sequence[Row], session: Mapping[str, Any], spent_usd: Mapping[str, float | None] | None = None
) -> Report:
    """Return the whole report of rows from `run_row`, in the order given, one per run.

    `session` holds JSON values: `started_at` (ISO 8601, UTC), `duration_seconds`, `exit_status`, `command` (arguments),
    `versions`, `profiles` (names by kind), `gate` (`Gate.as_dict()`), `warnings` and `faults` (sentences),
    `uncollected` (`collection_problems`), `shard`, `selection`, `merged`. What it lacks is null or empty. `spent_usd`
    is what the session itself paid, `run` and `judge` (USD, None: unknown).
    """
    by_case: dict[tuple[CaseKey, str], list[Row]] = defaultdict(list)
    for row in rows:
        by_case[case_key(row), row["model_id"]].append(row)
    cases = [_case(repetitions) for repetitions in by_case.values()]
    by_model: dict[str, list[tuple[list[Row], dict[str, Any]]]] = defaultdict(list)
    for (_, model_id), repetitions, case in zip(by_case, by_case.values(), cases, strict=True):
        by_model[model_id].append((repetitions, case))
    ungated = apply_gate(Counts.of(row["outcome"] for row in rows), fail_under=None).as_dict()
    return {
        "schema_version": 1,
        "session": {**_SESSION, "gate": ungated, **session},
        "totals": {**_tally(rows), **_sums(rows), "spent_usd": dict(spent_usd or _UNKNOWN_COST)},
        "models": [_model(*zip(*grouped, strict=True)) for grouped in by_model.values()],
        "judges": judge_results(rows),
        "datasets": dataset_results(rows),
        "cases": cases,
        "human": None,
        "runs": list(rows),
    }


def write_report(report: Report, path: Path) -> None:
    """Write report.json whole or not at all: a reader, or a kill at any moment, finds the old one or the new one."""
    text = json.dumps(report, allow_nan=False, separators=(",", ":")) + "\n"
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("x", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise InfrastructureError(
            f"{path}: the report could not be written ({error.strerror or error}); "
            "runs and evaluations are kept in the output folder; name another place with --agentbench-json"
        ) from error


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of report.json, with the sections of all packs."""
    schema: dict[str, Any] = json.loads(Path(__file__).with_name("report.schema.json").read_text(encoding="utf-8"))
    definitions = schema["$defs"]
    for name, section in load_extensions("report_section").items():
        added = section.schema()
        definitions |= added.get("$defs", {})
        for kind, entry in (("row", "run"), ("model", "model")):
            if kind in added:
                definitions[entry]["properties"][name] = added[kind]
    return schema


def suite_properties(report: Report) -> list[tuple[str, object]]:
    """JUnit's test-suite properties: totals, gate and per-model means. What is unknown has no property."""
    verdict, totals = report["session"]["gate"], report["totals"]
    properties: list[tuple[str, object]] = [
        ("agentbench.pass_rate", totals["pass_rate"]),
        ("agentbench.completion", totals["completion"]),
        ("agentbench.gate", None if verdict["passed"] is None else "passed" if verdict["passed"] else "failed"),
        ("agentbench.fail_under", verdict["fail_under"]),
        ("agentbench.cost_usd.run", totals["cost_usd"]["run"]),
        ("agentbench.cost_usd.judge", totals["cost_usd"]["judge"]),
        ("agentbench.spent_usd.run", totals["spent_usd"]["run"]),
        ("agentbench.spent_usd.judge", totals["spent_usd"]["judge"]),
        ("agentbench.reused", totals["reused"]),
        ("agentbench.rejudged", totals["rejudged"]),
    ]
    for model in report["models"]:
        prefix = f"agentbench.model.{model['model_id']}"
        properties += [(f"{prefix}.{name}", model[name]) for name in ("runs", "pass_rate", "completion", "mean_score")]
        properties += [(f"{prefix}.metric.{name}", score) for name, score in model["metrics"].items()]
        properties += [(f"{prefix}.judge.{name}", score) for name, score in model["judge"].items()]
        for section, made in sections_in([model]).items():
            found = made.model_properties(model[section])
            properties += [(f"{prefix}.{section}.{name}", value) for name, value in found.items()]
        properties += [(f"{prefix}.{mark}", True) for mark in ("scripted", "own_agent") if model[mark]]
        properties += [(f"{prefix}.predictions", model["predictions"])]
    return [(name, value) for name, value in properties if value is not None]


def _tally(rows: Sequence[Row]) -> dict[str, Any]:
    counts = Counts.of(row["outcome"] for row in rows)
    return {
        "runs": counts.runs,
        "passed": counts.passed,
        "failed": counts.failed,
        "errors": counts.errors,
        "skipped": counts.skipped,
        "reused": sum(row["reused"] for row in rows),
        "rejudged": sum(row["reused"] and not row["evaluation_reused"] for row in rows),
        "recorded": sum(row["cassette"] == "recorded" for row in rows),
        "replayed": sum(row["cassette"] == "replayed" for row in rows),
        "pass_rate": counts.pass_rate,
        "completion": counts.completion,
    }


def _sums(rows: Sequence[Row]) -> dict[str, Any]:
    """Money and tokens of what ran: null where any part is unknown; `at_least` sums the known parts."""
    ran = [row for row in rows if row["outcome"] != "skipped"]
    usages = [row["usage"] or {} for row in ran]
    parts = {
        "cost_usd": {part: [row["cost_usd"][part] for row in ran] for part in ("run", "judge")},
        "tokens": {part: [usage.get(f"{part}_tokens") for usage in usages] for part in ("input", "output", "total")},
    }
    exact: dict[str, Any] = {"at_least": {}}
    for name, columns in parts.items():
        known = {part: [value for value in values if value is not None] for part, values in columns.items()}
        add = fsum if name == "cost_usd" else sum
        sums = {part: add(values) if values else None for part, values in known.items()}
        exact["at_least"][name] = sums
        exact[name] = {part: sums[part] if len(known[part]) == len(ran) else None for part in columns}
    return exact


def _model(groups: Sequence[Sequence[Row]], cases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """`groups` are the model's rows, case by case, and `cases` the entries of these in `cases[]`.

    Rates and means are over the runs with a verdict; runs, money and tokens are of all.
    """
    rows = [row for group in groups for row in group]
    by_case = [list(filter(has_verdict, group)) for group in groups]
    judged = [row for group in by_case for row in group]
    verdicts = [[float(row["outcome"] == "passed") for row in group] for group in by_case]
    scores = [_scores(group) for group in by_case]
    first = rows[0]
    return {
        "model_id": first["model_id"],
        "label": first["label"],
        "scripted": first["scripted"],
        "own_agent": first["own_agent"],
        "predictions": first["predictions"],
        **_tally(rows),
        "pass_rate_ci95": pair(pass_rate_interval([(int(sum(group)), len(group)) for group in verdicts])),
        "pass_rate_se": standard_error(verdicts),
        **over_cases(cases),
        "mean_score": mean([score for group in scores for score in group]),
        "scored_cases": sum(map(bool, scores)),
        "cases": len(scores),
        "score_ci95": pair(score_interval(scores, JUDGED_SCALE)),
        "score_se": standard_error(scores),
        "score_bootstrap_ci95": pair(bootstrap_interval(scores)),
        "metrics": _means(rows, "metrics"),
        **_agreement(rows),
        "judge": _means(rows, "judge"),
        **model_sections(judged),
        **_sums(rows),
        "duration_seconds": _spread(row["duration_seconds"] for row in judged),
    }


def _scores(rows: Iterable[Row]) -> list[float]:
    return [row["final_score"] for row in rows if row["final_score"] is not None]


def _agreement(rows: Sequence[Row]) -> dict[str, Any]:
    """Mean agreement of votes by metric, where any metric has several votes."""
    means = _means(rows, "agreement")
    return {"agreement": means} if means else {}


def _means(rows: Iterable[Row], part: str) -> dict[str, float | None]:
    """Means by name over the runs with a verdict that have the score; null where none has."""
    columns: dict[str, list[float]] = {}
    for row in rows:
        for name, score in (row.get(part) or {}).items():
            column = columns.setdefault(name, [])
            if score is not None and has_verdict(row):
                column.append(score)
    return {name: mean(column) for name, column in columns.items()}


def _spread(durations: Iterable[float | None]) -> dict[str, float | None]:
    """Mean, median and 95th percentile (nearest rank) and the longest, in seconds."""
    known = sorted(value for value in durations if value is not None)
    if not known:
        return dict.fromkeys(("mean", "p50", "p95", "max"))
    last = len(known) - 1
    return {
        "mean": mean(known),
        "p50": known[last // 2],
        "p95": known[-(-95 * len(known) // 100) - 1],
        "max": known[-1],
    }


def _case(rows: Sequence[Row]) -> dict[str, Any]:
    first, counts = rows[0], Counts.of(row["outcome"] for row in rows)
    scores = _scores(filter(has_verdict, rows))
    n, passed = counts.judged, counts.passed
    return {
        "case": case_key(first)[0],
        "case_id": first["case_id"],
        "model_id": first["model_id"],
        "tags": first["tags"],
        "repetitions": len(rows),
        "passed": passed,
        "failed": counts.failed,
        "errors": counts.errors,
        "skipped": counts.skipped,
        "pass_rate": counts.pass_rate,
        **by_k(n, passed),
        "flakiness": flakiness(n, passed),
        "mean_score": mean(scores),
        "sd": sd(scores),
        "must_pass": first["must_pass"],
        "thresholds": _thresholds(first["thresholds"], counts),
    }


def _thresholds(required: Mapping[str, float | None] | None, counts: Counts) -> dict[str, Any] | None:
    """Return what the case asks of its repetitions together, and what came; pass^k with k = all judged repetitions."""
    actual = {"pass_rate": counts.pass_rate, "pass_hat_k": pass_hat_k(counts.judged, counts.passed, counts.judged)}
    facts = {
        name: {
            "required": wanted,
            "actual": actual[name],
            "met": None if (got := actual[name]) is None else got >= wanted,
        }
        for name, wanted in (required or {}).items()
        if wanted is not None
    }
    return facts or None
