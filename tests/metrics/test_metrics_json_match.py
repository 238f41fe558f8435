from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.metrics.registry import METRICS, measure
from pytest_agentbench.metrics.scoring import score
from pytest_agentbench.records.case import MetricSpec

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("ground_truth", "prediction", "expected"),
    [
        ('{"a": 1, "b": [1, 2]}', '{"b": [1.0, 2e0], "a": 1}', 1),
        ('{"a": 1, "b": 2}', '{"a": 1, "b": 3}', 1 / 2),
        ('{"a": 1}', '{"a": 1, "b": 2, "c": 3}', 1 / 3),
        ('{"a": 1, "b": 2}', '{"a": 1}', 1 / 2),
        ('{"a": {"b": 1, "c": 2}, "d": 3}', '{"a": 5, "d": 3}', 1 / 3),
        ("[1, 2, 3]", "[1, 3, 2]", 1 / 3),
        ("[1, 2]", "[1, 2, 3, 4]", 1 / 2),
        ("{}", "{}", 1),
        ("{}", "[]", 0),
        ("[[]]", "[]", 0),
        ("true", "1", 0),
        ("1", '"1"', 0),
        ("null", "null", 1),
        ('"北京"', '"\\u5317\\u4eac"', 1),
        ("9" * 50, "9" * 49 + "8", 0),
        ('{"a": 1}', 'Here it is:\n```json\n{"a": 1}\n```\nDone.', 1),
        ('{"a": 1}', '```\n{"a": 1}\n```\nor\n```\n{"a": 2}\n```', 0),
        ('{"a": 1}', 'It is {"a": 1}', 0),
        ("1", "", 0),
        ("1", "NaN", 0),
        ("1", "[" * 1_000_000, 0),
        ("1", "1e99999999999999999999", 0),
    ],
)
def test_the_share_of_equal_leaves(ground_truth, prediction, expected):
    assert score("json_match", ground_truth, prediction) == pytest.approx(expected)


@pytest.mark.slow
@given(values, st.randoms())
def test_neither_layout_nor_the_order_of_keys_counts(value, rng: random.Random):
    def shuffled(value):
        if isinstance(value, list):
            return list(map(shuffled, value))
        if isinstance(value, dict):
            return {key: shuffled(value[key]) for key in rng.sample(list(value), len(value))}
        return value

    assert score("json_match", json.dumps(value), json.dumps(shuffled(value), indent=2, ensure_ascii=False)) == 1


@pytest.mark.slow
@given(values, values, st.booleans())
def test_the_score_is_1_only_for_equal_values(one, other, ignore_order):
    value = score("json_match", json.dumps(one), json.dumps(other), ignore_order=ignore_order)
    assert 0 <= value <= 1
    if not ignore_order:
        assert (value == 1) == (typed(one) == typed(other))


def typed(value):
    """The value with its kinds: in Python True is 1."""
    if isinstance(value, list):
        return list(map(typed, value))
    if isinstance(value, dict):
        return {key: typed(each) for key, each in value.items()}
    return (isinstance(value, bool), value)


@pytest.mark.slow
@given(st.lists(values, max_size=6), st.randoms())
def test_lists_may_be_in_any_order_if_asked(items, rng: random.Random):
    other = rng.sample(items, len(items))
    assert score("json_match", json.dumps(items), json.dumps([[other]]), ignore_order=True) < 1 or not items
    assert score("json_match", json.dumps(items), json.dumps(other), ignore_order=True) == 1


@pytest.mark.parametrize(
    ("ground_truth", "prediction", "options", "expected"),
    [
        ("[1, 2, 2]", "[2, 1, 1]", {}, 2 / 3),
        ('[{"a": 1, "b": 2}, {"a": 3, "b": 4}]', '[{"a": 3, "b": 0}, {"a": 1, "b": 2}]', {}, 3 / 4),
        ("[[1, 2], [3]]", "[[3], [2, 1]]", {}, 1),
        ("[1.001, 5]", "[5.002, 1]", {"tolerance": 0.01}, 1),
    ],
)
def test_elements_pair_up_wherever_they_stand(ground_truth, prediction, options, expected):
    assert score("json_match", ground_truth, prediction, ignore_order=True, **options) == pytest.approx(expected)


