"""Rates and means with honest 95 % intervals, and pass@k. None wherever a figure is undefined."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, sqrt

from pytest_agentbench.metrics import Interval as Interval
from pytest_agentbench.metrics import mean_interval as mean_interval
from pytest_agentbench.metrics import pass_at_k as pass_at_k
from pytest_agentbench.metrics import pass_hat_k as pass_hat_k
from pytest_agentbench.metrics import pass_rate_interval as pass_rate_interval
from pytest_agentbench.metrics import t_quantile as t_quantile
from pytest_agentbench.metrics import wilson_interval as wilson_interval


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
