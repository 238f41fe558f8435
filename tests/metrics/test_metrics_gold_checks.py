"""Answers are graded by the metrics of their own cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_agentbench.metrics.gold_checks import _COMPARE_NUMBERS, _PLAIN_NUMBER, GoldTest
from pytest_agentbench.metrics.registry import METRICS, measure
from pytest_agentbench.records.case import Case, MetricSpec
from pytest_agentbench.records.gold import Golds, gold_reply, read_gold

COLOURS = ["red", "green", "blue"]
DIGITS = ["1", "2", "4"]


def make_case(answer, *metrics, line=1, path="rows.jsonl"):
    gold = read_gold(answer)
    return Case(
        case_id=f"c{line}",
        title="C",
        path=Path(path),
        line=line,
        runner={"type": "llm_probe"},
        metrics=metrics,
        reference=gold_reply(gold),
        golds=gold if isinstance(gold, Golds) else None,
    )


def spec(name, threshold=1.0, **args):
    return MetricSpec(name=name, threshold=threshold, args=args)


def problems(*cases, metrics=METRICS):
    golds = GoldTest(metrics)
    for case in cases:
        golds.add(case)
    return list(golds.problems())


@pytest.mark.parametrize(
    ("answer", "metric"),
    [
        ("two", spec("exact_match")),
        ("7", spec("numeric_match")),
        ("about 7", spec("numeric_match")),
        (-0.5, spec("numeric_match")),
        ([1, 2.0, "3"], spec("numeric_match")),
        ("Paris", spec("contains_answer")),
        ({"all_of": ["Rome", "Oslo"]}, spec("contains_answer")),
        (["a b", "c d"], spec("f1_score")),
        ("B", spec("multiple_choice")),
        ("The answer is B", spec("multiple_choice", choices=COLOURS)),
        ("green", spec("multiple_choice", choices=COLOURS)),
        (2, spec("multiple_choice", choices=COLOURS, answer_is="integer")),
        (1, spec("multiple_choice", choices=DIGITS, answer_is="index")),
        (1, spec("multiple_choice", choices=DIGITS, answer_is="text")),
        (["A", "green"], spec("multiple_choice", choices=COLOURS)),
        ('{"a": 1}', spec("json_match")),
        ("\\frac{1}{2}", spec("math_equal")),
        ("anything", spec("llm_judgement")),  # asks a model
        ("anything", spec("nobody_knows")),
        ("anything", spec("execution_success_rate")),  # looks at a run
        ("", spec("numeric_match")),  # there is no answer
        ("a b", spec("f1_score", None)),
    ],
)
def test_nothing_is_said_of_an_answer_that_is_right_by_its_metric(answer, metric):
    assert problems(make_case(answer, metric)) == []


@pytest.mark.parametrize(
    ("answer", "metric", "problem"),
    [
        (
            "two",
            spec("numeric_match"),
            "found 'two', which numeric_match scores 0 against itself, expected at least 1: no reply is sure",
        ),
        ("two", spec("numeric_match", 0.5), "expected at least 0.5"),
        ("two", spec("numeric_match", None), "expected at least 1"),
        ("!", spec("f1_score"), None),
        (["7", "two"], spec("numeric_match"), "found 'two', which numeric_match scores 0"),
        ({"all_of": ["a", "b"]}, spec("exact_match"), "found 'a b', which exact_match scores 0"),
        ("A,C", spec("multiple_choice", choices=COLOURS), "the ground truth is 'A,C', expected a letter, the text"),
        ("D", spec("multiple_choice", choices=COLOURS), "the ground truth is 'D', expected a letter"),
        ("A", spec("multiple_choice", choices=["x"] * 27), "found 27 choices, expected at most 26"),
        (3, spec("multiple_choice", choices=COLOURS, answer_is="index"), "(answer_is: index)"),
        (["A", "none"], spec("multiple_choice", choices=COLOURS), "the ground truth is 'none'"),
        ("{a: 1}", spec("json_match"), "the ground truth is no JSON"),
        (
            1,
            spec("multiple_choice", choices=DIGITS, answer_is="integer"),
            "found '1', which is A as text and B as index; multiple_choice reads it as B; declare the right one by "
            "`answer_is: text` or `answer_is: index` in dataset.yaml",
        ),
        ("1", spec("multiple_choice", choices=DIGITS), "multiple_choice reads it as A"),
        ("A", spec("multiple_choice", choices=["B", "A"]), "found 'A', which is A as letter and B as text"),
    ],
)
def test_an_answer_that_no_reply_is_right_by_is_named(answer, metric, problem):
    found = problems(make_case(answer, metric, line=7))
    if problem is None:
        assert found == []  # two texts without a word are equal
        return
    [text] = found
    assert text.startswith("rows.jsonl:7:1: answer: ")
    assert problem in text


def test_rows_with_the_same_problem_are_counted():
    choose = spec("multiple_choice", choices=DIGITS, answer_is="integer")
    words = spec("multiple_choice", choices=COLOURS)
    found = problems(
        make_case(0, choose, line=1),
        make_case(1, choose, line=2),
        make_case(2, choose, line=3),
        make_case("A,C", words, line=4),
        make_case("A, B", words, line=5),
        make_case("two", spec("numeric_match"), line=6),
        make_case(2, choose, line=1, path="other.jsonl"),
        make_case(1, choose, line=9),
    )
    assert [text.partition(" ")[0] for text in found] == [
        "rows.jsonl:2:1:",
        "rows.jsonl:4:1:",
        "rows.jsonl:6:1:",
        "other.jsonl:1:1:",
    ]
    assert found[0].endswith("(and 2 more rows)")
    assert found[1].endswith("(and 1 more row)")
    assert "so it is" not in found[2] + found[3]


def test_a_metric_of_the_users_is_asked_too():
    def never(ground_truth, prediction):
        return 0.0

    def broken(ground_truth, prediction):
        raise KeyError("x")

    found = problems(make_case("a", spec("never"), spec("broken")), metrics={"never": never, "broken": broken})
    assert "which never scores 0 against itself" in found[0]
    assert "KeyError: 'x'; each run of it would be an error" in found[1]


@pytest.mark.parametrize("number", ["0", "-1", "42", "3.5", "-0.25", "007", "123456789012345.000000000000001"])
def test_plain_numbers_that_are_not_measured_would_be_right(number):
    assert _PLAIN_NUMBER.fullmatch(number)
    for name in sorted(_COMPARE_NUMBERS):
        assert measure(spec(name), number, number, METRICS).score == 1


def test_a_long_answer_is_shortened_and_hides_no_control_characters():
    [text] = problems(make_case("two \x1b[m\n" + "x" * 500, spec("numeric_match")))
    assert len(text) < 250
    assert "\x1b" not in text
    assert "\n" not in text