def test_tolerance_is_absolute():
    assert score("json_match", "[1.0, 2.0]", "[1.05, 2.2]", tolerance=0.1) == 1 / 2
    with pytest.raises(ValueError, match="tolerance is -1, expected a number from 0"):
        score("json_match", "1", "1", tolerance=-1)


@pytest.mark.parametrize("wrong", ["", "{", "Paris", "[NaN]", "[" * 200 + "]" * 200])
def test_a_ground_truth_that_is_no_json_is_an_error(wrong):
    result = measure(MetricSpec(name="json_match"), wrong, "1", METRICS)
    assert result.score is None
    assert "json_match: the ground truth is no JSON" in result.error


def test_details_have_the_place_where_values_differ():
    result = measure(MetricSpec(name="json_match"), '{"a": {"b c": 1}, "d": [1, 2]}', '{"a": {}, "d": [1, 3]}', METRICS)
    assert result.details == {"leaves": 3, "matched": 1, "differing": ['$.a."b c"', "$.d[1]"]}
    result = measure(MetricSpec(name="json_match"), "1", "It is 1", METRICS)
    assert result.details == {"reason": "the answer is no JSON: Expecting value: line 1 column 1 (char 0)"}


def details(ground_truth: str, prediction: str, **args: object) -> dict:
    return measure(MetricSpec(name="json_match", args=args), ground_truth, prediction, METRICS).details


def test_of_many_differences_five_are_named():
    found = details("[1, 2, 3, 4, 5, 6, 7]", "[0, 0, 0, 0, 0, 0, 7]")
    assert found == {"leaves": 7, "matched": 1, "differing": [f"$[{n}]" for n in range(5)]}


def test_long_keys_are_named_by_their_beginning():
    forty, longer = "k" * 40, "k" * 41
    assert details(f'{{"{forty}": 1}}', "{}")["differing"] == [f"$.{forty}"]
    assert details(f'{{"{longer}": 1}}', "{}")["differing"] == [f'$."{"k" * 39}\\u2026"']


def test_without_order_paths_have_no_index_and_the_rest_pairs_by_kind_and_value():
    """Of 3, 1, "b", [2] against [9], "a", 1, 4 the one is shared; 3 pairs with 4, "b" with "a", [2] with [9]."""
    found = details('[3, 1, "b", [2]]', '[[9], "a", 1, 4]', ignore_order=True)
    assert found == {"leaves": 4, "matched": 1, "differing": ["$[*]", "$[*]", "$[*][*]"]}
    assert details("[3, 1]", "[1.2, 3.4]", ignore_order=True, tolerance=0.5)["matched"] == 2
    assert details('[[], {}, ""]', '[{}, "", []]', ignore_order=True)["matched"] == 3


@pytest.mark.parametrize(
    ("ground_truth", "prediction", "leaves", "matched"),
    [
        ("[]", "[]", 1, 1),
        ("{}", "[]", 1, 0),
        ("[]", "[1, 2]", 2, 0),
        ('{"a": [1, 2, 3]}', "{}", 3, 0),
        ('{"a": [1, 2, 3]}', '{"a": 1}', 3, 0),
        ('{"a": {}}', '{"a": {}}', 1, 1),
        ("1", "true", 1, 0),
        ("1", "1.0", 1, 1),
        ("null", "false", 1, 0),
    ],
)
def test_leaves_are_counted_on_the_side_that_has_more(ground_truth, prediction, leaves, matched):
    found = details(ground_truth, prediction)
    assert (found["leaves"], found["matched"]) == (leaves, matched)


@pytest.mark.parametrize(
    ("answer", "matched"),
    [
        ("```json\n1\n```", True),
        ("So:\n```\n1\n```\nDone.", True),
        ("  ```json\n1\n  ```", True),
        ("```\n1\n```\n```\n1\n```", False),
        ("```\n1", False),
        ("<think>```\n2\n```</think>1", True),
    ],
)
def test_the_only_fence_counts(answer, matched):
    assert (score("json_match", "1", answer) == 1) == matched
