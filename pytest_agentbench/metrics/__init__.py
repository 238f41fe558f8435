"""Text -> score: a metric is a function `(ground_truth, prediction, **kwargs) -> float in [0, 1]` under a name."""

from pytest_agentbench.metrics.registry import (
    METRICS,
    V1_METRICS,
    Measured,
    Metric,
    MetricContext,
    asks_model,
    find_metric,
    measure,
    measure_async,
    metric,
    missing_extra,
    score,
)
from pytest_agentbench.metrics.text import contains_answer, exact_match, similarity

BUILTIN_METRICS = METRICS.copy()
"""The metrics that ship with the package; `METRICS` also holds what the `metric` decorator registered since."""

__all__ = [
    "BUILTIN_METRICS",
    "METRICS",
    "V1_METRICS",
    "Measured",
    "Metric",
    "MetricContext",
    "asks_model",
    "contains_answer",
    "exact_match",
    "find_metric",
    "measure",
    "measure_async",
    "metric",
    "missing_extra",
    "score",
    "similarity",
]
