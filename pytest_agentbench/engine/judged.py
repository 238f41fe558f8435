"""Which judge weighed a run by which rubric, and what it came to: what people's labels are compared with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pytest_agentbench.engine.job import Job
from pytest_agentbench.engine.verdict import metrics_of
from pytest_agentbench.records import Case, Evaluation, JudgeResult
from pytest_agentbench.store import fingerprint, metric_judge_input, rubric_input

PANEL = "judge"
"""What the judges of the evaluation profile are called, in all places where metrics go by their names."""

_DIGITS = 16


def judged_by(job: Job, case: Case, evaluation: Evaluation | None) -> list[dict[str, Any]]:
    """The verdicts of models on a run: those of the profile's judges together, and of each metric that took votes.

    `judge` and `rubric` are 16 hex digits over everything that makes the judge and the measure what they are; `score`
    is the judges' overall score (0-10), None of votes.
    """
    if evaluation is None:
        return []
    found = [*_panel(job, evaluation.judge), *_votes(job, case, evaluation)]
    rubric = rubric_hash(case) if found else None
    return [{**each, "rubric": rubric} for each in found]


def rubric_hash(case: Case) -> str:
    """16 hex digits over what the case measures a run by."""
    return fingerprint(rubric_input(case))[:_DIGITS]


def _panel(job: Job, judged: JudgeResult | None) -> Iterator[dict[str, Any]]:
    if judged is not None:
        yield {
            "by": PANEL,
            "judge": job.plan.judge_hash[:_DIGITS],
            "models": sorted({iteration.model for iteration in judged.iterations}),
            "passed": judged.passed,
            "score": judged.overall,
        }


def _votes(job: Job, case: Case, evaluation: Evaluation) -> Iterator[dict[str, Any]]:
    """Metrics by their names in report.json: one that is used twice is `name`, `name-2`, ..."""
    used: dict[str, int] = {}
    for spec, result in zip(metrics_of(case, job.plan.evaluation_profile), evaluation.metrics, strict=False):
        used[result.name] = number = used.get(result.name, 0) + 1
        if not result.details.get("votes") or result.score is None:
            continue
        yield {
            "by": result.name if number == 1 else f"{result.name}-{number}",
            "judge": fingerprint(metric_judge_input(spec, job.judges))[:_DIGITS],
            "models": [result.details["model"]] if result.details.get("model") else [],
            "passed": result.score > 0.5,
            "score": None,
        }
