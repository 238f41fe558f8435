"""Each dataset on each model: rates, means and breakdown; one entry of report.json's `datasets[]`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from pytest_agentbench.reports.breakdown import Entry, breakdown
from pytest_agentbench.reports.cases import CaseKey, case_key, has_verdict
from pytest_agentbench.reports.gate import Counts
from pytest_agentbench.reports.rows import Row
from pytest_agentbench.reports.statistics import JUDGED_SCALE, mean, pair, pass_rate_interval, score_interval

FINAL_SCORE = "final_score"
"""What scores a dataset that a judge scored (0-10); any other is scored by a metric (0-1)."""


def dataset_results(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One entry for each dataset and model, in order of first appearance. Rows that are of no dataset are left out."""
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
    """The mean of each metric of `rows` with its interval, over the runs with a verdict that have a score, by case."""
    scores = {
        name: [[score for row in group if (score := row["metrics"].get(name)) is not None] for group in judged]
        for name in dict.fromkeys(name for row in rows for name in row["metrics"])
    }
    return {
        name: {"mean": mean([score for group in groups for score in group]), "ci95": pair(score_interval(groups))}
        for name, groups in scores.items()
    }
