"""Text -> score, trace -> rate: a metric is a function `(ground_truth, prediction, **kwargs) -> float in [0, 1]`, or
`(case, artifact, **kwargs)`, under a name."""

import pytest_agentbench.metrics.v1  # noqa: F401  registers the original's definitions
from pytest_agentbench.metrics.intervals import (
    Interval,
    difference_interval,
    mean_interval,
    pass_rate_interval,
    samples_of,
    standard_error,
    t_quantile,
    wilson_interval,
)
from pytest_agentbench.metrics.json_match import json_match
from pytest_agentbench.metrics.llm_judgement import llm_judgement
from pytest_agentbench.metrics.math_equal import math_equal
from pytest_agentbench.metrics.multiple_choice import multiple_choice
from pytest_agentbench.metrics.numeric import numeric_match
from pytest_agentbench.metrics.overlap import bleu_score, f1_score, rouge_score
from pytest_agentbench.metrics.refusal import refusal, wrong_names
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
    measure_trace,
    metric,
    missing_extra,
    takes_long,
    takes_trace,
)
from pytest_agentbench.metrics.repetitions import pass_at_k, pass_hat_k
from pytest_agentbench.metrics.scoring import score
from pytest_agentbench.metrics.text import contains_answer, exact_match, similarity
from pytest_agentbench.metrics.tool_use import RULES, TOOL_USE_METRICS, calls_of
from pytest_agentbench.metrics.tool_use_score import judges_cv_percent, parts_of, tool_use_of

BUILTIN_METRICS = METRICS.copy()
"""The metrics that ship with the package; `METRICS` also holds what the `metric` decorator registered since."""

__all__ = [
    "BUILTIN_METRICS",
    "METRICS",
    "RULES",
    "TOOL_USE_METRICS",
    "V1_METRICS",
    "Interval",
    "Measured",
    "Metric",
    "MetricContext",
    "asks_model",
    "bleu_score",
    "calls_of",
    "contains_answer",
    "difference_interval",
    "exact_match",
    "f1_score",
    "find_metric",
    "json_match",
    "judges_cv_percent",
    "llm_judgement",
    "math_equal",
    "mean_interval",
    "measure",
    "measure_async",
    "measure_trace",
    "metric",
    "missing_extra",
    "multiple_choice",
    "numeric_match",
    "parts_of",
    "pass_at_k",
    "pass_hat_k",
    "pass_rate_interval",
    "refusal",
    "rouge_score",
    "samples_of",
    "score",
    "similarity",
    "standard_error",
    "t_quantile",
    "takes_long",
    "takes_trace",
    "tool_use_of",
    "wilson_interval",
    "wrong_names",
]
