"""`compat="v2"`: the definitions of the original benchmark's rewrite for rollouts."""

from __future__ import annotations

import pytest
from metrics_samples import vectors

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.metrics.registry import V2_METRICS
from pytest_agentbench.metrics.scoring import score


@pytest.mark.skipif(not vectors(), reason="the conformance data is not here")
@pytest.mark.parametrize("name", sorted(V2_METRICS))
def test_recorded_scores_of_the_rewrite_are_met_bit_for_bit(name):
    for row in vectors():
        pair = row["ground_truth"], row["prediction"]
        assert score(name, *pair, compat="v2") == row["scores_v2_rollout"][name], pair


@pytest.mark.parametrize(
    ("name", "ground_truth", "prediction", "expected"),
    [
        ("exact_match", "Paris", "The answer is  PARIS.", 1.0),
        ("exact_match", "Paris", "Paris, the answer is", 0.0),
        ("f1_score", "the cat", "the the the", 0.4),
        ("f1_score", "", "", 0.0),
        ("contains_answer", "4", "14", 1.0),
        ("numeric_match", "100", "99", 1.0),
        ("numeric_match", "100", "98.9", 0.0),
        ("numeric_match", "-100", "-101", 1.0),
        ("numeric_match", "0", "0.0000001", 1.0),
        ("numeric_match", "0", "0.00001", 0.0),
        ("numeric_match", "none", "none", 0.0),
        ("numeric_match", "9" * 400, "9" * 400, 0.0),
        ("similarity", "$5", "5 dollars", 1 / 9),
        ("similarity", "", "", 0.0),
    ],
)
def test_each_definition(name, ground_truth, prediction, expected):
    assert score(name, ground_truth, prediction, compat="v2") == pytest.approx(expected)


@pytest.mark.parametrize("compat", ["v3", "V1", "", 1])
def test_score_refuses_an_unknown_compat(compat):
    with pytest.raises(ConfigError, match=r"compat: found .*, expected None, 'v1' or 'v2'"):
        score("exact_match", "a", "a", compat=compat)


def test_a_metric_without_a_definition_in_the_rewrite_keeps_the_default_one():
    assert score("json_match", "[1]", "[1]", compat="v2") == 1.0
