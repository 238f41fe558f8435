"""The metrics that ship with the package, through `Benchmark.evaluate`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_agentbench import BenchmarkWarning, ConfigError, create_benchmark, score
from pytest_agentbench.metrics.registry import METRICS, metric

VECTORS = Path(__file__).parents[3] / "shared" / "data" / "datasets" / "metric_vectors.sample.jsonl"
TEXTS = ("exact_match", "f1_score", "bleu_score", "rouge_score", "similarity", "contains_answer", "numeric_match")


@pytest.fixture
def load(tmp_path):
    def make(*pairs):
        """A benchmark of answers, and its predictions in order."""
        path = tmp_path / "rows.jsonl"
        rows = ({"question": "?", "answer": answer} for answer, _ in pairs)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return create_benchmark(path), [prediction for _, prediction in pairs]

    return make


@pytest.mark.skipif(not VECTORS.is_file(), reason="the shared data is not beside the project")
@pytest.mark.parametrize("name", TEXTS)
def test_original_scores_come_out_of_an_evaluation(load, name):
    vectors = [json.loads(line) for line in VECTORS.read_text().splitlines()]
    benchmark, predictions = load(*((vector["ground_truth"], vector["prediction"]) for vector in vectors))
    results = benchmark.evaluate(predictions, name, compat="v1")
    assert [result.score for result in results] == [vector["scores_v1_benchmark"][name] for vector in vectors]


ANSWERS = [("Paris", "Paris."), ("1/2", "0.5"), ("1,234", "It is 1234"), ("北京是中国的首都", "中国的首都是北京")]
FORMULAS = [("1/2", "0.5"), ("x + 1", "1 + x"), ("3", "4"), ("\\frac{1}{3}", "$\\frac{2}{6}$")]
DOCUMENTS = [("[1, 2]", "[1,2]"), ('{"a": 1}', '{"a": 2}'), ("true", "true")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "pairs"),
    [*((name, ANSWERS) for name in TEXTS), ("math_equal", FORMULAS), ("json_match", DOCUMENTS)],
)
def test_threads_and_the_plain_function_agree(load, name, pairs):
    pairs = pairs * 2
    benchmark, predictions = load(*pairs)
    results = benchmark.evaluate(predictions, name)
    expected = [score(name, answer, prediction) for answer, prediction in pairs]
    assert [result.score for result in results] == expected
    assert benchmark.evaluate(predictions, name, concurrent=False) == results


def test_samples_of_one_item(load):
    benchmark, _ = load(("4", None), ("9", None))
    results = benchmark.evaluate([["4", "5"], "9"], "pass_at_k", k=1)
    assert [result.score for result in results] == [0.5, 1.0]
    assert results[0].prediction == ("4", "5")
    with pytest.warns(BenchmarkWarning, match="1 of 2"):
        results = benchmark.evaluate([["4", "5"], "9"], "pass_hat_k", k=2)
    assert [result.score for result in results] == [0.0, None]


def test_options_of_a_metric(load):
    benchmark, predictions = load(("B", "Rome"), ("A", "Rome"))
    results = benchmark.evaluate(predictions, "multiple_choice", choices=["Paris", "Rome"])
    assert [result.score for result in results] == [1.0, 0.0]
    with pytest.raises(ConfigError, match="metric exact_match: args: got an unexpected keyword argument 'nonsense'"):
        benchmark.evaluate(predictions, "exact_match", nonsense=1)


def test_missing_package_is_said_before_anything_is_scored(load):
    @metric("benchmark_needs_a_package", requires="no_such_module_anywhere")
    def needy(ground_truth, prediction):
        raise AssertionError("it must not be called")

    benchmark, predictions = load(("a", "a"))
    try:
        with pytest.raises(ConfigError, match=r"pip install 'pytest-agentbench\[metrics\]'"):
            benchmark.evaluate(predictions, "benchmark_needs_a_package")
    finally:
        del METRICS["benchmark_needs_a_package"]
