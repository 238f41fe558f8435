"""Right answers that are no plain text: indices of options, lists, numbers, true and false."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

from pytest_agentbench import BenchmarkWarning, create_benchmark

REPORTS = Path(__file__).parents[3] / "shared" / "data" / "reports"
needs_reports = pytest.mark.skipif(not REPORTS.is_dir(), reason="the shared data is not beside the project")

CHOICES = ["1", "2", "4", "8"]


@pytest.fixture
def grade(tmp_path):
    def make(answers, predictions, *, descriptor="", **fields):
        """Return the scores of predictions, one for each answer; errors of rows and of metrics in their place."""
        rows = [{"question": "?", "answer": answer, **fields} for answer in answers]
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        path = tmp_path / "dataset.yaml"
        path.write_text(f"schema_version: 1\nfiles: [rows.jsonl]\n{descriptor}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BenchmarkWarning)  # of rows and items without a score
            results = create_benchmark(path).evaluate(predictions)
        return [result.error if result.score is None else result.score for result in results]

    return make


@needs_reports
def test_scores_of_reported_indices():
    folder = REPORTS / "choice_index"
    benchmark = create_benchmark(folder / "dataset.yaml")
    results = benchmark.evaluate(json.loads((folder / "p.json").read_text()))
    wants = [json.loads(line)["want"] for line in (folder / "d.jsonl").read_text().splitlines()]
    assert [result.score for result in results] == wants


CHOOSE = "metrics: [{name: multiple_choice, threshold: 1, args: {choices: '{{ choices }}'}}]\n"


@pytest.mark.parametrize(
    ("answer", "answer_is", "letter"),
    [
        (2, None, "C"),
        (0, None, "A"),
        (3, None, "D"),
        (4, None, "C"),  # out of range: the text of an option
        (8, None, "D"),
        ("2", None, "B"),
        ("C", None, "C"),
        (2, "index", "C"),
        ("2", "index", "C"),
        (2, "index1", "B"),
        ("4", "index1", "D"),
        (2, "text", "B"),
        ("D", "letter", "D"),
    ],
)
def test_only_the_letter_of_the_right_option_scores(grade, answer, answer_is, letter):
    said = CHOOSE + (f"answer_is: {answer_is}\n" if answer_is else "")
    scores = grade([answer] * 4, ["A", "B", "C", "D"], descriptor=said, choices=CHOICES)
    assert scores == [float(each == letter) for each in "ABCD"]


@pytest.mark.parametrize(
    ("answer", "answer_is", "expected"),
    [
        (3.0, "index", "expected the index of an option from 0, as answer_is: index says"),
        (9, None, "expected the index of an option from 0 or the text of one"),
        (-1, None, "expected the index of an option from 0 or the text of one"),
        (4, "index", "expected the index of an option from 0"),
        (0, "index1", "expected the number of an option from 1"),
        (5, "index1", "expected the number of an option from 1"),
        ("1", "letter", "expected the letter of an option"),
        ("C", "text", "expected the text of one option"),
    ],
)
def test_an_answer_that_is_not_what_answer_is_says_is_an_error(grade, answer, answer_is, expected):
    said = CHOOSE + (f"answer_is: {answer_is}\n" if answer_is else "")
    [error] = grade([answer], ["A"], descriptor=said, choices=CHOICES)
    assert expected in error


def test_an_index_that_is_said_needs_no_options(grade):
    metric = "metrics: [{name: multiple_choice, threshold: 1}]\n"
    assert grade([2, 1], ["C", "A"], descriptor=f"{metric}answer_is: index\n") == [1, 0]
    [error] = grade([2], ["C"], descriptor=metric)
    assert "metrics: args: choices names the options" in error


def test_an_evaluator_reads_its_number_as_an_index(grade):
    evaluator = {"func": "multiple_choice", "args": {"choices": CHOICES, "reference": 2}}
    assert grade(["x", "x"], ["C", "B"], evaluator=evaluator) == [1, 0]
