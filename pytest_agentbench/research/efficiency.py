"""Efficiency: what a report saves over the expert who would have written it (seed 003, 效率价值)."""

from __future__ import annotations

from dataclasses import dataclass

TIME, COST, AUTOMATION = 0.4, 0.3, 0.3


@dataclass(frozen=True, slots=True)
class Expert:
    """Who would have done it: hours that it takes, USD per hour."""

    hours: float
    hourly_rate_usd: float

    @property
    def cost_usd(self) -> float:
        """What the expert's work costs."""
        return self.hours * self.hourly_rate_usd


@dataclass(frozen=True, slots=True)
class EfficiencyWeights:
    """How much each part counts; `efficiency_weights` of the algorithm's configuration."""

    time: float = TIME
    cost: float = COST
    automation: float = AUTOMATION


STANDARD = EfficiencyWeights()


@dataclass(frozen=True, slots=True)
class Efficiency:
    """A report's efficiency, 0-1, and its parts. What cannot be told is None; `missing` names what that lacks.

    `time_saving` is a share of the expert's hours and negative where the agent took longer, as `cost_saving_usd` is
    where it cost more.
    """

    score: float | None
    time_saving: float | None
    time_saving_hours: float | None
    cost_saving_usd: float | None
    automation: float | None
    missing: tuple[str, ...] = ()


def efficiency(
    expert: Expert,
    *,
    hours: float | None,
    cost_usd: float | None,
    automation: float | None,
    weights: EfficiencyWeights = STANDARD,
) -> Efficiency:
    """`clamp(0.4 max(0, time saving) + 0.3 clamp(cost saving / expert's cost) + 0.3 automation)`.

    `hours` and `cost_usd` are the agent's. Of an expert of no hours, or of no cost, there is no share to be saved.
    """
    saved_hours = None if hours is None else expert.hours - hours
    saved_usd = None if cost_usd is None else expert.cost_usd - cost_usd
    time_saving = None if saved_hours is None else _share(saved_hours, expert.hours)
    cost_saving = None if saved_usd is None else _share(saved_usd, expert.cost_usd)
    known = {
        "total_duration_seconds": hours,
        "token_usage.total_cost_usd": cost_usd,
        "automation_level": automation,
        "expert.hours": expert.hours or None,
        "expert.cost_usd": expert.cost_usd or None,
    }
    missing = tuple(name for name, value in known.items() if value is None)
    score = None
    if time_saving is not None and cost_saving is not None and automation is not None:
        score = clamped(
            weights.time * max(0.0, time_saving) + weights.cost * clamped(cost_saving) + weights.automation * automation
        )
    return Efficiency(score, time_saving, saved_hours, saved_usd, automation, missing)


def clamped(value: float) -> float:
    """Within 0-1."""
    return min(1.0, max(0.0, value))


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
