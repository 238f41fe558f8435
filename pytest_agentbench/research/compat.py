"""What the original system of seed 003 computes otherwise; only for `compat: true`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pytest_agentbench.research.efficiency import STANDARD, EfficiencyWeights, Expert, clamped
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
