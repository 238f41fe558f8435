"""The descriptor's `choices`: options of several fields as one list, labels, and an order of their own for each row."""

from __future__ import annotations

import json

import pytest
import yaml

from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.sources.choices import find_letters, strip_own_letters
from pytest_agentbench.sources.dataset import Row, open_dataset
from pytest_agentbench.sources.items import MISSING, look_up
from pytest_agentbench.sources.rows import read_benchmark_items, read_rows


@pytest.fixture
def items(tmp_path):
    """Return the items of rows under a descriptor with `choices`, or the reasons of bad rows."""

    def read(rows, choices, **more):
        (tmp_path / "pytest.ini").touch()
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        text = {"schema_version": 1, "files": ["rows.jsonl"], "choices": choices, "prompt": "{{ choices }}", **more}
        (tmp_path / "dataset.yaml").write_text(yaml.safe_dump(text))
        dataset = open_dataset(tmp_path / "dataset.yaml", ConfigRoot(tmp_path))
        if all(isinstance(row, Row) for row in read_rows(dataset)):
            return list(read_benchmark_items(dataset))
        return [row.message.partition("choices: ")[2] for row in read_rows(dataset) if not isinstance(row, Row)]

    return read


@pytest.mark.parametrize(
    ("row", "fields", "prompt"),
    [
        ({"a": "x", "b": 2}, ["a", "b"], "A. x\nB. 2"),
        ({"list": ["x", "y"]}, ["list"], "A. x\nB. y"),
        ({"answer": "x", "wrong": ["y", "z"]}, ["answer", "wrong"], "A. x\nB. y\nC. z"),
        ({"by": {"B": "y", "A": "x", "C": ""}}, ["by"], "A. x\nB. y"),
        ({"by": {"A": "x", "B": None, "C": "z"}}, ["by"], "A. x\nB. \nC. z"),
        ({"list": ["A) x", "B)y", "(C) z"]}, ["list"], "A. x\nB. y\nC. z"),
        ({"list": [{"text": " x "}, {"text": "y"}, {"label": "C"}]}, ["list.*.text"], "A. x\nB. y"),
    ],
)
def test_options_become_one_list(items, row, fields, prompt):
    (item,) = items([{"question": "q", **row}], {"fields": fields})
    assert item.question == prompt


@pytest.mark.parametrize(
    ("answer", "right"),
    [(0, "w"), (2, "y"), ("B", "x"), ("z", "z"), (" y ", "y")],
)
@pytest.mark.parametrize("seed", range(4))
def test_the_answer_is_the_letter_of_the_right_option_in_the_new_order(items, answer, right, seed):
    (item,) = items(
        [{"question": "q", "answer": answer, "all": list("wxyz")}], {"fields": ["all"], "shuffle_seed": seed}
    )
    lines = item.question.splitlines()
    assert f"{item.answer}. {right}" in lines
    assert sorted(line[3:] for line in lines) == list("wxyz")


def test_the_order_depends_on_seed_and_question_alone(items):
    rows = [{"question": f"q{n}", "answer": "w", "all": list("wxyz")} for n in range(8)]
    choices = {"fields": ["all"], "shuffle_seed": 1}
    asked = [item.question for item in items(rows, choices)]
    assert len(set(asked)) > 2
    assert [item.question for item in items(rows[3:], choices)] == asked[3:]
    assert [item.question for item in items(rows, {"fields": ["all"], "shuffle_seed": 2})] != asked
    assert len({item.answer for item in items(rows, choices)}) > 1
    # The order is that of all versions: stored runs are found by what was asked.
    assert asked[0] == "A. x\nB. y\nC. w\nD. z"


def test_labels_lead_to_letters(items):
    rows = [
        {"question": "q", "answer": "2", "all": ["x", "y"], "labels": ["1", "2"]},
        {"question": "r", "answer": 1, "all": ["x", "y"], "labels": [1, 2]},
        {"question": "s", "answer": "B", "all": ["x", "y"], "labels": ["A", "B"]},
    ]
    choices = {"fields": ["all"], "labels": "labels"}
    assert [item.answer for item in items(rows, choices)] == ["B", "A", "B"]
    shuffled = items(rows, choices | {"shuffle_seed": 3})
    assert [item.question.splitlines()["AB".index(item.answer)][3:] for item in shuffled] == ["y", "x", "y"]


SHUFFLED, LABELLED = {"shuffle_seed": 1}, {"labels": "l"}


