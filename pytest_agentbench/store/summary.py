"""`summary_<n>.md`: an evaluation as a person reads it."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_agentbench.records import Evaluation, JudgeResult


def summary(evaluation: Evaluation, repetition: int) -> str:
    """Markdown of a screen or less: the outcome and why, checks, metrics, the judge's scores and words."""
    return "\n".join(_lines(evaluation, repetition)) + "\n"


def _lines(evaluation: Evaluation, repetition: int) -> Iterator[str]:
    yield f"# {evaluation.case_id}, repetition {repetition}: {evaluation.outcome}"
    if evaluation.error is not None:
        yield f"\n{evaluation.error}"
    if evaluation.reasons:
        yield "\n## Why\n"
        yield from (f"- {_one_line(reason)}" for reason in evaluation.reasons)
    if evaluation.checks:
        yield "\n## Checks\n"
        yield from (f"- {check.outcome}: `{check.check_id}`: {_one_line(check.message)}" for check in evaluation.checks)
    if evaluation.metrics:
        yield "\n## Metrics\n"
        for metric in evaluation.metrics:
            value = metric.error if metric.score is None else f"{metric.score:.4g}"
            asked = "" if metric.threshold is None else f" (at least {metric.threshold:g})"
            reason = metric.details.get("reason")
            yield f"- {metric.name}: {value}{asked}{f': {_one_line(reason)}' if isinstance(reason, str) else ''}"
    if evaluation.judge is not None:
        yield from _judge_lines(evaluation.judge)


def _judge_lines(judge: JudgeResult) -> Iterator[str]:
    succeeded = sum(iteration.status == "success" for iteration in judge.iterations)
    yield f"\n## Judge: {judge.overall:.4g} of 10 ({'passed' if judge.passed else 'failed'})\n"
    yield (
        f"Method: {judge.method}; verdicts used: {judge.sampled}; iterations that succeeded: {succeeded} of "
        f"{len(judge.iterations)}; passes at {10 * judge.pass_threshold:.4g}.\n"
    )
    yield "| dimension | score | |\n|---|---|---|"
    for dimension, score in judge.dimensions.items():
        yield f"| {dimension} | {score:.4g} | {'below' if dimension in judge.failed_dimensions else ''} |"
    if judge.expectations is not None:
        yield f"\nExpectations met: {judge.expectations:.0%}"
    yield from (f"- not met: {_one_line(text)}" for text in judge.unmet_hard)
    if judge.summary:
        yield f"\n> {_one_line(judge.summary)}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
