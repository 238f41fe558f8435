"""Datasets with a descriptor: where rows come from, how they become cases, what is wrong with either."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

import pytest
import yaml
from support.questions import is_dataset

from pytest_agentbench.config.base import Known
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.errors import CodeNotRun, ConfigError
from pytest_agentbench.records.case import MetricSpec
from pytest_agentbench.sources.dataset import Dataset, Row, open_dataset
from pytest_agentbench.sources.discovery import find_cases
from pytest_agentbench.sources.items import BenchmarkItem
from pytest_agentbench.sources.rows import BadRow, read_benchmark_items, read_rows, row_case


@pytest.fixture(autouse=True)
def _project(tmp_path):
    (tmp_path / "pytest.ini").touch()


@pytest.fixture
def rows(tmp_path):
    """Writes a JSONL file below the root."""

    def write(name: str, *values: object) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join((v if isinstance(v, str) else json.dumps(v)) + "\n" for v in values))
        return path

    return write


@pytest.fixture
def describe(tmp_path):
    """Writes a descriptor and opens its dataset."""

    def write(fields: dict | str, name: str = "data/dataset.yaml", opened: Path | None = None, **options) -> Dataset:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = fields if isinstance(fields, str) else yaml.safe_dump({"schema_version": 1, **fields})
        path.write_text(text)
        return open_dataset(opened or path, ConfigRoot(tmp_path), **options)

    return write


def good(dataset: Dataset) -> list[Row]:
    return [row for row in read_rows(dataset) if isinstance(row, Row)]


def bad(dataset: Dataset) -> list[str]:
    return [row.message for row in read_rows(dataset) if isinstance(row, BadRow)]


def ids(dataset: Dataset) -> list[str]:
    return [row.case_id for row in good(dataset)]


def cases(dataset: Dataset):
    return [row_case(dataset, row) for row in good(dataset)]


def asked(dataset: Dataset) -> list[str]:
    return [case.messages[-1].content for case in cases(dataset)]


def q(number: int, **more) -> dict:
    return {"id": f"q{number}", "question": f"Question {number}?", "answer": str(number), **more}


# Where rows come from


def test_files_are_read_in_the_order_of_patterns_then_names_and_each_once(rows, describe):
    rows("data/parts/b.jsonl", q(2))
    rows("data/parts/a.jsonl", q(1))
    rows("data/last.jsonl", q(3))
    dataset = describe({"files": ["parts/*.jsonl", "last.jsonl", "parts/a.jsonl"]})
    found = good(dataset)
    assert [row.case_id for row in found] == ["data.q1", "data.q2", "data.q3"]
    assert [(row.path.name, row.line, row.index) for row in found] == [
        ("a.jsonl", 1, 0),
        ("b.jsonl", 1, 1),
        ("last.jsonl", 1, 2),
    ]
    case = row_case(dataset, found[2])
    assert (case.path, case.line, case.dataset) == (found[2].path, 1, "data")


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        ("data/dataset.yaml", {"name": "Sums"}, "Sums"),
        ("data/dataset.yaml", {"name": "a::b"}, "a_b-78f0be"),
        ("data/dataset.yaml", {}, "data/one"),
        ("data/hard.dataset.yaml", {}, "data/one"),
        ("data/dataset.yml", {"files": ["*.jsonl"]}, "data"),
        ("data/hard.dataset.yaml", {"files": ["*.jsonl"]}, "data/hard"),
    ],
)
def test_the_name_is_said_or_the_only_files_or_the_folders(rows, describe, name, fields, expected):
    rows("data/one.jsonl", q(1))
    rows("data/two.jsonl", q(2))
    assert describe({"files": ["one.jsonl"], **fields}, name).name == expected


def test_a_data_file_is_read_with_the_descriptor_that_lists_it(tmp_path, rows, describe):
    one = rows("data/one.jsonl", {"problem": "1?"})
    rows("data/deep/two.jsonl", {"problem": "2?"})
    fields = {"name": "n", "files": ["one.jsonl", "deep/*"], "fields": {"question": "problem"}}
    assert ids(describe(fields)) == ["n.one.item_1", "n.deep/two.item_1"]
    assert ids(open_dataset(one, ConfigRoot(tmp_path))) == ["n.one.item_1"]
    assert asked(open_dataset(tmp_path / "data/deep/two.jsonl", ConfigRoot(tmp_path))) == ["2?"]
    describe({"files": ["one.jsonl"]}, "data/other.dataset.yaml")
    with pytest.raises(ConfigError, match=r"one\.jsonl:1:1: found several descriptors that list it"):
        open_dataset(one, ConfigRoot(tmp_path))


def test_a_folder_is_collected_through_its_descriptors(tmp_path, rows, describe):
    for name in ("one", "two", "shots", "deep/three", "free"):
        rows(f"data/{name}.jsonl", q(1))
    rows("data/local/four.jsonl", q(1))
    describe({"files": ["one.jsonl", "deep/*"], "few_shot": {"file": "shots.jsonl"}})
    describe({"source": "hf:./local"}, "data/hub.dataset.yaml")
    (tmp_path / "data" / "sub").mkdir()
    (tmp_path / "data" / "sub" / "dataset.yaml").write_text("train: images/\nnames: [cat, dog]\n")  # another tool's
    found = [path.relative_to(tmp_path / "data").as_posix() for path in find_cases(tmp_path)]
    assert found == ["dataset.yaml", "free.jsonl", "hub.dataset.yaml", "two.jsonl"]
    assert not is_dataset(tmp_path / "data/one.jsonl")
    assert is_dataset(tmp_path / "data/deep/three.jsonl")  # alone it knows nothing of what stands above
    assert not is_dataset(tmp_path / "data/deep/three.jsonl", tmp_path)


def test_beside_an_unreadable_descriptor_no_file_is_taken_for_a_dataset_of_its_own(tmp_path, rows):
    one = rows("data/one.jsonl", q(1))
    (tmp_path / "data/dataset.yaml").write_text("schema_version: 1\nfiles: [one.jsonl\n")
    assert is_dataset(tmp_path / "data/dataset.yaml")
    assert not is_dataset(one)


@pytest.mark.parametrize("text", ["files: one.jsonl", "files: [1]", "filse: [one.jsonl]", "source: [1]"])
def test_a_descriptor_without_files_makes_its_neighbours_no_datasets(tmp_path, rows, text):
    one = rows("data/one.jsonl", q(1))
    (tmp_path / "data/dataset.yaml").write_text(f"schema_version: 1\n{text}\n")
    assert not is_dataset(one)


def test_a_pattern_that_leaves_the_root_is_looked_for_nowhere(tmp_path, rows):
    one = rows("root/data/one.jsonl", q(1))
    (tmp_path / "root/data/out").symlink_to("/")
    path = tmp_path / "root/data/dataset.yaml"
    path.write_text("schema_version: 1\nfiles: ['/**/*.jsonl', '../../**/*.jsonl', 'out/**/*.jsonl']\n")
    begun = time.process_time()
    assert is_dataset(one, tmp_path / "root")
    assert time.process_time() - begun < 0.5
    with pytest.raises(ConfigError, match="which leaves") as caught:
        open_dataset(path, ConfigRoot(tmp_path / "root"))
    assert str(caught.value).count("which leaves") == 3


@pytest.mark.parametrize("place", ["../*.jsonl", "../secret.jsonl", "link.jsonl", "../*/secret.jsonl"])
@pytest.mark.parametrize("field", ["files", "few_shot", "source"])
def test_a_dataset_reads_nothing_outside_its_folder_and_the_roots_cases(tmp_path, rows, place, field):
    """The config root is a whole project here; what it has elsewhere is no cases."""
    for name in ("secret.jsonl", "elsewhere/secret.jsonl", "cases/shared.jsonl", "data/one.jsonl"):
        rows(name, q(1))
    (tmp_path / "data" / "link.jsonl").symlink_to(tmp_path / "secret.jsonl")
    said = {"files": f"files: ['{place}']", "few_shot": f"few_shot: {{file: '{place}', count: 1}}\nfiles: [one.jsonl]"}
    said["source"] = f"source: hf:./{place.replace('*/', 'elsewhere/').replace('*', 'secret')}"
    path = tmp_path / "data" / "dataset.yaml"
    path.write_text(f"schema_version: 1\nname: d\n{said[field]}\n")
    with pytest.raises(ConfigError, match="which leaves"):
        open_dataset(path, ConfigRoot(tmp_path))
    path.write_text("schema_version: 1\nname: d\nfiles: [../cases/shared.jsonl]\n")
    assert ids(open_dataset(path, ConfigRoot(tmp_path))) == ["d.q1"]


def test_a_descriptor_in_utf_16_is_one_too(tmp_path, rows):
    one = rows("data/one.jsonl", q(1))
    path = tmp_path / "data/dataset.yaml"
    path.write_text("schema_version: 1\nname: wide\nfiles: [one.jsonl]\n", encoding="utf-16")
    assert list(find_cases(tmp_path)) == [path]
    assert ids(open_dataset(path, ConfigRoot(tmp_path))) == ["wide.q1"]
    assert not is_dataset(one)


def test_a_descriptor_that_changes_is_read_again(tmp_path, rows, describe):
    one, two = rows("data/one.jsonl", q(1)), rows("data/two.jsonl", q(2))
    describe({"files": ["one.jsonl"]})
    assert [is_dataset(one), is_dataset(two)] == [False, True]
    describe({"files": ["one.jsonl", "two.jsonl"]})
    assert [is_dataset(one), is_dataset(two)] == [False, False]


def test_a_file_that_cannot_be_read_takes_no_other_down(rows, describe):
    rows("data/a.jsonl", q(1))
    rows("data/b.jsonl").write_bytes('{"question": "x"}'.encode("utf-16"))
    rows("data/c.jsonl", q(3))
    dataset = describe({"files": ["*.jsonl"]})
    assert ids(dataset) == ["data.q1", "data.q3"]
    (message,) = bad(dataset)
    assert "b.jsonl:1:1: found UTF-16 or binary data" in message
    assert message.count("b.jsonl") == 1


def test_ids_are_unique_over_all_files(rows, describe):
    rows("data/a.jsonl", q(1), {"question": "of line 2"})
    rows("data/b.jsonl", q(1), {"question": "of line 2"})
    dataset = describe({"files": ["*.jsonl"]})
    assert ids(dataset) == ["data.q1", "data.a.item_2", "data.b.item_2"]
    (message,) = bad(dataset)
    assert "b.jsonl:1:1: id: found 'q1' again, first at " in message
    assert message.endswith("a.jsonl:1; give each item its own id")


# What a row is


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


def test_a_key_with_dots_is_a_field_too(rows, describe):
    rows("data/one.jsonl", {"a.b": "Why?", "x": {"c.d": "because"}})
    dataset = describe({"files": ["one.jsonl"], "fields": {"question": "a.b", "answer": "x.c.d"}})
    assert [(case.messages[0].content, case.reference) for case in cases(dataset)] == [("Why?", "because")]


def test_a_row_without_the_question_field_names_it_and_what_is_near(rows, describe):
    rows("data/one.jsonl", {"problem": "a"}, {"problme": "b"}, [1], {"problem": 5})
    dataset = describe({"files": ["one.jsonl"], "fields": {"question": "problem"}})
    assert ids(dataset) == ["data/one.item_1"]
    assert [message.partition("one.jsonl:")[2] for message in bad(dataset)] == [
        "2:1: question: found no field 'problem'; did you mean 'problme'?",
        "3:1: found a list, expected an object",
        "4:1: question: found a number, expected a text; this is what the agent is asked",
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


def test_of_a_split_only_its_rows_take_part(rows, describe):
    rows("data/one.jsonl", q(1, split="train"), q(2, split="test"), "{broken", q(3), q(4, split="test"))
    dataset = describe({"files": ["one.jsonl"], "split": "test"})
    assert [(row.case_id, row.index) for row in good(dataset)] == [("data/one.q2", 0), ("data/one.q4", 2)]
    assert len(bad(dataset)) == 1  # nobody knows which split it was of


def test_a_split_that_no_row_has_is_named_with_those_that_there_are(rows, describe):
    rows("data/one.jsonl", q(1, fold="train"), q(2, fold="test"))
    dataset = describe({"files": ["one.jsonl"], "split": "tset", "fields": {"split": "fold"}})
    (message,) = bad(dataset)
    assert message.endswith("split: found no row of it, only 'test', 'train'")
    rows("data/one.jsonl", q(1), q(2, split=3))
    (message,) = bad(describe({"files": ["one.jsonl"], "split": "test"}))
    assert message.endswith("dataset.yaml:4:8: split: found no row of it, only rows without a text in 'split'")


def test_files_without_a_row_are_named_by_the_place_that_lists_them(tmp_path, rows, describe):
    one = rows("data/one.jsonl")
    dataset = describe("schema_version: 1\nfiles: [one.jsonl]\n")
    (message,) = bad(dataset)
    assert message.endswith("dataset.yaml:2:8: files: found no item, expected at least one object with a `question`")
    (message,) = bad(open_dataset(one, ConfigRoot(tmp_path)))
    assert message == f"{one}:1:1: found no item, expected at least one object with a `question`"


def test_the_limit_takes_the_first_good_rows_and_reads_no_further(rows, describe):
    rows("data/one.jsonl", q(1), "{broken", q(2), q(3), "{never read")
    dataset = describe({"files": ["one.jsonl"], "limit": 2})
    assert ids(dataset) == ["data/one.q1", "data/one.q2"]
    assert len(bad(dataset)) == 1
    rows("data/one.jsonl", q(1), q(2), q(3, level="easy"))
    (message,) = bad(describe({"files": ["one.jsonl"], "limit": 2, "tags_from": ["level"]}))
    assert message.endswith("tags_from[0]: found no row with a field 'level'")  # it would have no effect


def test_the_shuffled_order_hangs_on_seed_and_ids_only(rows, describe):
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


# What is asked


def test_the_prompt_holds_fields_by_their_raw_and_their_own_names(rows, describe):
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


def test_a_long_list_goes_on_with_two_letters(rows, describe):
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


# Few-shot


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


def test_a_metrics_argument_may_be_the_field_with_several_answers(rows, describe):
    rows("data/one.jsonl", {"question": "Which?", "names": ["a", "b"]})
    metric = {"name": "mine", "args": {"known": "{{ names }}"}}
    (case,) = cases(describe({"files": ["one.jsonl"], "fields": {"answer": {"all_of": "names"}}, "metrics": [metric]}))
    assert case.metrics[0].args == {"known": ["a", "b"]}
    assert case.golds.rule == "all_of"


def test_a_row_is_never_shown_itself(rows, describe):
    rows("data/one.jsonl", *(q(n) for n in range(4)))
    dataset = describe({"files": ["one.jsonl"], "few_shot": {"file": "one.jsonl", "count": 2}})
    first, second, _, fourth = cases(dataset)
    assert [content for _, content in shots(first)] == ["Question 1?", "1", "Question 2?", "2", "Question 0?"]
    assert [content for _, content in shots(second)][:4:2] == ["Question 0?", "Question 2?"]
    assert [content for _, content in shots(fourth)][:4:2] == ["Question 0?", "Question 1?"]


def test_examples_of_another_split_in_an_order_of_their_own(rows, describe):
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


# Code


MODULE = """
from pytest_agentbench.sources.items import BenchmarkItem

