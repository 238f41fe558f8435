"""`summary_<n>.md`: an evaluation as a person reads it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from pytest_agentbench.errors import visible
from pytest_agentbench.records import Evaluation, JudgeResult

_MARKS = re.compile(r"([\\`<\[|&])")
"""What begins code, HTML, links, images, cells of tables and entities."""

_Shown = Callable[[str], str]


def summary(evaluation: Evaluation, repetition: int, redact: Callable[[str], str] = str) -> str:
    """Markdown of a screen or less: the outcome and why, checks, metrics, the judge's scores and words.

    Texts of others are redacted as they are, then made such that neither a terminal nor a viewer of Markdown finds
    anything in them to obey.
    """

    def shown(text: str) -> str:
        return _MARKS.sub(r"\\\1", visible(" ".join(redact(text).split())))

    return "\n".join(_lines(evaluation, repetition, shown)) + "\n"


def _lines(evaluation: Evaluation, repetition: int, shown: _Shown) -> Iterator[str]:
    yield f"# {shown(evaluation.case_id)}, repetition {repetition}: {evaluation.outcome}"
    if evaluation.error is not None:
        yield f"\n{shown(evaluation.error)}"
    if evaluation.reasons:
        yield "\n## Why\n"
        yield from (f"- {shown(reason)}" for reason in evaluation.reasons)
    if evaluation.checks:
        yield "\n## Checks\n"
        yield from (f"- {check.outcome}: `{check.check_id}`: {shown(check.message)}" for check in evaluation.checks)
    if evaluation.metrics:
        yield "\n## Metrics\n"
        for metric in evaluation.metrics:
            value = shown(metric.error or "none") if metric.score is None else f"{metric.score:.4g}"
            asked = "" if metric.threshold is None else f" (at least {metric.threshold:g})"
            reason = metric.details.get("reason")
            yield f"- {metric.name}: {value}{asked}{f': {shown(reason)}' if isinstance(reason, str) else ''}"
    if evaluation.judge is not None:
        yield from _judge_lines(evaluation.judge, shown)


def _judge_lines(judge: JudgeResult, shown: _Shown) -> Iterator[str]:
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
    yield from (f"- not met: {shown(text)}" for text in judge.unmet_hard)
    if judge.summary:
        yield f"\n> {shown(judge.summary)}"
