"""Descriptors: how rows become cases: ids, fields, tags, splits, order, and prompts."""

from __future__ import annotations

import re

import pytest
from support.descriptors import asked, bad, cases, good, ids, q

from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.records.case import MetricSpec
from pytest_agentbench.sources.dataset import open_dataset
from pytest_agentbench.sources.items import BenchmarkItem
from pytest_agentbench.sources.rows import read_benchmark_items, row_case


def test_ids_are_unique_over_all_files(rows, describe):
    rows("data/a.jsonl", q(1), {"question": "of line 2"})
    rows("data/b.jsonl", q(1), {"question": "of line 2"})
    dataset = describe({"files": ["*.jsonl"]})
    assert ids(dataset) == ["data.q1", "data.a.item_2", "data.b.item_2"]
    (message,) = bad(dataset)
    assert "b.jsonl:1:1: id: found 'q1' again, first at " in message
    assert message.endswith("a.jsonl:1; give each item its own id")


def test_fields_are_mapped_and_all_others_are_metadata(rows, describe):
    rows(
        "data/one.jsonl",
        {
            "meta": {"uid": 7, "tag": "geo"},
            "problem": "Area?",
            "answers": {"text": ["4", "four"], "start": [0]},
            "info": {"level": 3},
            "question": "not this one",
            "labels": ["x", "y"],
        },
    )
    mapping = {
        "id": "meta.uid",
        "question": "problem",
        "answer": "answers.text.0",
        "metadata": "info",
        "tags": "labels",
    }
    dataset = describe({"files": ["one.jsonl"], "fields": mapping})
    (case,) = cases(dataset)
    assert (case.case_id, case.messages[0].content, case.reference) == ("data/one.7", "Area?", "4")
    assert case.tags == ("x", "y")
    assert case.title == "Area?"
    assert case.metadata == {
        "meta": {"uid": 7, "tag": "geo"},
        "answers": {"text": ["4", "four"], "start": [0]},
        "level": 3,
        "question": "not this one",
        "labels": ["x", "y"],
    }
    (item,) = read_benchmark_items(dataset)
    assert item == BenchmarkItem("7", "Area?", "4", case.metadata)


def test_a_key_with_dots_is_a_field(rows, describe):
    rows("data/one.jsonl", {"a.b": "Why?", "x": {"c.d": "because"}})
    dataset = describe({"files": ["one.jsonl"], "fields": {"question": "a.b", "answer": "x.c.d"}})
    assert [(case.messages[0].content, case.reference) for case in cases(dataset)] == [("Why?", "because")]


def test_a_row_without_the_question_field_names_it_and_similar_fields(rows, describe):
    rows("data/one.jsonl", {"problem": "a"}, {"problme": "b"}, [1], {"problem": 5})
    dataset = describe({"files": ["one.jsonl"], "fields": {"question": "problem"}})
    assert ids(dataset) == ["data/one.item_1"]
    assert [message.partition("one.jsonl:")[2] for message in bad(dataset)] == [
        "2:1: question: found no field 'problem'; did you mean 'problme'?",
        "3:1: found a list, expected an object",
        "4:1: question: found a number, expected a text; it is the agent's task",
    ]


@pytest.mark.parametrize(
    ("fields", "place", "name"),
    [
        ({"fields": {"answer": "soluton"}}, "fields.answer", "soluton"),
        ({"tags_from": ["levle"]}, r"tags_from\[0\]", "levle"),
        ({"tags_from": ["metadata.levle"]}, r"tags_from\[0\]", "metadata.levle"),
    ],
)
def test_a_field_that_no_row_has_is_an_error_of_the_descriptor(rows, describe, fields, place, name):
    rows("data/one.jsonl", q(1, level="easy", solution="s"), q(2, level="hard"))
    dataset = describe({"files": ["one.jsonl"], **fields})
    assert len(ids(dataset)) == 2
    (message,) = bad(dataset)
    assert re.search(rf"dataset\.yaml:\d+:\d+: {place}: found no row with a field '{name}'", message)


