"""The POET score: `0.3 efficiency + 0.5 quality + 0.2 strategic value` (seed 003, POET综合分计算)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

COMPAT_RACE_MAX = 5.0
"""What the original divides RACE's 0-1 by."""


@dataclass(frozen=True, slots=True)
class PoetWeights:
    """How much each part counts, and the top of RACE's scale."""

    efficiency: float = 0.3
    quality: float = 0.5
    strategic: float = 0.2
    race: float = 0.7
    fact: float = 0.3
    race_max: float = 1.0
    fact_max: float = 1.0


@dataclass(frozen=True, slots=True)
class Poet:
    """The composite and its parts, 0-1. `reasons` says why a None is one: a missing part leaves the others."""

    score: float | None
    efficiency: float | None
    quality: float | None
    strategic: float | None
    reasons: tuple[str, ...] = ()


def quality_value(
    race: float | None,
    fact_accuracy: float | None,
    weights: PoetWeights = PoetWeights(),
) -> float | None:
    """`0.7 RACE / race_max + 0.3 citation accuracy`, each at most 1; None where one is missing."""
    if race is None or fact_accuracy is None:
        return None
    return weights.race * min(1.0, race / weights.race_max) + weights.fact * min(1.0, fact_accuracy / weights.fact_max)


def poet(
    efficiency: float | None,
    race: float | None,
    fact_accuracy: float | None,
    strategic: float | None,
    why: Mapping[str, str],
    weights: PoetWeights = PoetWeights(),
) -> Poet:
    """Puts the parts together. `why` says for `efficiency`, `race`, `fact` and `strategic` why they are missing."""
    parts = {"efficiency": efficiency, "race": race, "fact": fact_accuracy, "strategic": strategic}
    missing = [name for name, value in parts.items() if value is None]
    quality = quality_value(race, fact_accuracy, weights)
    score = None
    if efficiency is not None and quality is not None and strategic is not None:
        score = weights.efficiency * efficiency + weights.quality * quality + weights.strategic * strategic
    return Poet(
        score, efficiency, quality, strategic, tuple(f"{name}: {why.get(name, 'not scored')}" for name in missing)
    )
