"""A verdict as `gen_ai.evaluation.result` events: one of the whole, one of each check, metric and judged dimension."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pytest_agentbench.records import CheckResult, Evaluation, JudgeResult, MetricResult

EVENT = "gen_ai.evaluation.result"


def evaluation_events(evaluation: Evaluation, *, content: bool) -> Iterator[dict[str, Any]]:
    """The attributes of each event. Explanations quote what the agent wrote: only with `content`."""
    reasons = " ".join(evaluation.reasons) if content else None
    yield _result("outcome", evaluation.outcome, evaluation.final_score, reasons, evaluation.error and "error")
    for check in evaluation.checks:
        yield _check(check, content)
    for metric in evaluation.metrics:
        yield _metric(metric)
    if evaluation.judge is not None:
        yield from _judge(evaluation.judge, content)


def _check(check: CheckResult, content: bool) -> dict[str, Any]:
    error = "error" if check.outcome == "error" else None
    return _result(f"check.{check.check_id}", check.outcome, None, check.message if content else None, error)


def _metric(metric: MetricResult) -> dict[str, Any]:
    label = None if metric.passed is None else "passed" if metric.passed else "failed"
    return _result(f"metric.{metric.name}", label, metric.score, None, metric.error and "error")


def _judge(judge: JudgeResult, content: bool) -> Iterator[dict[str, Any]]:
    label = "passed" if judge.passed else "failed"
    yield _result("judge.overall", label, judge.overall, judge.summary if content else None, None)
    for dimension, score in judge.dimensions.items():
        yield _result(f"judge.{dimension}", None, score, None, None)


def _result(
    name: str, label: str | None, score: float | None, explanation: str | None, error: str | None
) -> dict[str, Any]:
    facts: Mapping[str, Any] = {
        "gen_ai.evaluation.name": name,
        "gen_ai.evaluation.score.label": label,
        "gen_ai.evaluation.score.value": score,
        "gen_ai.evaluation.explanation": explanation or None,
        "error.type": error,
    }
    return {key: value for key, value in facts.items() if value is not None}
