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

_ABSURD = 1e100
"""What no cost, duration or score comes near; squares of it can still be added up."""


def finite(value: float | None) -> float | None:
    """A plain float, None for what cannot be added up: JSON has no NaN, and execnet refuses subclasses (numpy's)."""
    return float(value) if value is not None and isfinite(value) and abs(value) < _ABSURD else None


def pair(interval: Interval | None) -> list[float] | None:
    """An interval as JSON has it."""
    return None if interval is None else list(interval)


def mean(values: Sequence[float]) -> float | None:
    """The arithmetic mean, None of nothing."""
    return fsum(values) / len(values) if values else None


def sd(values: Sequence[float]) -> float | None:
    """The sample standard deviation (n - 1), None for fewer than two values."""
    if len(values) < 2:
        return None
    middle = fsum(values) / len(values)
    return sqrt(fsum((value - middle) ** 2 for value in values) / (len(values) - 1))
