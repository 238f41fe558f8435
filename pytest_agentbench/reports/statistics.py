"""Rates and means with honest 95 % intervals, and pass@k. None wherever a figure is undefined."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, isfinite, sqrt

from pytest_agentbench.metrics import Interval as Interval
from pytest_agentbench.metrics import mean_interval as mean_interval
from pytest_agentbench.metrics import pass_at_k as pass_at_k
from pytest_agentbench.metrics import pass_hat_k as pass_hat_k
from pytest_agentbench.metrics import pass_rate_interval as pass_rate_interval
from pytest_agentbench.metrics import samples_of as samples_of
from pytest_agentbench.metrics import standard_error as standard_error
from pytest_agentbench.metrics import t_quantile as t_quantile
from pytest_agentbench.metrics import wilson_interval as wilson_interval

FEWEST_JUDGED = 5
"""Cases below which a mean score has no interval and no place in a chart: it would say nearly nothing."""
JUDGED_SCALE = (0.0, 10.0)
_ABSURD = 1e100
"""What no cost, duration or score comes near; squares of it can still be added up."""


def finite(value: float | None) -> float | None:
    """A plain float, None for what cannot be added up: JSON has no NaN, and execnet refuses subclasses (numpy's)."""
    return float(value) if value is not None and isfinite(value) and abs(value) < _ABSURD else None


def pair(interval: Interval | None) -> list[float] | None:
    """An interval as JSON has it."""
    return None if interval is None else list(interval)


def score_interval(groups: Sequence[Sequence[float]], scale: Interval | None = None) -> Interval | None:
    """The 95 % interval of a mean score on its scale, None for fewer than FEWEST_JUDGED cases; a group is one case's.

    Without a scale it is from 0 to 1 where all scores are, which metrics' usually are, and else there is none.
    """
    if len(samples_of(groups)) < FEWEST_JUDGED:
        return None
    if scale is None and all(0 <= value <= 1 for group in groups for value in group):
        scale = (0.0, 1.0)
    return mean_interval(groups, scale=scale)


def mean(values: Sequence[float]) -> float | None:
    """The arithmetic mean, None of nothing."""
    return fsum(values) / len(values) if values else None


def sd(values: Sequence[float]) -> float | None:
    """The sample standard deviation (n - 1), None for fewer than two values."""
    if len(values) < 2:
        return None
    middle = fsum(values) / len(values)
    return sqrt(fsum((value - middle) ** 2 for value in values) / (len(values) - 1))
