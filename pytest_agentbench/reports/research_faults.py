"""What the failed scores of a research report rest on, in a few lines: where it lost points, which citations do not
hold, what was recorded of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pytest_agentbench.records import PARTS, RACE_DIMENSIONS, SCORES, CriterionScore, Evaluation, ResearchScores

_MOST = 3
"""Criteria, citations and judged scores that are named."""
_STANDING = ("race", "fact_accuracy", "efficiency", "strategic")
"""The scores that POET and quality are made of."""


def research_evidence(evaluation: Evaluation) -> list[str]:
    """The lines, none where no score of a research report failed. What others wrote in them is not made visible yet."""
    found = evaluation.research
    failed = {each.name for each in evaluation.metrics if each.passed is False}
    parts = {part for part in PARTS if failed & set(SCORES[part])}
    if found is None or not parts:
        return []
    lines = [_made_of(evaluation)] if "poet" in parts else []
    quality = "quality" in failed
    if "race" in parts or quality:
        lines += _weakest_criteria(found.criteria, _dimensions(failed))
    if "fact" in parts or quality:
        lines += _citations(found)
    if parts & {"efficiency", "interaction"}:
        lines.append(_recorded(found))
    if "strategic" in parts:
        lines += _weakest_scores(found)
    return lines


def _made_of(evaluation: Evaluation) -> str:
    scores = {each.name: each.score for each in evaluation.metrics}
    shown = (f"{name} {'not known' if scores.get(name) is None else f'{scores[name]:.3f}'}" for name in _STANDING)
    return f"made of: {', '.join(shown)}"


def _dimensions(failed: Collection[str]) -> Collection[str]:
    """Those that failed, or all where RACE as a whole did."""
    named = [name for name in RACE_DIMENSIONS if f"race_{name}" in failed]
    return named if named and not {"race", "race_weighted_dims", "quality"} & set(failed) else RACE_DIMENSIONS


def _weakest_criteria(criteria: Collection[CriterionScore], dimensions: Collection[str]) -> Iterator[str]:
    """Those in which the report lost most against its reference, or has least where there is none."""
    asked = [each for each in criteria if each.dimension in dimensions]
    for each in sorted(asked, key=lambda each: each.target - (each.reference or 0))[:_MOST]:
        against = f" against {each.reference:g}" if each.reference is not None else " of 10"
        said = f" ({each.analysis})" if each.analysis.strip() else ""
        yield f"{each.dimension}: {each.target:g}{against}: {each.criterion}{said}"


def _citations(found: ResearchScores) -> Iterator[str]:
    """The first that a page does not support, before those whose page could not be read."""
    bad = [each for label in ("unsupported", "unknown") for each in found.statements if each.label == label]
    for each in bad[:_MOST]:
        yield f"{each.label}: {each.fact} <{each.url}>"
    if len(bad) > _MOST:
        yield f"... and {len(bad) - _MOST} more of {len(found.statements) + found.statements_left_out} citations"


def _recorded(found: ResearchScores) -> str:
    metrics, usage = found.execution_metrics, found.execution_metrics.token_usage
    values = {
        "seconds": metrics.total_duration_seconds,
        "USD": usage.total_cost_usd,
        "input tokens": usage.input_tokens,
        "output tokens": usage.output_tokens,
    }
    shown = [f"{value:,g} {name}" for name, value in values.items() if value is not None]
    if metrics.automation_level is not None:
        shown.append(f"automation {metrics.automation_level:g}")
    return f"recorded: {', '.join(shown) or 'nothing'}"


def _weakest_scores(found: ResearchScores) -> Iterator[str]:
    for name, (score, reason) in sorted(found.strategic.items(), key=lambda each: each[1][0])[:_MOST]:
        yield f"{name}: {score:g} of 5{f' ({reason})' if reason.strip() else ''}"
