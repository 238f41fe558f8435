from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench import Benchmark, BenchmarkItem, ConfigError, EvaluationResult, InfrastructureError
from pytest_agentbench.benchmark.results import read_results, write_results


@pytest.fixture
def evaluated(tmp_path):
    path = tmp_path / "问题.jsonl"
    path.write_text(
        '{"id": "cn", "question": "首都?", "answer": "北京", "level": "易"}\n{"question": "x?", "answer": "y"}\n',
        encoding="utf-8",
    )
    benchmark = Benchmark(path, "首都", "描述")
    benchmark.evaluate({"cn": "北京"})
    return benchmark


def test_file_is_what_the_original_wrote(evaluated, tmp_path):
    path = tmp_path / "new" / "folder" / "results.json"
    evaluated.save_results(path)
    text = path.read_text(encoding="utf-8")
    assert "北京" in text
    assert list(tmp_path.glob("new/folder/*")) == [path]
    saved = json.loads(text)
    assert saved == {
        "benchmark_info": {
            "name": "首都",
            "description": "描述",
            "data_path": str(tmp_path / "问题.jsonl"),
            "total_items": 2,
        },
        "evaluation_results": [
            {
                "item_id": "cn",
                "question": "首都?",
                "ground_truth": "北京",
                "prediction": "北京",
                "score": 1.0,
                "metric_name": "exact_match",
                "details": {},
            },
            {
                "item_id": "item_2",
                "question": "x?",
                "ground_truth": "y",
                "prediction": None,
                "score": 0.0,
                "metric_name": "exact_match",
                "details": {"missing": True},
            },
        ],
        "summary": evaluated.get_summary(),
    }


def test_everything_comes_back(evaluated, tmp_path):
    evaluated.save_results(tmp_path / "results.json")
    again = Benchmark()
    again.load_results(str(tmp_path / "results.json"))
    assert again.evaluation_results == evaluated.evaluation_results
    assert again.get_summary() == evaluated.get_summary()
    assert (again.name, again.description, again.data_path) == ("首都", "描述", evaluated.data_path)
    assert again.get_items() == [BenchmarkItem("cn", "首都?", "北京"), BenchmarkItem("item_2", "x?", "y")]
    again.save_results(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "results.json").read_bytes()


def test_loaded_data_stays(evaluated, tmp_path):
    evaluated.save_results(tmp_path / "results.json")
    other = Benchmark(tmp_path / "问题.jsonl")
    items = other.get_items()
    other.load_results(tmp_path / "results.json")
    assert other.get_items() == items
    assert other.name == "Benchmark_问题.jsonl"
    assert other.get_summary()["average_score"] == 0.5


def test_nothing_to_save_before_an_evaluation(tmp_path):
    with pytest.raises(ConfigError, match="evaluate first"):
        Benchmark().save_results(tmp_path / "results.json")
    assert list(tmp_path.iterdir()) == []


def test_place_that_is_a_folder(evaluated, tmp_path):
    with pytest.raises(InfrastructureError, match="could not be written"):
        evaluated.save_results(tmp_path)


ENTRY = {"item_id": "a", "question": "q", "ground_truth": "g", "prediction": "p", "score": 1, "metric_name": "m"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ":1:1: not valid JSON"),
        ('{"a": 1,\n "b": }', ":2:7: not valid JSON"),
        ("[]", "found list, expected an object with benchmark_info, evaluation_results, summary"),
        ('{"q1": "4"}', "benchmark_info is missing; evaluation_results is missing; summary is missing"),
        ('{"benchmark_info": {}, "evaluation_results": {}, "summary": {}}', "evaluation_results: found dict"),
        (ENTRY | {"item_id": 1}, r"evaluation_results\[0\].item_id: found int, expected a text"),
        (ENTRY | {"score": 2}, r"evaluation_results\[0\].score: found 2, expected a number from 0 to 1"),
        (ENTRY | {"details": []}, r"evaluation_results\[0\].details: found list"),
        ({"item_id": "a"}, r"evaluation_results\[0\].question is missing; .*ground_truth is missing"),
        ("no entry", r"evaluation_results\[0\]: found str, expected an object"),
        ('{"benchmark_info": {"x": NaN}}', "NaN is no JSON value"),
        (b"\xff\xfe\x00", "not readable as JSON"),
    ],
)
def test_file_that_holds_no_results(tmp_path, text, said):
    path = tmp_path / "results.json"
    if isinstance(text, bytes):
        path.write_bytes(text)
    elif isinstance(text, dict) or text == "no entry":
        path.write_text(json.dumps({"benchmark_info": {}, "evaluation_results": [text], "summary": {}}))
    else:
        path.write_text(text)
    benchmark = Benchmark()
    with pytest.raises(ConfigError, match=said) as caught:
        benchmark.load_results(path)
    assert str(path) in str(caught.value)
    assert benchmark.get_items() == []


def test_results_of_the_original_have_the_new_figures_too(tmp_path):
    path = tmp_path / "old.json"
    summary = {"average_score": 1.0, "metric": "m", "total_items": 3}
    path.write_text(json.dumps({"benchmark_info": {}, "evaluation_results": [ENTRY], "summary": summary}))
    benchmark = Benchmark()
    benchmark.load_results(path)
    found = benchmark.get_summary()
    assert found == found | summary
    assert (found["missing_predictions"], found["failed_items"]) == (0, 0)


def test_results_of_the_original_may_have_an_id_twice(tmp_path):
    path = tmp_path / "old.json"
    entries = [ENTRY, ENTRY | {"ground_truth": "p"}]
    path.write_text(json.dumps({"benchmark_info": {}, "evaluation_results": entries, "summary": {}}))
    benchmark = Benchmark()
    benchmark.load_results(path)
    assert [result.score for result in benchmark.evaluate({"a": "p"})] == [0.0, 1.0]


anything = st.text() | st.just("\ud800") | st.just("\x00\u2028")
results = st.builds(
    EvaluationResult,
    item_id=anything,
    question=anything,
    ground_truth=anything,
    prediction=st.none() | anything | st.tuples(anything, anything),
    score=st.none() | st.floats(0, 1),
    metric_name=anything,
    details=st.dictionaries(st.text(), anything | st.integers() | st.none() | st.booleans(), max_size=3),
)


@pytest.mark.slow
@given(written=st.lists(results, max_size=4))
def test_any_text_survives(written, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "any.json"
    write_results(path, {"name": "n"}, written, {"metric": "m"})
    assert read_results(path).results == written


def test_scores_of_the_original_may_be_true_and_false(tmp_path):
    entry = {"question": "?", "ground_truth": "4", "prediction": "4", "metric_name": "exact_match", "details": {}}
    path = tmp_path / "evaluation.json"
    saved = {
        "benchmark_info": {"name": "math", "description": "", "data_path": "x.jsonl", "total_items": 2},
        "evaluation_results": [{**entry, "item_id": "a", "score": True}, {**entry, "item_id": "b", "score": False}],
        "summary": {"average_score": 0.5, "max_score": True, "min_score": False},
    }
    path.write_text(json.dumps(saved))
    benchmark = Benchmark()
    benchmark.load_results(path)
    assert [repr(result.score) for result in benchmark.evaluation_results] == ["1.0", "0.0"]
    assert repr(benchmark.get_summary()["max_score"]) == "1.0"