class Custom:
    def _parse_item(self, data, line_num):
        if data["problem"] == "none":
            return None
        if data["problem"] == "bad":
            return BenchmarkItem(id="x", question="q", answer="a", metadata={"when": object()})
        return BenchmarkItem(
            id=str(data.get("custom_id", line_num)), question=data["problem"], answer=str(data.get("truth")),
            metadata={"difficulty": data.get("level"), "tags": ["made"]},
        )

class Other: pass

class Picky:
    def __init__(self, path): pass
"""


@pytest.fixture
def custom(tmp_path, describe):
    def write(benchmark: str = "own_items:Custom", source: str = MODULE, **fields) -> Dataset:
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data" / f"{benchmark.partition(':')[0]}.py").write_text(source)
        return describe({"files": ["one.jsonl"], "benchmark": benchmark, **fields}, run_code=True)

    return write


def test_a_class_makes_the_items(tmp_path, rows, custom):
    before = list(sys.path)
    rows(
        "data/one.jsonl",
        {"custom_id": 7, "problem": "p", "truth": 3, "level": "hard"},
        {"problem": "none"},
        {"truth": 1},
        {"problem": "bad"},
        {"problem": "last"},
        [1],
    )
    dataset = custom("own_items:Custom", tags_from=["difficulty"])
    first, last = cases(dataset)
    assert (first.case_id, first.messages[0].content, first.reference) == ("data/one.7", "p", "3")
    assert first.metadata == {"difficulty": "hard", "tags": ["made"]}
    assert first.tags == ("hard", "made")
    assert last.case_id == "data/one.5"
    assert [message.partition("one.jsonl:")[2] for message in bad(dataset)] == [
        "2:1: Custom._parse_item returned NoneType, expected a BenchmarkItem",
        "3:1: Custom._parse_item raised KeyError: 'problem'",
        "4:1: found what is no JSON value: Object of type object is not JSON serializable",
        "6:1: found a list, expected an object",
    ]
    assert sys.path == before


def test_code_is_run_only_where_it_is_allowed(tmp_path, rows):
    rows("data/one.jsonl", q(1))
    (tmp_path / "data" / "explosive.py").write_text("raise SystemError('it was run')\n")
    path = tmp_path / "data" / "dataset.yaml"
    path.write_text("schema_version: 1\nfiles: [one.jsonl]\nbenchmark: explosive:Custom\n")
    with pytest.raises(CodeNotRun, match=r"dataset\.yaml:3:12: benchmark: explosive:Custom makes the items"):
        list(read_rows(open_dataset(path, ConfigRoot(tmp_path))))
    with pytest.raises(ConfigError, match=r"3:12: benchmark: cannot import explosive: SystemError: it was run"):
        open_dataset(path, ConfigRoot(tmp_path), run_code=True)


def test_code_that_wants_to_leave_python_does_not(rows, custom):
    rows("data/one.jsonl", {"problem": "p"}, {"problem": "none"})
    for place in ("import sys; sys.exit(3)", "class Custom:\n    def __init__(self): raise SystemExit(3)"):
        name = f"leaving{len(place)}"
        with pytest.raises(ConfigError, match=rf"benchmark: (cannot import {name}|Custom\(\) failed): SystemExit: 3"):
            custom(f"{name}:Custom", place)
    source = MODULE.replace("return None", "raise SystemExit(3)")
    assert [message.partition("one.jsonl:")[2] for message in bad(custom("leaving:Custom", source))] == [
        "2:1: Custom._parse_item raised SystemExit: 3"
    ]


def test_an_exception_of_a_module_is_an_import_error_with_its_text(rows, custom):
    rows("data/one.jsonl", q(1))
    with pytest.raises(ConfigError, match=r"benchmark: cannot import raising: ValueError: not today"):
        custom("raising:Custom", "raise ValueError('not today')")


@pytest.mark.parametrize(
    ("benchmark", "message"),
    [
        ("own_items:Costum", r"found no class 'Costum' in .*own_items\.py"),
        ("own_items:Other", r"the class 'Other' has no method _parse_item\(self, data, line_num\)"),
        ("own_items:Picky", r"Picky\(\) failed: TypeError: "),
        ("json:JSONDecoder", r"the class 'JSONDecoder' has no method _parse_item"),
    ],
)
def test_a_class_that_cannot_be_used_is_an_error_of_the_descriptor(rows, custom, benchmark, message):
    rows("data/one.jsonl", q(1))
    with pytest.raises(ConfigError, match=rf"dataset\.yaml:\d+:\d+: benchmark: {message}"):
        custom(benchmark)


def test_a_module_that_is_nowhere_is_named(rows, describe):
    rows("data/one.jsonl", q(1))
    with pytest.raises(ConfigError, match=r"found no module 'no_such\.module', neither on the import path nor as"):
        describe({"files": ["one.jsonl"], "benchmark": "no_such.module:Custom"}, run_code=True)


def test_modules_of_one_name_in_two_folders_are_two(tmp_path, rows, describe):
    found = []
    for folder in ("one", "two"):
        rows(f"{folder}/rows.jsonl", {"problem": folder})
        (tmp_path / folder / "own_items.py").write_text(
            MODULE.replace('question=data["problem"]', f'question="{folder}"')
        )
        found += asked(
            describe(
                {"files": ["rows.jsonl"], "benchmark": "own_items:Custom"}, f"{folder}/dataset.yaml", run_code=True
            )
        )
    assert found == ["one", "two"]


def test_known_names_are_verified(rows, describe):
    rows("data/one.jsonl", q(1))
    known = Known(runners=frozenset({"llm_probe"}), metrics=frozenset({"exact_match"}), tools=frozenset())
    with pytest.raises(ConfigError, match="unknown metric 'exact_mach'; did you mean 'exact_match'"):
        describe({"files": ["one.jsonl"], "metrics": [{"name": "exact_mach"}]}, known=known)