def test_tags_come_from_the_descriptor_the_row_and_its_fields(rows, describe):
    rows(
        "data/one.jsonl",
        q(1, tags=["own"], level="easy", grade=3, multi=True, topics=["geo", " geo ", "map"], m={"d": 1.5}),
        q(2, level=None, topics=[]),
    )
    dataset = describe(
        {"files": ["one.jsonl"], "tags": ["all"], "tags_from": ["level", "grade", "multi", "topics", "m.d"]}
    )
    first, second = good(dataset)
    assert first.tags == ("all", "easy", "geo", "grade-3", "m.d-1.5", "map", "multi-true", "own")
    assert second.tags == ("all",)
    assert row_case(dataset, first).tags == first.tags


def test_a_value_that_cannot_be_a_tag_is_an_error_of_its_row(rows, describe):
    rows("data/one.jsonl", q(1, level={"a": 1}), q(2, level="easy"))
    dataset = describe({"files": ["one.jsonl"], "tags_from": ["level"]})
    assert ids(dataset) == ["data/one.q2"]
    assert bad(dataset)[0].endswith(
        "one.jsonl:1:1: level: found an object, expected a text, a number, true or false for a tag"
    )


def test_only_rows_of_the_split_are_read(rows, describe):
    rows("data/one.jsonl", q(1, split="train"), q(2, split="test"), "{broken", q(3), q(4, split="test"))
    dataset = describe({"files": ["one.jsonl"], "split": "test"})
    assert [(row.case_id, row.index) for row in good(dataset)] == [("data/one.q2", 0), ("data/one.q4", 2)]
    assert len(bad(dataset)) == 1  # nobody knows which split it was of


def test_a_split_without_rows_is_reported_with_the_existing_splits(rows, describe):
    rows("data/one.jsonl", q(1, fold="train"), q(2, fold="test"))
    dataset = describe({"files": ["one.jsonl"], "split": "tset", "fields": {"split": "fold"}})
    (message,) = bad(dataset)
    assert message.endswith("split: found no row of it, only 'test', 'train'")
    rows("data/one.jsonl", q(1), q(2, split=3))
    (message,) = bad(describe({"files": ["one.jsonl"], "split": "test"}))
    assert message.endswith("dataset.yaml:4:8: split: found no row of it, only rows without a text in 'split'")


def test_files_without_rows_are_reported_at_the_place_that_lists_them(tmp_path, rows, describe):
    one = rows("data/one.jsonl")
    dataset = describe("schema_version: 1\nfiles: [one.jsonl]\n")
    (message,) = bad(dataset)
    assert message.endswith("dataset.yaml:2:8: files: found no item, expected at least one object with a `question`")
    (message,) = bad(open_dataset(one, ConfigRoot(tmp_path)))
    assert message == f"{one}:1:1: found no item, expected at least one object with a `question`"


def test_the_limit_reads_only_the_first_valid_rows(rows, describe):
    rows("data/one.jsonl", q(1), "{broken", q(2), q(3), "{never read")
    dataset = describe({"files": ["one.jsonl"], "limit": 2})
    assert ids(dataset) == ["data/one.q1", "data/one.q2"]
    assert len(bad(dataset)) == 1
    rows("data/one.jsonl", q(1), q(2), q(3, level="easy"))
    (message,) = bad(describe({"files": ["one.jsonl"], "limit": 2, "tags_from": ["level"]}))
    assert message.endswith("tags_from[0]: found no row with a field 'level'")  # it would have no effect


def test_the_shuffled_order_depends_only_on_the_seed_and_the_ids(rows, describe):
    many = [q(n) for n in range(30)]
    path = rows("data/one.jsonl", *many)
    dataset = describe({"files": ["one.jsonl"], "shuffle_seed": 1})
    shuffled = ids(dataset)
    assert sorted(shuffled) == sorted(f"data/one.q{n}" for n in range(30))
    assert shuffled != [f"data/one.q{n}" for n in range(30)]
    assert [row.index for row in good(dataset)] == [int(case_id.rpartition("q")[2]) for case_id in shuffled]
    rows("data/one.jsonl", q(99), *reversed(many))
    assert [each for each in ids(dataset) if not each.endswith("q99")] == shuffled  # stable under insertion
    path.unlink()
    rows("data/one.jsonl", *many)
    limited = describe({"files": ["one.jsonl"], "shuffle_seed": 1, "limit": 5})
    assert ids(limited) == shuffled[:5]
    assert ids(describe({"files": ["one.jsonl"], "shuffle_seed": 2})) != shuffled


