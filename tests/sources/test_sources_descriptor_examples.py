"""Descriptors: examples that come before a row's question."""

from __future__ import annotations

import pytest
from support.descriptors import cases, q

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.sources.rows import read_rows


def shots(case) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in case.messages]


def test_inline_examples_come_before_the_question_through_the_same_prompt(rows, describe):
    rows("data/one.jsonl", q(1, unit="cm"))
    few_shot = {
        "examples": [{"question": "1+1?", "answer": 2, "unit": "m"}, {"question": "a", "answer": "b", "unit": "s"}]
    }
    (case,) = cases(
        describe({"files": ["one.jsonl"], "prompt": "Q ({{ unit }}): {{ question }}", "few_shot": few_shot})
    )
    assert shots(case) == [
        ("user", "Q (m): 1+1?"),
        ("assistant", "2"),
        ("user", "Q (s): a"),
        ("assistant", "b"),
        ("user", "Q (cm): Question 1?"),
    ]


def test_an_example_with_several_answers_shows_the_first(rows, describe):
    rows("data/one.jsonl", q(1), {"id": 2, "question": "Which?", "names": ["a", "b"]})
    rows("data/shots.jsonl", {"question": "Which one?", "names": ["x", "y"]})
    said = {"files": ["one.jsonl"], "fields": {"answer": {"any_of": "names"}}, "few_shot": {"file": "shots.jsonl"}}
    case = cases(describe(said))[-1]
    assert shots(case) == [("user", "Which one?"), ("assistant", "x"), ("user", "Which?")]
    assert case.reference == "a"
    assert case.golds.answers == (("a",), ("b",))


def test_an_argument_of_a_metric_may_be_a_field_with_several_answers(rows, describe):
    rows("data/one.jsonl", {"question": "Which?", "names": ["a", "b"]})
    metric = {"name": "mine", "args": {"known": "{{ names }}"}}
    (case,) = cases(describe({"files": ["one.jsonl"], "fields": {"answer": {"all_of": "names"}}, "metrics": [metric]}))
    assert case.metrics[0].args == {"known": ["a", "b"]}
    assert case.golds.rule == "all_of"


def test_a_row_is_no_example_of_itself(rows, describe):
    rows("data/one.jsonl", *(q(n) for n in range(4)))
    dataset = describe({"files": ["one.jsonl"], "few_shot": {"file": "one.jsonl", "count": 2}})
    first, second, _, fourth = cases(dataset)
    assert [content for _, content in shots(first)] == ["Question 1?", "1", "Question 2?", "2", "Question 0?"]
    assert [content for _, content in shots(second)][:4:2] == ["Question 0?", "Question 2?"]
    assert [content for _, content in shots(fourth)][:4:2] == ["Question 0?", "Question 1?"]


def test_examples_may_come_from_another_split_in_another_order(rows, describe):
    train = [q(n, split="train") for n in range(20)]
    rows("data/one.jsonl", *train, q(99, split="test"))
    plain = {"files": ["one.jsonl"], "split": "test", "few_shot": {"split": "train"}}
    (case,) = cases(describe(plain))
    assert [content for _, content in shots(case)][::2] == [*(f"Question {n}?" for n in range(5)), "Question 99?"]
    few_shot = {"split": "train", "count": 3, "shuffle_seed": 1}
    (case,) = cases(describe({**plain, "few_shot": few_shot}))
    shuffled = shots(case)
    assert len(shuffled) == 7
    rows("data/one.jsonl", *reversed(train), q(99, split="test"))
    (case,) = cases(describe({**plain, "few_shot": few_shot}))
    assert shots(case) == shuffled


@pytest.mark.parametrize(
    ("few_shot", "message"),
    [
        ({"file": "shots.jsonl"}, r"shots\.jsonl:1:1: few_shot: found no answer, which an example needs"),
        (
            {"split": "dev"},
            r"dataset\.yaml:\d+:\d+: few_shot: found no examples of the split 'dev' .*, expected at least one",
        ),
        ({"file": "one.jsonl", "count": 2}, r"few_shot: found 1 examples .*, expected 2"),
        ({"examples": [{"question": "q", "answer": "a"}]}, r"few_shot\.examples\[0\]: prompt: found no field 'unit'"),
    ],
)
def test_invalid_examples_are_errors_before_any_row(rows, describe, few_shot, message):
    rows("data/one.jsonl", q(1, unit="cm"))
    rows("data/shots.jsonl", {"question": "x", "unit": "cm"})
    with pytest.raises(ConfigError, match=message):
        next(read_rows(describe({"files": ["one.jsonl"], "prompt": "{{ question }} {{ unit }}", "few_shot": few_shot})))
