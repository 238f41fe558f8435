"""Several right answers: how they are read, and how a metric that takes one compares with all."""

from __future__ import annotations

import asyncio
import json
from string import ascii_uppercase

import pytest

from pytest_agentbench.metrics.golds import compare_golds
from pytest_agentbench.metrics.registry import METRICS, Measured, MetricContext, measure, measure_async, takes_long
from pytest_agentbench.metrics.scoring import score
from pytest_agentbench.records.case import MetricSpec
from pytest_agentbench.records.gold import Golds, are_integers, gold_text, json_text, read_gold


def golds(rule, *answers):
    return Golds(rule=rule, answers=answers, text="t", original="o")


SCORES = {"0": 0.0, "half": 0.5, "most": 0.9, "1": 1.0}


def compare(ground_truth):
    if ground_truth not in SCORES:
        raise ValueError(f"cannot read {ground_truth}")
    return Measured(SCORES[ground_truth])


@pytest.mark.parametrize(
    ("rule", "answers", "chosen"),
    [
        ("any_of", (("half",), ("most",), ("0",)), "most"),
        ("any_of", (("0",), ("1",)), "1"),
        ("any_of", (("0", "half"), ("0", "0")), "half"),
        ("any_of", (("bad",), ("1",)), "1"),
        ("any_of", (("1",), ("bad",)), "1"),
        ("any_of", (("bad", "half"),), "half"),
        ("all_of", (("half",), ("most",), ("1",)), "half"),
        ("all_of", (("1",), ("0",)), "0"),
        ("all_of", (("0", "1"), ("half", "most")), "most"),
        ("all_of", (("bad",), ("0",)), "0"),
        ("all_of", (("1",), ("1",)), "1"),
    ],
)
def test_the_best_of_any_and_the_worst_of_all_answers_counts(rule, answers, chosen):
    result, answer = compare_golds(golds(rule, *answers), compare)
    assert (result.score, answer) == (SCORES[chosen], chosen)


@pytest.mark.parametrize(
    ("rule", "answers"),
    [
        ("any_of", (("most",), ("bad",))),
        ("any_of", (("bad", "worse"),)),
        ("all_of", (("1",), ("bad",))),
        ("all_of", (("bad",), ("half",))),
    ],
)
def test_an_answer_that_cannot_be_read_is_an_error_unless_another_decides(rule, answers):
    with pytest.raises(ValueError, match="cannot read bad"):
        compare_golds(golds(rule, *answers), compare)


def test_comparison_stops_at_the_first_decisive_gold():
    seen = []

    def note(ground_truth):
        seen.append(ground_truth)
        return compare(ground_truth)

    compare_golds(golds("any_of", ("0", "1", "half"), ("most",)), note)
    compare_golds(golds("all_of", ("0",), ("most",)), note)
    assert seen == ["0", "1", "0"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a"),
        (None, ""),
        (5, "5"),
        (10**30, "1" + "0" * 30),
        (2.5, "2.5"),
        (27.0, "27.0"),
        (["a", "b"], 'any of "a", "b"'),
        (["a", "a"], "a"),
        ([1, 'say "x"'], 'any of "1", "say \\"x\\""'),
        ({"all_of": ["a", True]}, 'all of "a", "true"'),
        ({"any_of": None}, ""),
        ({"all_of": 1.5}, "1.5"),
    ],
)
def test_people_and_models_read_all_answers(value, text):
    assert gold_text(read_gold(value)) == text


@pytest.mark.parametrize("value", ["a", "", 5, -5, 2.5, 0.1])
def test_a_value_of_one_spelling_is_a_text(value):
    assert read_gold(value) == str(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([1, {"a": "é"}], '[1, {"a": "é"}]'),
        ({"a": 1}, '{"a": 1}'),
        ({"any_of": [[1], "x"]}, {"any_of": ["[1]", "x"]}),
        ({"all_of": {"a": 1}}, {"all_of": '{"a": 1}'}),
        (True, True),
    ],
)
def test_lists_and_objects_as_json(value, text):
    assert json_text(value) == text


