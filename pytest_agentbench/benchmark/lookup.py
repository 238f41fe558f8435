"""`benchmark._get_metric_function`: how a benchmark finds a metric by name, and how that is replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.metrics import METRICS, Metric, find_metric

Lookup = Callable[[str], Metric | None]

_NONE: Mapping[int, int] = {}
_running: ContextVar[Mapping[int, int]] = ContextVar("agentbench_metric_lookups", default=_NONE)
"""By a benchmark's id(): how many of its assigned lookups lie below the one that runs now, in this thread."""


class MetricLookup:
    """A data descriptor: the metric's function by its name, from the registry and what was assigned over it.

    Seed 001 assigns a lambda that falls back to the attribute which it replaces:

        benchmark._get_metric_function = lambda metric: {
            "mine": mine
        }.get(metric, benchmark._get_metric_function(metric))

    While an assigned function runs, the attribute is therefore the one before it, and gives None for an unknown name.
    Only the outermost lookup raises ConfigError. Assignments stack; `base` is what lies below them all.
    """

    def __init__(self, base: Callable[[Any, str], Metric | None]) -> None:
        self._base = base

    def __get__(self, benchmark: Any, owner: type | None = None) -> Any:
        if benchmark is None:
            return self
        level = _running.get().get(id(benchmark), len(_assigned(benchmark)))
        return partial(self._find, benchmark, level)

    def __set__(self, benchmark: Any, function: Lookup) -> None:
        if not callable(function):
            raise TypeError(f"_get_metric_function: found {type(function).__name__}, expected a function of a name")
        benchmark.__dict__[_ASSIGNED] = (*_assigned(benchmark), function)

    def _find(self, benchmark: Any, level: int, name: str) -> Metric | None:
        running = _running.get()
        token = _running.set({**running, id(benchmark): level - 1})
        try:
            found = _assigned(benchmark)[level - 1](name) if level > 0 else self._base(benchmark, name)
        finally:
            _running.reset(token)
        if id(benchmark) in running:
            return found
        if found is None:
            return find_metric(name, METRICS)  # raises, and says what there is
        if not callable(found):
            raise ConfigError(f"metric {name!r}: the lookup gave {type(found).__name__}, expected a function")
        return found


def registered(_: object, name: str) -> Metric | None:
    """The metric that is registered under the name."""
    return METRICS.get(name)


_ASSIGNED = "_metric_lookups"


def _assigned(benchmark: Any) -> tuple[Lookup, ...]:
    lookups: tuple[Lookup, ...] = benchmark.__dict__.get(_ASSIGNED, ())
    return lookups