def test_the_prompt_may_use_raw_and_mapped_names_of_fields(rows, describe):
    rows(
        "data/one.jsonl",
        {
            "problem": "Which?",
            "choices": ["red", 2, None, {"a": "é"}],
            "meta": {"unit": {"name": "cm"}, "n": 3, "yes": True, "none": None, "obj": {"é": [1]}},
        },
    )
    prompt = (
        "{{problem}}|{{ question }}\n{{ choices }}\n{{ meta.unit.name }} {{metadata.meta.n}} {{meta.yes}} "
        "{{ meta.none }}{{ meta.obj }} {x} }}"
    )
    dataset = describe({"files": ["one.jsonl"], "fields": {"question": "problem"}, "prompt": prompt})
    (case,) = cases(dataset)
    assert case.messages[0].content == ('Which?|Which?\nA. red\nB. 2\nC. \nD. {"a": "é"}\ncm 3 true {"é": [1]} {x} }}')
    assert case.title == "Which?"
    assert [item.question for item in read_benchmark_items(dataset)] == [case.messages[0].content]


def test_a_long_list_of_choices_continues_with_two_letters(rows, describe):
    rows("data/one.jsonl", q(1, choices=[f"c{n}" for n in range(28)]))
    (text,) = asked(describe({"files": ["one.jsonl"], "prompt": "{{ choices }}"}))
    lines = text.splitlines()
    assert (lines[0], lines[25], lines[26], lines[27]) == ("A. c0", "Z. c25", "AA. c26", "AB. c27")


def test_a_field_of_the_prompt_that_a_row_lacks_is_an_error_of_that_row(rows, describe):
    rows("data/one.jsonl", q(1, choices=["a"]), q(2, choics=["b"]), q(3, choices=["c"]))
    dataset = describe({"files": ["one.jsonl"], "prompt": "{{ question }} {{ choices }}"})
    assert ids(dataset) == ["data/one.q1", "data/one.q3"]
    assert bad(dataset)[0].endswith("one.jsonl:2:1: prompt: found no field 'choices'; did you mean 'choics'?")


def test_nothing_in_a_field_is_executed_or_expanded(rows, describe):
    rows("data/one.jsonl", q(1, x="{{ answer }} {% raw %} ${HOME} {0}"))
    assert asked(describe({"files": ["one.jsonl"], "prompt": "{{ x }}"})) == ["{{ answer }} {% raw %} ${HOME} {0}"]


def test_metric_arguments_are_filled_from_the_row(rows, describe):
    rows("data/one.jsonl", q(1, choices=["a", "b"], n={"x": 2}), q(2, n={"x": 3}))
    metrics = [
        {"name": "multiple_choice", "threshold": 1.0, "args": {"choices": "{{ choices }}", "k": 1}},
        {"name": "numeric_match", "args": {"tol": "{{ n.x }}", "text": "is {{ n.x }}"}},
    ]
    dataset = describe({"files": ["one.jsonl"], "metrics": metrics})
    (case,) = cases(dataset)
    assert [metric.args for metric in case.metrics] == [
        {"choices": ["a", "b"], "k": 1},
        {"tol": 2, "text": "is {{ n.x }}"},
    ]
    assert bad(dataset)[0].endswith("one.jsonl:2:1: metrics: multiple_choice: choices: found no field 'choices'")


def test_metrics_compat_runner_and_context_reach_every_case(rows, describe):
    evaluator = {"func": "similarity"}
    rows("data/one.jsonl", q(1), q(2, evaluator=evaluator), {"question": "no answer"})
    described = {
        "files": ["one.jsonl"],
        "metrics": [{"name": "f1_score", "threshold": 0.5}],
        "compat": "v1",
        "runner": {"type": "llm_probe", "temperature": 0.2},
        "context": {"llm_probe": {"tools": ["web_search"]}, "own": 1},
    }
    first, second, third = cases(describe(described))
    assert first.metrics == (MetricSpec(name="f1_score", threshold=0.5, compat="v1"),)
    assert second.metrics == (MetricSpec(name="similarity", threshold=1.0, compat="v1"),)
    assert (third.metrics, third.reference) == ((), None)
    assert (first.runner.overrides, first.tools) == ({"temperature": 0.2}, ("web_search",))
    assert first.context == described["context"]
    asked_for = (MetricSpec(name="exact_match", threshold=1.0),)
    assert cases(describe(described, metrics=asked_for))[0].metrics == asked_for