@pytest.mark.parametrize(
    ("row", "choices", "reason"),
    [
        ({"all": ["x", "y"], "answer": "z"}, SHUFFLED, "the answer 'z', which is no option"),
        ({"all": ["x", "x"], "answer": "A"}, SHUFFLED, "the right option 'x' twice"),
        ({"all": ["B", "A"], "answer": "A"}, SHUFFLED, "the answer 'A', which more than one option may be"),
        ({"all": ["x", "x"], "answer": "x"}, SHUFFLED, "the answer 'x', which more than one option may be"),
        ({"all": ["x", "y"], "answer": 2}, SHUFFLED, "the answer '2', which is no option"),
        ({"all": ["x", "y"], "answer": True}, SHUFFLED, "the answer 'True', which is no option"),
        ({"all": ["x", "y"], "answer": "3", "l": ["1", "2"]}, LABELLED, "the answer '3', expected one of the labels"),
        ({"all": ["x", "y"], "answer": "1"}, LABELLED, "the answer '1', expected one of the labels"),
        (
            {"all": ["x", "y"], "answer": "3", "l": ["1", "2", "3"]},
            LABELLED,
            "the answer '3', expected one of the labels",
        ),
        ({"all": ["x"], "answer": "A"}, {}, "1 options, expected 2 to 26"),
        ({"all": [["x"], "y"]}, {}, "a list, expected texts or numbers"),
        ({"al": ["x", "y"]}, {}, "no field 'all'"),
    ],
)
def test_rows_without_one_right_option_are_errors(items, row, choices, reason):
    assert items([{"question": "q", **row}], {"fields": ["all"], **choices}) == [f"found {reason}"]


@pytest.mark.parametrize(
    ("answer", "answer_is", "right"),
    [(1, "index", "2"), (1, "index1", "1"), ("1", "text", "1"), (2, "text", "2"), ("B", "letter", "2"), (1, None, "2")],
)
def test_answer_is_sets_the_reading_of_the_answer(items, answer, answer_is, right):
    choices = {"fields": ["all"], "shuffle_seed": 5}
    row = {"question": "q", "answer": answer, "all": ["1", "2", "B"] if answer == "B" else ["1", "2", "3"]}
    (item,) = items([row], choices, **({} if answer_is is None else {"answer_is": answer_is}))
    assert f"{item.answer}. {right}" in item.question.splitlines()


def test_a_row_without_an_answer_keeps_none(items):
    (item,) = items([{"question": "q", "all": ["x", "y"]}], {"fields": ["all"], "shuffle_seed": 1})
    assert item.answer == ""
    assert item.metadata["choices"] in (["x", "y"], ["y", "x"])


@pytest.mark.parametrize(
    ("options", "texts"),
    [
        (["A)7", "B) 8"], ["7", "8"]),
        (["(a) x", "(b) y"], ["x", "y"]),
        (["A. x", "B. y", "C: z"], ["x", "y", "z"]),
        (["A)7"], None),
        (["A)7", "8"], None),
        (["B)7", "A)8"], None),
        (["A", "B"], None),
        (["A)7", 8], None),
        ([], None),
    ],
)
def test_own_letters_are_removed_if_all_options_carry_them(options, texts):
    assert strip_own_letters(options) == texts


@pytest.mark.parametrize(
    ("text", "letters"),
    [
        ("A) 3 B) 4 C) 6 D) 9", "ABCD"),
        ("(A) red\n(B) blue", "AB"),
        ("a ) 38 , b ) 27.675 , c ) none", "ABC"),
        ("A. red\nB. blue", "AB"),
        ("A)7,B)8", "AB"),
        ("A) B) C)", "ABC"),
        ("A) only", ""),
        ("B) first, A) second", ""),
        ("nothing", ""),
        ("", ""),
    ],
)
def test_letters_of_options_in_one_text_are_found(text, letters):
    assert find_letters(text) == letters


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("list.*.text", ["x", "y"]),
        ("list.*", [{"text": "x"}, {"text": "y"}, {"other": 1}]),
        ("list.*.gone", []),
        ("text.*", MISSING),
        ("star.*", 1),
    ],
)
def test_a_star_leads_to_every_element(path, value):
    row = {"list": [{"text": "x"}, {"text": "y"}, {"other": 1}], "text": "t", "star": {"*": 1}}
    assert look_up(row, path) == value


def test_lists_that_carry_their_letters_get_no_further_ones(items):
    (item,) = items([{"question": "q", "own": ["A) x", "B) y"]}], {"fields": ["own"]}, prompt="{{ own }}")
    assert item.question == "A) x\nB) y"
