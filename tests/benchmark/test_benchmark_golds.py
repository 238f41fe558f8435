"""Right answers that are no plain text: indices of options, lists, numbers, true and false."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

from pytest_agentbench import Benchmark, BenchmarkWarning, Measured, create_benchmark, metric, score
from pytest_agentbench.cli import main

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
        (1.5, "index", "expected the index of an option from 0 (answer_is: index)"),
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


ANY = ["Paris", "Paris, France", "the capital of France"]


@pytest.mark.parametrize(
    ("metric", "answer", "right", "wrong"),
    [
        ("exact_match", ANY, ANY, ["paris", "any of"]),
        ("contains_answer", ["Paris", "Lutetia"], ["It is Paris.", "It is Lutetia."], ["It is Rome."]),
        ("f1_score", ANY, ["Paris", "capital of France"], ["Rome", "Paris or Rome"]),
        ("similarity", ANY, ANY, ["Paris, Fran"]),
        ("numeric_match", [3, 4.5, "7"], ["3", "It is 4.50", "7.0"], ["8", "-3"]),
        ("numeric_match", 27.0, ["27", "27.0", "27.00"], ["-27", "28"]),
        ("exact_match", 27.0, ["27", "27.0"], ["27.00", "-27"]),
        ("exact_match", 1e-7, ["1e-7", "1e-07"], ["1e7", "-1e-7"]),
        ("exact_match", 1e16, ["1e16", "1e+16"], ["1e-16"]),
        ("exact_match", 2.5, ["2.5"], ["2.50", "25"]),
        ("exact_match", True, ["true", "True"], ["false", "TRUE"]),
        ("exact_match", False, ["false", "False"], ["true", ""]),
        ("exact_match", [True, 1], ["true", "1"], ["0"]),
        ("exact_match", ["Paris"], ["Paris"], ["['Paris']", '["Paris"]']),
        ("exact_match", {"any_of": "Paris"}, ["Paris"], ["paris"]),
        ("contains_answer", {"all_of": ["Rome", "Oslo"]}, ["Oslo and Rome"], ["Rome", "Oslo", "all of"]),
        ("contains_answer", {"all_of": [27.0, True]}, ["true, it is 27", "27.0, true"], ["27", "true"]),
        ("json_match", ["a", 1], ['["a", 1]'], ["1", '"a"', '[1, "a"]']),
        ("json_match", {"a": [1, 2]}, ['{"a": [1, 2]}'], ['{"a": [1, 2, 3]}']),
        ("json_match", {"any_of": [{"a": 1}, [2]]}, ['{"a": 1}', "[2]"], ['{"a": 2}', "2"]),
        ("json_match", True, ["true"], ["false"]),
        ("math_equal", ["1/2", "3"], ["3"], []),
    ],
)
def test_any_right_answer_scores_and_no_other(grade, metric, answer, right, wrong):
    scores = grade([answer] * len(right + wrong), right + wrong, descriptor=f"metrics: [{{name: {metric}}}]\n")
    assert scores[: len(right)] == [1.0] * len(right)
    assert all(score < 1 for score in scores[len(right) :])


@pytest.mark.parametrize("answer", [[0, 3], {"any_of": [0, 3]}, ["A", "D"], ["1", "8"], ["A", "8"]])
def test_a_choice_may_have_several_right_letters(grade, answer):
    scores = grade([answer] * 4, ["A", "B", "C", "D"], descriptor=CHOOSE, choices=CHOICES)
    assert scores == [1, 0, 0, 1]


def test_an_answer_that_cannot_be_read_is_no_wrong_prediction(grade):
    scores = grade([["A", "no option"]] * 2, ["A", "B"], descriptor=CHOOSE, choices=CHOICES)
    assert scores[0] == 1
    assert "'no option', expected a letter" in scores[1]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (
            {"value": "Paris", "aliases": ["paris"]},
            "answer: found an object with 'value', 'aliases', expected a text, a number, true or false, or a list",
        ),
        ({"any_of": ["a"], "all_of": ["b"]}, "found an object with 'any_of', 'all_of'"),
        ({}, "found an object with nothing"),
        ([], "found an empty list, expected at least one right answer"),
        ({"all_of": []}, "found an empty list"),
        (["a", {"b": 1}], "found an object as element 2"),
        (["a", None], "found null as element 2"),
        ([["a"]], "found a list as element 1"),
    ],
)
def test_an_answer_without_a_rule_is_an_error_of_its_row(tmp_path, answer, reason):
    path = tmp_path / "rows.jsonl"
    rows = [{"question": "?", "answer": "x"}, {"question": "?", "answer": answer}]
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.warns(BenchmarkWarning, match="could not be loaded: 1"):
        benchmark = create_benchmark(path)
    assert len(benchmark.items) == 1
    [error] = benchmark.load_errors
    assert error.startswith(f"{path}:2:1: answer: ")
    assert reason in error


@needs_reports
def test_scores_of_reported_answer_values():
    folder = REPORTS / "answer_values"
    with pytest.warns(BenchmarkWarning, match="found an object"):
        benchmark = create_benchmark(folder / "d.jsonl")
    with pytest.warns(BenchmarkWarning, match="belong to no item"):
        results = benchmark.evaluate(json.loads((folder / "p.json").read_text()))
    assert {result.item_id: result.score for result in results} == {"list": 1, "true": 1, "float": 1, "tiny": 1}
    assert f"{folder / 'd.jsonl'}:2:1: answer: found an object with 'value', 'aliases'" in benchmark.load_errors[0]
    assert [item.answer for item in benchmark.items] == ["Paris", "true", "27.0", "1e-7"]


@pytest.mark.parametrize(("rule", "scores"), [("any_of", [1, 1, 1, 0]), ("all_of", [1, 0, 0, 0])])
def test_a_descriptor_names_the_field_of_several_answers(grade, rule, scores):
    said = f"fields: {{answer: {{{rule}: gold.names}}}}\nmetrics: [{{name: contains_answer}}]\n"
    predictions = ["Rome, Oslo", "Rome", "Oslo", "Bern"]
    assert grade(["x"] * 4, predictions, descriptor=said, gold={"names": ["Rome", "Oslo"]}) == scores


def test_a_sample_may_give_another_right_answer_than_the_next():
    samples = ["a", "b", "x", "y"]
    assert score("pass_at_k", ["a", "b"], samples, k=1) == 0.5
    assert score("pass_hat_k", ["a", "b"], samples[:2], k=2) == 1


@metric("shouts_golds")
def shouts(ground_truth, prediction):
    return Measured(float(ground_truth.upper() == prediction), {"seen": ground_truth})


def test_a_metric_of_the_users_gets_one_right_answer_at_a_time(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"question": "?", "answer": ["a", "b"]}))
    [result] = create_benchmark(path).evaluate(["B"], "shouts_golds")
    assert (result.score, result.details["seen"], result.details["answer"]) == (1, "b", "b")
    assert result.ground_truth == "a"
    [result] = create_benchmark(path).evaluate(["x"], "shouts_golds")
    assert (result.score, result.details["seen"]) == (0, "a")


@pytest.mark.parametrize(
    ("answer", "text"), [(["a", "b"], "['a', 'b']"), (True, "True"), (27.0, "27.0"), (1e-7, "1e-07"), (5, "5")]
)
@pytest.mark.parametrize("compat", ["v1", "v2"])
def test_the_originals_definitions_compare_with_pythons_text(tmp_path, compat, answer, text):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"question": "?", "answer": answer}))
    benchmark = create_benchmark(path)
    for prediction in (text, json.dumps(answer), "27", "a"):
        [result] = benchmark.evaluate([prediction], "exact_match", compat=compat)
        assert result.score == score("exact_match", text, prediction, compat=compat)
        assert result.score == score("exact_match", answer, prediction, compat=compat)


def test_saved_results_keep_several_answers(tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"question": "?", "answer": ["a", "b"]}))
    benchmark = create_benchmark(tmp_path / "rows.jsonl")
    benchmark.evaluate(["b"])
    benchmark.save_results(tmp_path / "saved.json")
    restored = Benchmark()
    restored.load_results(tmp_path / "saved.json")
    assert restored.evaluate(["b"])[0].score == 1


def test_an_item_with_a_changed_answer_is_compared_with_the_new_text(tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"question": "?", "answer": ["a", "b"]}))
    benchmark = create_benchmark(tmp_path / "rows.jsonl")
    benchmark.items[0].answer = "c"
    assert [benchmark.evaluate([each])[0].score for each in "abc"] == [0, 0, 1]


@pytest.mark.parametrize("answer", [["a", 1], [["a"], {"b": 2}], {"a": 1}, True, 5])
def test_the_answer_of_an_item_is_a_right_reply_where_json_is_compared_too(tmp_path, answer):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"question": "?", "answer": answer}))
    path = tmp_path / "dataset.yaml"
    path.write_text("schema_version: 1\nfiles: [rows.jsonl]\nmetrics: [{name: json_match, threshold: 1}]\n")
    benchmark = create_benchmark(path)
    [item] = benchmark.items
    assert json.loads(item.answer) == answer
    [result] = benchmark.evaluate([item.answer])
    assert (result.score, result.ground_truth) == (1, item.answer)
    assert main(["validate", str(tmp_path)]) == 0
