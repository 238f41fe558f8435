from __future__ import annotations

import asyncio

import pytest

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.metrics.registry import (
    BUILTIN_METRICS,
    METRICS,
    MetricContext,
    measure,
    measure_async,
    metric,
    takes_trace,
)
from pytest_agentbench.metrics.scoring import score
from pytest_agentbench.records.case import COMPARING_METRICS, MetricSpec


def test_measure_compares_with_the_threshold():
    result = measure(MetricSpec(name="similarity", threshold=0.5), "abcd", "abxx", METRICS)
    assert (result.score, result.passed) == (0.5, True)
    assert measure(MetricSpec(name="similarity", threshold=0.51), "abcd", "abxx", METRICS).passed is False
    assert measure(MetricSpec(name="similarity"), "abcd", "abxx", METRICS).passed is None


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda ground_truth, prediction: 1.5, "returned 1.5, expected a number from 0 to 1"),
        (lambda ground_truth, prediction: float("nan"), "returned nan"),
        (lambda ground_truth, prediction: "1", "returned '1'"),
        (lambda ground_truth, prediction: 1 / 0, "division by zero"),
        (lambda ground_truth: 1.0, "positional argument"),
    ],
)
def test_a_metric_that_breaks_is_an_error_and_never_a_score(function, message):
    result = measure(MetricSpec(name="mine", threshold=0), "a", "b", {"mine": function})
    assert (result.score, result.passed) == (None, None)
    assert message in result.error


def test_an_unknown_metric_is_named_with_the_nearest_one():
    with pytest.raises(ConfigError, match="unknown metric 'exact_mach'; did you mean 'exact_match'"):
        score("exact_mach", "a", "a")


def test_a_decorated_function_is_a_metric_with_its_options():
    @metric("test_length_within")
    def length_within(ground_truth: str, prediction: str, slack: int = 0) -> float:
        return float(abs(len(ground_truth) - len(prediction)) <= slack)

    try:
        assert score("test_length_within", "ab", "abc") == 0
        assert score("test_length_within", "ab", "abc", slack=1) == 1
        with pytest.raises(ConfigError, match="registered twice"):
            metric("test_length_within")(lambda ground_truth, prediction: 1.0)
        assert "test_length_within" not in BUILTIN_METRICS
    finally:
        del METRICS["test_length_within"]


def test_compat_reaches_a_metric_that_asks_only_where_it_takes_it():
    async def polite(ground_truth: str, prediction: str, *, context: MetricContext) -> float:
        return 1.0

    context = MetricContext(case_id="c", question="", client=lambda name: pytest.fail("it asks nobody"))
    spec = MetricSpec(name="polite", compat="v1")
    assert asyncio.run(measure_async(spec, "a", "b", {"polite": polite}, context)).score == 1


def test_metrics_that_compare_are_all_but_those_of_traces():
    shipped = {*BUILTIN_METRICS, "pass_at_k", "pass_hat_k"}
    assert {name for name in shipped if not takes_trace(METRICS[name])} == COMPARING_METRICS
