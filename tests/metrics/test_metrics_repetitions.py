from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.metrics.registry import METRICS, measure, metric
from pytest_agentbench.metrics.scoring import score
from pytest_agentbench.records.case import MetricSpec
from pytest_agentbench.statistics.estimates import pass_at_k, pass_hat_k


@given(
    st.lists(st.booleans(), min_size=1, max_size=8).flatmap(lambda ok: st.tuples(st.just(ok), st.integers(1, len(ok))))
)
def test_the_metrics_are_the_share_of_all_draws(drawn):
    outcomes, k = drawn
    samples = ["right" if ok else "wrong" for ok in outcomes]
    draws = list(combinations(outcomes, k))
    assert score("pass_at_k", "right", samples, k=k) == pytest.approx(sum(map(any, draws)) / len(draws))
    assert score("pass_hat_k", "right", samples, k=k) == pytest.approx(sum(map(all, draws)) / len(draws))


def test_published_figures():
    # HumanEval's estimator at n = 200, c = 100; tau-bench's at n = 8, c = 4.
    assert pass_at_k(200, 100, 1) == pytest.approx(0.5)
    assert pass_at_k(5, 2, 2) == pytest.approx(1 - 3 / 10)
    assert pass_hat_k(8, 4, 2) == pytest.approx(6 / 28)
    assert pass_at_k(3, 0, 4) is None


def test_one_text_is_one_sample():
    assert score("pass_at_k", "4", "4") == score("pass_hat_k", "4", ["4"]) == 1
    assert score("pass_at_k", "4", "5") == 0


def test_another_metric_with_its_options_may_decide_a_sample():
    samples = ["I say 101", "no", "100"]
    options = {"metric": "numeric_match", "rel_tol": 0.02}
    assert score("pass_at_k", "100", samples, k=2, **options) == 1
    assert score("pass_hat_k", "100", samples, k=2, **options) == pytest.approx(1 / 3)
    assert score("pass_at_k", "x y", ["x", "z"], metric="f1_score", threshold=0.5) == 0.5


def test_details_tell_the_samples():
    result = measure(MetricSpec(name="pass_hat_k", args={"k": 2}), "4", ["4", "5", "4"], METRICS)
    assert result.score == pytest.approx(1 / 3)
    assert result.details == {"samples": 3, "passed": 2, "scores": [1.0, 0.0, 1.0]}


@pytest.mark.parametrize(
    ("samples", "options", "message"),
    [
        (["4", "4"], {"k": 3}, "pass_at_k: k is 3, expected 1 to the number of samples, 2"),
        ([], {}, "k is 1, expected 1 to the number of samples, 0"),
        (["4"], {"k": 0}, "k is 0, expected 1 to the number of samples, 1"),
        (["4"], {"k": True}, "k is True, expected a whole number"),
        (["4"], {"k": 1.0}, "k is 1.0, expected a whole number"),
        (["4"], {"metric": "llm_judgement"}, "'llm_judgement' asks a model"),
        (["4"], {"metric": "exact"}, "unknown metric 'exact'; did you mean 'exact_match'"),
        (["4"], {"slack": 1}, "unexpected keyword argument 'slack'"),
        ([4], {}, "sample 1 is 4, expected a text"),
    ],
)
def test_invalid_options_are_an_error_without_a_score(samples, options, message):
    result = measure(MetricSpec(name="pass_at_k", args=options), "4", samples, METRICS)
    assert result.score is None
    assert message in result.error


def test_other_metrics_take_one_text():
    result = measure(MetricSpec(name="exact_match"), "4", ["4", "5"], METRICS)
    assert "pass_at_k and pass_hat_k take several" in result.error


def test_a_metric_of_ones_own_may_decide_and_may_take_samples():
    @metric("test_longest", samples=True)
    def longest(ground_truth, prediction):
        return float(ground_truth == max(prediction, key=len))

    try:
        assert score("test_longest", "abc", ["a", "abc"]) == 1
        assert score("pass_at_k", "a", ["a", "b"], metric="test_longest") == 0.5
    finally:
        del METRICS["test_longest"]