@pytest.mark.parametrize(
    ("value", "are"),
    [
        (1, True),
        ([1, 2], True),
        ({"any_of": [1]}, True),
        (True, False),
        (1.0, False),
        ("1", False),
        ([1, "2"], False),
        ([], False),
        ({"a": 1}, False),
    ],
)
def test_whole_numbers_are_distinguished_from_other_answers(value, are):
    assert are_integers(value) is are


def test_a_metric_that_asks_a_model_gets_all_answers_as_one_text():
    seen = []

    async def asks(ground_truth, prediction, *, context):
        seen.append(ground_truth)
        return 1.0

    context = MetricContext(case_id="c", question="?", client=lambda name: None)
    for compat in (None, "v1"):
        spec = MetricSpec(name="asks", compat=compat)
        asyncio.run(measure_async(spec, read_gold(["a", "b"]), "x", {"asks": asks}, context))
    assert seen == ['any of "a", "b"', "['a', 'b']"]


@pytest.mark.parametrize(("compat", "prediction"), [(None, "a"), (None, "b"), ("v1", "['a', 'b']")])
def test_the_originals_definition_is_given_pythons_text(compat, prediction):
    spec = MetricSpec(name="exact_match", compat=compat)
    scores = {each: measure(spec, read_gold(["a", "b"]), each, METRICS).score for each in ("a", "b", "['a', 'b']", "x")}
    assert scores[prediction] == 1
    assert scores["x"] == 0


def test_many_answers_may_take_long():
    assert takes_long("exact_match", METRICS, read_gold(["a" * 9_000, "b" * 9_000, "c" * 9_000]), "x")
    assert not takes_long("exact_match", METRICS, read_gold(["a", "b"]), "x")


VALUES = [(n * 37 % 1009) / 8 - 60 for n in range(200)]


@pytest.mark.parametrize("name", ["exact_match", "contains_answer", "numeric_match"])
def test_a_number_matches_its_spellings_and_not_its_opposite(name):
    for value in VALUES:
        spellings = {json.dumps(value), str(value), f"{value:g}"}
        assert [score(name, value, each) for each in spellings] == [1] * len(spellings)
        assert [score(name, [value, "x 1"], each) for each in spellings] == [1] * len(spellings)
        assert value == 0 or score(name, value, str(-value)) == 0
        assert score(name, value, str(value + 1)) == 0


def test_any_of_several_answers_is_right_unless_the_rule_needs_all():
    for first, second in zip(VALUES[::2], VALUES[1::2], strict=True):
        answers = [f"{first:g} km", f"{second:g} miles"]
        both = " and ".join(answers)
        assert [score("contains_answer", answers, each) for each in answers] == [1, 1]
        assert [score("contains_answer", {"all_of": answers}, each) for each in [both, *answers]] == [1, 0, 0]
        assert score("json_match", json.dumps([first, second]), f"[{first:g}, {second:g}]") == 1
        assert score("json_match", json.dumps([first, second]), f"[{second:g}, {first:g}]") == 0


@pytest.mark.parametrize("count", range(2, 27))
def test_an_integer_is_the_index_of_an_option_even_if_options_are_numbers(count):
    options = [str(count - 1 - place) for place in range(count)]
    for place, letter in zip(range(count), ascii_uppercase, strict=False):
        assert score("multiple_choice", place, f"The answer is {letter}.", choices=options) == 1
        other = ascii_uppercase[(place + 1) % count]
        assert score("multiple_choice", place, f"The answer is {other}.", choices=options) == 0
        assert score("multiple_choice", place + 1, f"({letter})", choices=options, answer_is="index1") == 1
        assert score("multiple_choice", options[place], letter, choices=options, answer_is="text") == 1
