"""Text -> score: a metric is a function `(ground_truth, prediction, **kwargs) -> float in [0, 1]` under a name."""

from pytest_agentbench.metrics.registry import METRICS, Metric, measure, metric, score
from pytest_agentbench.metrics.text import contains_answer, exact_match, similarity

BUILTIN_METRICS = METRICS.copy()
"""The metrics that ship with the package; `METRICS` also holds what the `metric` decorator registered since."""

__all__ = [
    "BUILTIN_METRICS",
    "METRICS",
    "Metric",
    "contains_answer",
    "exact_match",
    "measure",
    "metric",
    "score",
    "similarity",
]
