"""Rows that say themselves how they are decided."""

from __future__ import annotations

import json

import pytest

from pytest_agentbench import Benchmark, BenchmarkWarning, create_benchmark


@pytest.fixture
def evaluate(tmp_path):
    """The only row's result for a prediction."""

    def one(evaluator, prediction, answer=None, **options):
        row = {"id": "a", "question": "?", "evaluator": evaluator}
        row |= {} if answer is None else {"answer": answer}
        path = tmp_path / "rows.jsonl"
        path.write_text(json.dumps(row) + "\n")
        benchmark = create_benchmark(path)
        [result] = benchmark.evaluate({"a": prediction}, **options)
        return benchmark, result

    return one


@pytest.mark.parametrize(
    ("evaluator", "right", "wrong"),
    [
        ({"func": "json_path_equals", "args": {"json_path": "$.n", "value": 12}}, '{"n": 12}', '{"n": 13}'),
        ({"func": "regex_match", "args": {"pattern": "^ok"}}, "ok then", "not ok"),
        ({"func": "json_schema", "args": {"json_schema": {"type": "object"}}}, "{}", "[]"),
        ({"func": "final_response_present"}, "hello", " "),
        (
            {"func": "metric", "args": {"name": "similarity", "threshold": 0.9, "reference": "abc"}},
            "abc",
            "xyz",
        ),
    ],
    ids=lambda value: value["func"] if isinstance(value, dict) else None,
)
def test_checks_of_the_answer(evaluate, evaluator, right, wrong):
    for prediction, score in ((right, 1.0), (wrong, 0.0)):
        _, result = evaluate(evaluator, prediction)
        assert (result.score, result.metric_name) == (score, evaluator["func"])
        assert result.details["passed"] is bool(score)
        assert result.details["evaluator"] == evaluator
        assert result.details["reason"]


def test_metric_with_its_own_reference_and_threshold(evaluate):
    evaluator = {"func": "similarity", "args": {"reference": "abcd", "threshold": 0.5}}
    _, result = evaluate(evaluator, "abxy", metric="exact_match")
    assert (result.score, result.metric_name, result.ground_truth) == (0.5, "similarity", "abcd")
    assert result.details["passed"] is True


def test_metric_of_the_answer(evaluate):
    _, result = evaluate({"func": "contains_answer"}, "It is Paris.", "Paris")
    assert (result.score, result.details["passed"]) == (1.0, True)


def test_missing_prediction_is_missing(evaluate):
    _, result = evaluate({"func": "regex_match", "args": {"pattern": "x"}}, None)
    assert (result.score, result.missing) == (0.0, True)


@pytest.mark.parametrize(
    ("evaluator", "said"),
    [
        ({"func": "file_exists", "args": {"path": "a.txt"}}, "predictions contain only answers"),
        ({"func": "regex_match", "args": {"pattern": "x", "path": "a.txt"}}, "predictions contain only answers"),
        ({"func": "tool_called", "args": {"name": "search"}}, "predictions contain only answers"),
    ],
    ids=["file", "regex of a file", "tool"],
)
def test_an_evaluator_that_needs_more_than_a_prediction_fails_with_a_warning(evaluate, evaluator, said):
    with pytest.warns(BenchmarkWarning, match=said):
        _, result = evaluate(evaluator, "x")
    assert result.score is None
    assert result.failed


def test_several_predictions_are_no_text(evaluate):
    with pytest.warns(BenchmarkWarning, match="several predictions"):
        evaluate({"func": "regex_match", "args": {"pattern": "x"}}, ["x", "y"])


def test_unknown_metric_of_a_row_is_failed_and_named(evaluate):
    with pytest.warns(BenchmarkWarning, match=r"unknown metric 'similarty'; did you mean 'similarity'\?"):
        evaluate({"func": "similarty"}, "x", "y")


def test_lookup_that_raises_fails_the_row(evaluate, tmp_path):
    benchmark, _ = evaluate({"func": "similarity"}, "x", "x")
    lookup = {"exact_match": lambda ground_truth, prediction: 1.0}
    benchmark._get_metric_function = lambda name: lookup[name]
    with pytest.warns(BenchmarkWarning, match="'similarity'"):
        [result] = benchmark.evaluate({"a": "x"})
    assert result.failed


def test_saved_results_keep_the_evaluator(evaluate, tmp_path):
    benchmark, result = evaluate({"func": "regex_match", "args": {"pattern": "^ok"}}, "ok then")
    benchmark.save_results(tmp_path / "saved.json")
    again = Benchmark()
    again.load_results(tmp_path / "saved.json")
    assert again.evaluate({"a": "ok then"}) == [result]


def test_an_evaluator_of_osworld_is_metadata(evaluate):
    evaluator = {"func": "infeasible"}
    for osworlds in (evaluator, {"func": "exact_match", "result": {"type": "vm_file"}, "expected": {}}):
        benchmark, result = evaluate(osworlds, "done", "done")
        assert (result.score, result.metric_name, result.details) == (1.0, "exact_match", {})
        assert benchmark.get_items()[0].metadata == {"evaluator": osworlds}
