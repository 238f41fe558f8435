from __future__ import annotations

import threading

import pytest

from pytest_agentbench import Benchmark, ConfigError
from pytest_agentbench.metrics.registry import METRICS, metric
from pytest_agentbench.metrics.scoring import score
from pytest_agentbench.metrics.text import exact_match


def of(value):
    return lambda ground_truth, prediction, **kwargs: value


def add(benchmark, name, function):
    benchmark._get_metric_function = lambda asked: {name: function}.get(asked, benchmark._get_metric_function(asked))


def test_assignments_stack():
    benchmark = Benchmark()
    first, second, third = of(0.1), of(0.2), of(0.3)
    add(benchmark, "first", first)
    add(benchmark, "second", second)
    add(benchmark, "exact_match", third)
    assert benchmark._get_metric_function("first") is first
    assert benchmark._get_metric_function("second") is second
    assert benchmark._get_metric_function("exact_match") is third
    assert benchmark._get_metric_function("similarity") is METRICS["similarity"]


def test_unknown_name_is_refused_by_the_outermost_lookup_only():
    benchmark = Benchmark()
    add(benchmark, "mine", of(1.0))
    add(benchmark, "yours", of(1.0))
    with pytest.raises(ConfigError, match=r"unknown metric 'exact_mach'; did you mean 'exact_match'\?"):
        benchmark._get_metric_function("exact_mach")
    with pytest.raises(ConfigError, match="unknown metric 'nope'"):
        Benchmark()._get_metric_function("nope")


def test_an_earlier_reference_to_the_lookup_is_not_changed():
    benchmark = Benchmark()
    kept = benchmark._get_metric_function
    benchmark._get_metric_function = lambda name: of(0.5) if name == "exact_match" else kept(name)
    assert benchmark._get_metric_function("exact_match")("a", "b") == 0.5
    assert kept("exact_match") is exact_match


def test_benchmarks_do_not_share_what_is_assigned():
    one, other = Benchmark(), Benchmark()
    add(one, "mine", of(1.0))
    other._get_metric_function = lambda name: one._get_metric_function(name)
    assert other._get_metric_function("mine")("", "") == 1.0
    with pytest.raises(ConfigError):
        Benchmark()._get_metric_function("mine")


def test_lookup_that_raises_leaves_the_others_as_they_were():
    benchmark = Benchmark()
    add(benchmark, "mine", of(1.0))
    benchmark._get_metric_function = lambda name: 1 / 0 if name == "boom" else benchmark._get_metric_function(name)
    with pytest.raises(ZeroDivisionError):
        benchmark._get_metric_function("boom")
    assert benchmark._get_metric_function("mine")("", "") == 1.0


def test_threads_look_up_at_the_same_time():
    benchmark = Benchmark()
    meet = threading.Barrier(2, timeout=10)
    mine = of(1.0)

    def slow(name):
        meet.wait()  # both threads are inside a lookup here
        return {"mine": mine}.get(name, benchmark._get_metric_function(name))

    benchmark._get_metric_function = slow
    found = {}
    names = ("mine", "similarity")
    threads = [
        threading.Thread(target=lambda name=name: found.update({name: benchmark._get_metric_function(name)}))
        for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {"mine": mine, "similarity": METRICS["similarity"]}


def test_subclass_may_define_the_method_and_assign_over_it():
    own = of(0.25)

    class Mine(Benchmark):
        def _get_metric_function(self, metric):
            return {"own": own}.get(metric, super()._get_metric_function(metric))

    benchmark = Mine()
    assert benchmark._get_metric_function("own") is own
    assert benchmark._get_metric_function("exact_match") is exact_match
    over = of(0.75)
    add(benchmark, "over", over)
    assert benchmark._get_metric_function("own") is own
    assert benchmark._get_metric_function("over") is over
    with pytest.raises(ConfigError, match="unknown metric"):
        benchmark._get_metric_function("other")


def test_a_value_that_is_not_a_function_is_refused():
    benchmark = Benchmark()
    with pytest.raises(TypeError, match="found dict, expected a function"):
        benchmark._get_metric_function = {}
    benchmark._get_metric_function = lambda name: "exact_match"
    with pytest.raises(ConfigError, match="the lookup returned str, expected a function"):
        benchmark._get_metric_function("mine")


def test_registered_metrics_are_found():
    @metric("benchmark_lookup_length")
    def length(ground_truth, prediction):
        return float(len(ground_truth) == len(prediction))

    try:
        assert Benchmark()._get_metric_function("benchmark_lookup_length") is length
        assert score("benchmark_lookup_length", "ab", "cd") == 1.0
    finally:
        del METRICS["benchmark_lookup_length"]


def test_a_subclass_overrides_a_metric_by_its_method(tmp_path):
    class Lenient(Benchmark):
        def _exact_match(self, ground_truth, prediction, **kwargs):
            return float(ground_truth.lower() == prediction.lower())

    (tmp_path / "rows.jsonl").write_text('{"id": "a", "question": "?", "answer": "Paris"}\n')
    assert [result.score for result in Lenient(tmp_path / "rows.jsonl").evaluate(["PARIS"])] == [1.0]
    assert [result.score for result in Benchmark(tmp_path / "rows.jsonl").evaluate(["PARIS"])] == [0.0]
    assert Lenient()._get_metric_function("similarity") is METRICS["similarity"]


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("_compute_metric", "override _get_metric_function"),
        ("_get_metric_details", r"return Measured\(score, details\)"),
    ],
)
def test_an_override_that_would_never_be_called_is_refused_by_its_name(name, remedy):
    with pytest.raises(ConfigError, match=rf"Mine\.{name}: found an override that is never called; .*{remedy}"):
        type("Mine", (Benchmark,), {"__qualname__": "Mine", name: lambda self: None})


def test_get_answers_returns_the_answers_in_order(tmp_path):
    (tmp_path / "rows.jsonl").write_text(
        '{"question": "a?", "answer": "b"}\n{"question": "c?", "answer": 4}\n{"question": "e?", "answer": "f"}\n'
    )
    assert Benchmark(tmp_path / "rows.jsonl").get_answers() == ["b", "4", "f"]
