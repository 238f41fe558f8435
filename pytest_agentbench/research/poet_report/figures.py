"""Figures that say how many reports they rest on, and what a score is called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from math import fsum
from typing import Literal, TypeVar

from pytest_agentbench.config.poet_config import PoetConfig
from pytest_agentbench.metrics import mean_interval
from pytest_agentbench.records import Record

T = TypeVar("T")

FEWEST_FOR_INTERVAL = 5
"""Reports: fewer say too little about the next one."""

PerformanceClass = Literal["excellent", "good", "acceptable", "poor", "insufficient"]


class Mean(Record):
    """Over the n reports that have the value. `ci95` is the t interval over tasks, None for fewer than five."""

    n: int
    mean: float | None
    ci95: tuple[float, float] | None
    lowest: float | None
    highest: float | None


class Total(Record):
    """The sum over the n reports that have the value; None where none has."""

    n: int
    total: float | None


def thresholds_of(config: PoetConfig) -> dict[PerformanceClass, float]:
    """From where on a score is called so, the highest first: `evaluation_thresholds` where the file has them."""
    standard, own = config.performance_thresholds, config.evaluation_thresholds
    return {
        "excellent": own.get("excellent_poet_score", standard.excellent_threshold),
        "good": own.get("good_poet_score", standard.good_threshold),
        "acceptable": own.get("acceptable_poet_score", standard.acceptable_threshold),
        "poor": own.get("poor_poet_score", standard.poor_threshold),
    }


def performance_class(score: float, thresholds: Mapping[PerformanceClass, float]) -> PerformanceClass:
    """The highest class whose threshold the score reaches, else `insufficient`."""
    return next((name for name, threshold in thresholds.items() if score >= threshold), "insufficient")


def mean(values: Iterable[float | None], tasks: Iterable[object] | None = None) -> Mean:
    """Over those that are known. `tasks` says of each report which task it is on (default: one of its own)."""
    pairs = zip(count() if tasks is None else tasks, values, strict=False)
    known = [(task, value) for task, value in pairs if value is not None]
    if not known:
        return Mean(n=0, mean=None, ci95=None, lowest=None, highest=None)
    found, groups = [value for _, value in known], by_task(known)
    interval = mean_interval(groups) if len(groups) >= FEWEST_FOR_INTERVAL else None
    return Mean(n=len(found), mean=fsum(found) / len(found), ci95=interval, lowest=min(found), highest=max(found))


def by_task(values: Iterable[tuple[object, T]]) -> list[list[T]]:
    """The values of each task's reports together: of several on one task, intervals take them as repetitions."""
    groups: dict[object, list[T]] = {}
    for task, value in values:
        groups.setdefault(task, []).append(value)
    return list(groups.values())


def total(values: Iterable[float | None]) -> Total:
    """Over those that are known."""
    known = [value for value in values if value is not None]
    return Total(n=len(known), total=fsum(known) if known else None)
