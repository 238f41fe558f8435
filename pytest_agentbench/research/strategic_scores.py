"""Strategic value: what a report is worth beyond its task (seed 003, 战略价值)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TASK_SCORES = ("multi_step_reasoning", "domain_expertise", "synthesis_capability", "independence")
KNOWLEDGE_SCORES = (
    "knowledge_extraction",
    "knowledge_organization",
    "knowledge_reuse_potential",
    "knowledge_quality",
)
STRATEGIC_SCORES = (*TASK_SCORES, *KNOWLEDGE_SCORES)
LOWEST, TOP = 1.0, 5.0
SHORTEST_HOURS = 0.5
"""Of an expert: below that a task is not a complex one."""


@dataclass(frozen=True, slots=True)
class StrategicWeights:
    """How much each half counts; `strategic_weights` of the algorithm's configuration."""

    task_capability: float = 0.6
    knowledge_capability: float = 0.4


def strategic_value(
    scores: Mapping[str, float],
    weights: StrategicWeights = StrategicWeights(),
) -> float:
    """`0.6 sum(task scores) / 20 + 0.4 sum(knowledge scores) / 20`, 0.2-1, of eight scores of 1-5."""
    task = sum(scores[name] for name in TASK_SCORES) / (TOP * len(TASK_SCORES))
    knowledge = sum(scores[name] for name in KNOWLEDGE_SCORES) / (TOP * len(KNOWLEDGE_SCORES))
    return weights.task_capability * task + weights.knowledge_capability * knowledge


def complexity_adaptability(quality: float | None, difficulty: float, expert_hours: float) -> float | None:
    """`quality * difficulty / 5`: task quality 0-1, difficulty 1-5. None for tasks of less than half an hour."""
    if quality is None or expert_hours < SHORTEST_HOURS:
        return None
    return quality * difficulty / TOP


def knowledge_creation_value(qualities: list[float]) -> float:
    """Units of knowledge times their mean quality (0-1): the sum of their qualities."""
    return sum(qualities)
