"""What the original system of seed 003 computes otherwise; only for `compat: true`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

from pytest_agentbench.config.annotations import Annotations
from pytest_agentbench.research.counting import counted
from pytest_agentbench.research.efficiency import STANDARD, EfficiencyWeights, Expert, clamped
from pytest_agentbench.research.interaction import Interaction
from pytest_agentbench.research.strategic_scores import STRATEGIC_SCORES

_TIME_WITHOUT_EXPERT = 0.5

_STRATEGIC = MappingProxyType(dict(zip(STRATEGIC_SCORES, (0.25, 0.20, 0.20, 0.15, 0.10, 0.05, 0.05, 0.0), strict=True)))


def compat_efficiency(
    expert: Expert,
    *,
    hours: float,
    cost_saving_usd: float,
    automation: float | None,
    weights: EfficiencyWeights = STANDARD,
) -> float:
    """0-1: an expert of no hours leaves half of the points for time, an automation that is not known counts 0."""
    time = max(0.0, (expert.hours - hours) / expert.hours) if expert.hours else _TIME_WITHOUT_EXPERT
    cost = clamped(cost_saving_usd / expert.cost_usd) if expert.cost_usd else 0.0
    return clamped(weights.time * time + weights.cost * cost + weights.automation * (automation or 0.0))


def overall_strategic_score(scores: Mapping[str, float]) -> float:
    """The original's weighted sum of the eight scores, of 1-5; its weights sum to 1."""
    return sum(scores[name] * weight for name, weight in _STRATEGIC.items())


_NO_EXPERT = Expert(2.0, 100.0)


def compat_expert(annotations: Annotations | None, domain: str | None, level: int | str | None) -> Expert:
    """The expert of a domain under its very name, else one of 2 hours at 100 USD."""
    found = annotations.domains.get(domain or "") if annotations is not None else None
    expert = _NO_EXPERT if found is None else Expert(found.avg_task_time_hours, found.avg_hourly_rate_usd)
    known = annotations.levels.get(level) if annotations is not None and isinstance(level, int) else None
    return replace(expert, hours=expert.hours * (1.0 if known is None else known.expert_time_multiplier))


def compat_interaction(task: Interaction, prompt: str, article: str, *, measured: bool) -> Interaction:
    """The task with what the original puts in place of what was not recorded.

    Where nothing of the interaction was `measured`, words stand for tokens and the rest is made up: the values of row 0
    of golden_examples/web_interaction.jsonl, which is all that is known of the original's estimates.
    """
    found = _DEFAULTS if measured else _estimates(task, prompt, article)
    absent = [each.name for each in fields(task) if getattr(task, each.name) is None]
    return replace(task, **{name: found[name] for name in absent if name in found})


_DEFAULTS: dict[str, Any] = {"first_response_time_seconds": 0.0, "successful_tool_rate": 1.0}


def _estimates(task: Interaction, prompt: str, article: str) -> dict[str, Any]:
    words, length = len(article.split()), counted(article)
    seconds = 60.0 if task.total_duration_seconds is None else task.total_duration_seconds
    asked, said = int(1.3 * len(prompt.split())), int(1.3 * words)
    return {
        "total_duration_seconds": seconds,
        "thinking_time_seconds": 0.1 * seconds,
        "first_response_time_seconds": 5.0,
        "total_input_tokens": asked,
        "total_output_tokens": said,
        "model_name": "estimated-model",
        "estimated_cost_usd": (0.003 * asked + 0.015 * said) / 1000,
        "automation_rate": 0.8,
        "error_rate": 0.05,
        "efficiency_score": 0.7,
        "retry_count": 0,
        "tool_calls_count": 5,
        "search_queries_count": 3,
        "successful_tool_rate": 0.9,
        "word_count": words,
        "citation_count": length.citations,
        "sources_used": length.sources,
        "coverage_completeness": 0.75,
        "user_satisfaction_rating": 3.5,
        "user_interruptions": 0,
    }
