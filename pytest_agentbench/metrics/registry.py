"""The registry of metrics, and the two ways to apply one: `score` for people, `measure` for the engine."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import TypeVar

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records import MetricResult, MetricSpec

Metric = Callable[..., float]
"""`(ground_truth: str, prediction: str, **kwargs) -> float`: 0 is wrong, 1 is right."""

METRICS: dict[str, Metric] = {}
"""Every metric known to this process, by name. Fill it with the `metric` decorator."""

M = TypeVar("M", bound=Metric)


def metric(name: str) -> Callable[[M], M]:
    """Register the decorated function as the metric `name`.

        @metric("same_length")
        def same_length(ground_truth, prediction):
            return float(len(ground_truth) == len(prediction))

    Raises ConfigError where another function holds the name already.
    """

    def register(function: M) -> M:
        holder = METRICS.setdefault(name, function)
        if _identity(holder) != _identity(function):
            raise ConfigError(f"metric {name!r} is registered twice: {_identity(holder)} and {_identity(function)}")
        METRICS[name] = function  # the same function of a module that was imported again
        return function

    return register


def score(name: str, ground_truth: str, prediction: str, **kwargs: object) -> float:
    """What the metric `name` gives `prediction` against `ground_truth`, 0-1. `kwargs` are the metric's own options.

    Raises ConfigError for an unknown name, ValueError where the metric leaves its range, and what the metric raises.
    """
    return _apply(name, METRICS, ground_truth, prediction, kwargs)


def measure(spec: MetricSpec, reference: str, output: str, metrics: Mapping[str, Metric]) -> MetricResult:
    """The result of one metric as a case asks for it; whatever keeps it from a score is its `error`, never a 0."""
    try:
        value = _apply(spec.name, metrics, reference, output, spec.args)
    except Exception as error:  # noqa: BLE001  a metric is a plugin's code
        return MetricResult(
            name=spec.name, score=None, threshold=spec.threshold, error=str(error) or type(error).__name__
        )
    passed = None if spec.threshold is None else value >= spec.threshold
    return MetricResult(name=spec.name, score=value, threshold=spec.threshold, passed=passed)


def _apply(
    name: str, metrics: Mapping[str, Metric], ground_truth: str, prediction: str, kwargs: Mapping[str, object]
) -> float:
    function = metrics.get(name)
    if function is None:
        near = difflib.get_close_matches(name, metrics, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(metrics))}"
        raise ConfigError(f"unknown metric {name!r}; {hint}")
    value = function(ground_truth, prediction, **kwargs)
    if not isinstance(value, (int, float)) or not 0 <= value <= 1:  # NaN fails the comparison
        raise ValueError(f"metric {name!r} returned {value!r}, expected a number from 0 to 1")
    return float(value)


def _identity(function: Metric) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', repr(function))}"
