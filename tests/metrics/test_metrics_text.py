from __future__ import annotations

import difflib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.metrics import BUILTIN_METRICS, METRICS, measure, metric, score
from pytest_agentbench.records import MetricSpec

VECTORS = Path(__file__).parents[3] / "shared" / "data" / "datasets" / "metric_vectors.sample.jsonl"
texts = st.text(max_size=60)


@pytest.mark.parametrize("name", sorted(BUILTIN_METRICS))
@given(ground_truth=texts, prediction=texts)
def test_every_score_lies_between_0_and_1(name, ground_truth, prediction):
    assert 0 <= score(name, ground_truth, prediction) <= 1


@pytest.mark.parametrize("name", sorted(BUILTIN_METRICS))
@given(text=texts.filter(str.strip))
def test_a_text_agrees_with_itself(name, text):
    assert score(name, text, text) == 1


@given(
    answer=st.integers(),
    before=st.sampled_from(["", "It is ", "= ", "答案是"]),
    after=st.sampled_from(["", ".", "!", " km", "。"]),
)
def test_a_number_is_found_among_words_and_punctuation(answer, before, after):
    assert score("contains_answer", str(answer), f"{before}{answer}{after}") == 1


@given(answer=st.integers(min_value=0), digit=st.integers(0, 9))
def test_a_number_is_not_found_inside_a_longer_one(answer, digit):
    assert score("contains_answer", str(answer), f"{answer}{digit}") == 0
    assert score("contains_answer", str(answer), f"-{answer}") == 0
    assert score("contains_answer", str(answer), f"{answer}.5") == 0


@pytest.mark.parametrize(
    ("answer", "text", "expected"),
    [
        ("Paris", "The capital is Paris.", 1),
        ("PARIS.", "paris, of course", 1),
        ("Paris", "Parisian life", 0),
        ("4", "14", 0),
        ("234", "1,234", 0),
        ("2", "1,2,3", 1),
        ("1,234", "about 1,234 people", 1),
        ("C++", "C and C++", 1),
        ("C++", "only C", 0),
        ("two  words", "Two\nwords", 1),
        ("北京", "中国的首都是北京。", 1),
        ("서울", "수도는 서울은", 1),
        ("１２", "12", 1),
        ("−5", "it fell to -5 degrees", 1),
        ("Cafe\u0301", "the CAFÉ", 1),
        ("न", "हिन्दी", 0),
        ("", "anything", 0),
        ("  ", "   ", 0),
    ],
)
def test_contains_answer_compares_whole_tokens(answer, text, expected):
    assert score("contains_answer", answer, text) == expected


def test_exact_match_ignores_only_the_white_space_around():
    assert score("exact_match", " a b\n", "a b") == 1
    assert score("exact_match", "a b", "a  b") == 0
    assert score("exact_match", "Paris", "paris") == 0


@given(one=texts, other=texts)
def test_similarity_is_the_ratio_of_difflib(one, other):
    assert score("similarity", one, other) == difflib.SequenceMatcher(None, one, other).ratio()


@pytest.mark.skipif(not VECTORS.exists(), reason="the conformance data is not here")
def test_recorded_scores_of_the_definitions_that_stayed_the_same():
    for line in VECTORS.read_text().splitlines():
        row = json.loads(line)
        for name in ("exact_match", "similarity"):
            assert score(name, row["ground_truth"], row["prediction"]) == row["scores_v1_benchmark"][name], row


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
