from __future__ import annotations

import asyncio
import json
import sys
import threading
import warnings
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.interrupting import interrupted

from pytest_agentbench import Benchmark, BenchmarkWarning, ConfigError, create_benchmark
from pytest_agentbench.benchmark.concurrency import score_in_chunks

CAPITALS = [
    {"id": "fr", "question": "Capital of France?", "answer": "Paris"},
    {"id": "jp", "question": "Capital of Japan?", "answer": "Tokyo"},
    {"id": "pe", "question": "Capital of Peru?", "answer": "Lima"},
]


@pytest.fixture
def load(tmp_path, monkeypatch):
    """A benchmark of the rows, loaded from a file in the current folder."""
    monkeypatch.chdir(tmp_path)

    def make(rows=CAPITALS, **options):
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return create_benchmark("rows.jsonl", **options)

    return make


def use(benchmark, name, function):
    benchmark._get_metric_function = lambda asked: {name: function}.get(asked, benchmark._get_metric_function(asked))
    return benchmark


def scores(results):
    return [result.score for result in results]


def test_a_mapping_and_a_list_give_the_same_result(load):
    benchmark = load()
    by_id = benchmark.evaluate({"pe": "Lima", "fr": "Paris", "jp": "Kyoto"})
    assert scores(by_id) == [1.0, 0.0, 1.0]
    assert benchmark.evaluate(["Paris", "Kyoto", "Lima"]) == by_id == benchmark.evaluation_results
    [first, *_] = by_id
    assert (first.item_id, first.question, first.ground_truth) == ("fr", "Capital of France?", "Paris")
    assert (first.prediction, first.metric_name, first.details) == ("Paris", "exact_match", {})


def test_numbers_are_ids_and_predictions_too(load):
    benchmark = load([{"id": 7, "question": "6 + 1?", "answer": 7}, {"question": "True?", "answer": True}])
    assert scores(benchmark.evaluate({7: 7, "item_2": True})) == [1.0, 1.0]
    assert benchmark.get_item(7) is benchmark.get_item("7") is benchmark.get_items()[0]
    assert benchmark.get_item("none") is None


@pytest.mark.parametrize(
    ("predictions", "said"),
    [
        (["Paris", "Tokyo"], "found a list of 2, expected 3, one for each item in order; a mapping"),
        ([], "found a list of 0, expected 3"),
        ("Paris", "found str, expected a mapping"),
        (b"Par", "found bytes, expected a mapping"),
        (None, "found NoneType, expected a mapping"),
        (42, "found int"),
        (iter(["Paris"]), "expected a mapping"),
        ({1.5: "Paris"}, "found the id 1.5, expected a text or a whole number"),
        ({1: "a", "1": "b"}, "found the id '1' twice"),
    ],
)
def test_predictions_of_a_wrong_shape_are_refused(load, predictions, said):
    benchmark = load()
    benchmark.evaluate(["Paris", "Tokyo", "Lima"])
    kept = benchmark.get_summary()
    with pytest.raises(ConfigError, match=said):
        benchmark.evaluate(predictions)
    assert benchmark.get_summary() == kept


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"metric": "exact_mach"}, "unknown metric 'exact_mach'; did you mean 'exact_match'"),
        ({"missing": "ignore"}, "missing: found 'ignore', expected 'zero' or 'skip'"),
        ({"compat": "v3"}, "compat: found 'v3', expected None, 'v1' or 'v2'"),
        ({"max_workers": 0}, "max_workers: found 0, expected a whole number, at least 1"),
        ({"max_workers": "4"}, "max_workers: found '4', expected a whole number"),
        ({"metric": ""}, "metric: found '', expected a name"),
        ({"metric": len}, "metric: found <built-in function len>, expected a name; `@metric"),
    ],
)
def test_wrong_options_are_refused(load, options, said):
    with pytest.raises(ConfigError, match=said):
        load().evaluate({}, **options)


def test_missing_predictions_count_as_zero_unless_they_are_skipped(load):
    benchmark = load()
    zero = benchmark.evaluate({"fr": "Paris", "jp": None})
    assert scores(zero) == [1.0, 0.0, 0.0]
    assert [result.details for result in zero] == [{}, {"missing": True}, {"missing": True}]
    summary = benchmark.get_summary()
    assert summary["average_score"] == pytest.approx(1 / 3)
    assert (summary["evaluated_items"], summary["missing_predictions"], summary["failed_items"]) == (1, 2, 0)
    assert (summary["min_score"], summary["max_score"], summary["perfect_matches"]) == (0.0, 1.0, 1)

    skipped = benchmark.evaluate({"fr": "Paris", "jp": None, "pe": []}, missing="skip")
    assert scores(skipped) == [1.0, None, None]
    summary = benchmark.get_summary()
    assert (summary["average_score"], summary["min_score"]) == (1.0, 1.0)
    assert (summary["evaluated_items"], summary["missing_predictions"], summary["failed_items"]) == (1, 2, 0)

    benchmark.evaluate({}, missing="skip")
    summary = benchmark.get_summary()
    assert (summary["average_score"], summary["max_score"], summary["min_score"]) == (None, None, None)


def test_some_of_the_items_can_be_evaluated(load):
    benchmark = load()
    benchmark.items = benchmark.items[1:]
    assert scores(benchmark.evaluate(["Tokyo", "Lima"])) == [1.0, 1.0]
    with pytest.raises(ConfigError, match="found a list of 3, expected 2"):
        benchmark.evaluate(["Paris", "Tokyo", "Lima"])


@pytest.mark.parametrize("make", [create_benchmark, Benchmark])
def test_warnings_point_to_the_caller(make, tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"question": "Why?", "answer": "So."}\n{"answer": "?"}\n')
    with pytest.warns(BenchmarkWarning) as caught:
        make(tmp_path / "rows.jsonl").evaluate({"x": "?", "item_1": {}})
    assert [warning.filename for warning in caught] == [__file__] * 3


def test_the_repr_of_a_benchmark_has_its_name_and_item_count(load):
    assert repr(load(name="Capitals")) == "<Benchmark 'Capitals': 3 items of rows.jsonl>"
    assert repr(Benchmark()) == "<Benchmark 'Benchmark': 0 items>"


def test_any_sequence_has_the_items_order(load):
    assert scores(load().evaluate(deque(["Paris", "Kyoto", "Lima"]))) == [1.0, 0.0, 1.0]


def test_case_ids_are_known_too(load):
    benchmark = load()
    with pytest.warns(BenchmarkWarning, match="belong to no item of .*: 'jp', 'other.pe'"):
        results = benchmark.evaluate({"rows.fr": "Paris", "jp": "Kyoto", "rows.jp": "Tokyo", "other.pe": "Lima"})
    assert scores(results) == [1.0, 1.0, 0.0]
    assert benchmark.unmatched_ids == ["jp", "other.pe"]


def test_predictions_of_no_item_are_warned_about(load):
    benchmark = load()
    given = {"fr": "Paris", "jp": "Tokyo", "pe": "Lima"} | {f"x{n}": "?" for n in range(7)}
    with pytest.warns(BenchmarkWarning, match=r"belong to no item of .*: 'x0', 'x1'.*'x4' and 2 more"):
        benchmark.evaluate(given)
    assert benchmark.unmatched_ids == [f"x{n}" for n in range(7)]
    assert benchmark.get_summary()["average_score"] == 1.0


def test_items_that_cannot_be_scored_do_not_keep_the_others_from_it(load):
    benchmark = load([*CAPITALS, {"id": "open", "question": "Why?"}])
    with pytest.warns(BenchmarkWarning, match=r"could not be scored and are in no average: 3 of 4; 'fr'"):
        results = benchmark.evaluate({"fr": {"text": "Paris"}, "jp": "Tokyo", "pe": ["Lima", "Cusco"], "open": "So."})
    assert scores(results) == [None, 1.0, None, None]
    errors = [result.error for result in results]
    assert "prediction: found an object, expected a text" in errors[0]
    assert errors[1] is None
    assert "found several predictions" in errors[2]
    assert "nothing to score against" in errors[3]
    summary = benchmark.get_summary()
    assert (summary["average_score"], summary["evaluated_items"], summary["failed_items"]) == (1.0, 1, 3)


@pytest.mark.parametrize("concurrent", [True, False])
def test_metric_that_raises_or_leaves_its_range_fails_its_items_only(load, concurrent):
    def picky(ground_truth, prediction):
        if prediction == "Tokyo":
            raise LookupError("no such city")
        return {"Paris": 1.0, "Lima": float("nan")}[prediction]

    benchmark = use(load(), "picky", picky)
    with pytest.warns(BenchmarkWarning, match="2 of 3"):
        results = benchmark.evaluate(["Paris", "Tokyo", "Lima"], "picky", concurrent=concurrent)
    assert scores(results) == [1.0, None, None]
    assert results[1].error == "LookupError: no such city"
    assert "returned nan, expected a number from 0 to 1" in results[2].error


def test_custom_metric_gets_its_options_and_needs_no_answer(load):
    seen = []

    def shorter(ground_truth, prediction, *, than):
        seen.append(ground_truth)
        return float(len(prediction) < than)

    benchmark = use(load([{"id": "a", "question": "Say something."}]), "shorter", shorter)
    assert scores(benchmark.evaluate({"a": "ok"}, "shorter", than=3)) == [1.0]
    assert scores(benchmark.evaluate({"a": "okay"}, "shorter", than=3)) == [0.0]
    assert seen == ["", ""]


def test_without_data_nothing_is_evaluated():
    with pytest.raises(ConfigError, match="no data"):
        Benchmark().evaluate({})
    assert Benchmark().get_summary()["average_score"] is None
    assert Benchmark().get_items() == Benchmark().load_errors == []


def test_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="nothing"):
        create_benchmark(tmp_path / "nothing.jsonl")


def test_bad_rows_are_reported_and_the_others_kept(tmp_path):
    class Custom(Benchmark):
        def _parse_item(self, data, line_num):
            return super()._parse_item({"question": data["problem"], "answer": data["solution"]}, line_num)

    path = tmp_path / "rows.jsonl"
    path.write_text('{"problem": "1?", "solution": 1}\n{"problem": "2?"}\n{bad\n\n{"problem": "4?", "solution": 4}\n')
    with pytest.warns(BenchmarkWarning, match=r"rows that could not be loaded: 2; .*rows.jsonl:2:1: .*solution"):
        benchmark = Custom(path)
    assert [(item.id, item.question, item.answer) for item in benchmark.get_items()] == [
        ("item_1", "1?", "1"),
        ("item_5", "4?", "4"),
    ]
    first, second = benchmark.load_errors
    assert first.startswith(f"{path}:2:1: ")
    assert second.startswith(f"{path}:3:2: ")
    assert scores(benchmark.evaluate(["1", "4"])) == [1.0, 1.0]
    assert scores(benchmark.evaluate(["1", "second row", "third row", "4"])) == [1.0, 1.0]
    with pytest.raises(ConfigError, match=r"found a list of 3, expected 2, .* \(2 more rows could not be loaded\)"):
        benchmark.evaluate(["1", "2", "4"])


def test_parse_item_that_returns_something_else_is_a_bad_row(tmp_path):
    class Custom(Benchmark):
        def _parse_item(self, data, line_num):
            return data

    (tmp_path / "rows.jsonl").write_text('{"question": "q", "answer": "a"}\n')
    with pytest.warns(BenchmarkWarning, match="BenchmarkItem"):
        assert Custom(tmp_path / "rows.jsonl").get_items() == []


answers = st.one_of(st.none(), st.text(max_size=5), st.integers(), st.lists(st.text(max_size=2), max_size=2))


@pytest.mark.slow
@given(given_=st.lists(answers, min_size=1, max_size=40), workers=st.integers(2, 8))
def test_threads_change_nothing(given_, workers):
    benchmark = Benchmark()
    benchmark._set_items([_item(n) for n in range(len(given_))])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BenchmarkWarning)
        one = benchmark.evaluate(given_, "similarity", concurrent=False)
        summary = benchmark.get_summary()
        assert benchmark.evaluate(given_, "similarity", max_workers=workers) == one
    assert benchmark.get_summary() == summary
    assert [result.item_id for result in one] == [str(n) for n in range(len(given_))]
    counted = summary["evaluated_items"] + summary["missing_predictions"] + summary["failed_items"]
    assert counted == summary["total_items"] == len(given_)


def _item(number):
    from pytest_agentbench import BenchmarkItem

    return BenchmarkItem(str(number), "?", "0 1 2")


def test_metrics_that_wait_do_so_together(load):
    benchmark = load([{"id": str(n), "question": "?", "answer": "a"} for n in range(8)])
    together = threading.Barrier(4, timeout=20)

    def slow(ground_truth, prediction):
        together.wait()
        return 1.0

    use(benchmark, "slow", slow)
    assert scores(benchmark.evaluate(["a"] * 8, "slow", max_workers=4)) == [1.0] * 8


@pytest.mark.parametrize("concurrent", [True, False])
def test_progress_counts_to_the_end(load, concurrent):
    benchmark = load([{"id": str(n), "question": "?", "answer": "a"} for n in range(1000)])
    told = []
    benchmark.evaluate(["a"] * 1000, concurrent=concurrent, progress=lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1] == (1000, 1000)


def test_an_exception_of_a_thread_ends_the_evaluation():
    with pytest.raises(KeyboardInterrupt):
        score_in_chunks(lambda at: (_ for _ in ()).throw(KeyboardInterrupt()), 100, 4)


INTERRUPTED = """
import threading
from pytest_agentbench import create_benchmark, metric

never = threading.Event()

@metric("stuck")
{kind} stuck(ground_truth, prediction{context}):
    if prediction == "a":
        print("begun", flush=True)
    {wait}

benchmark = create_benchmark("rows.jsonl")
try:
    benchmark.evaluate(["a", "b", "c"], "stuck")
finally:
    print(benchmark.evaluation_results, benchmark.get_summary()["metric"])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
@pytest.mark.parametrize(
    ("kind", "context", "wait"),
    [("def", "", "never.wait()"), ("async def", ", context", "import asyncio; await asyncio.Event().wait()")],
    ids=["threads", "loop"],
)
def test_interrupt_ends_it_at_once(load, tmp_path, kind, context, wait):
    load()
    (tmp_path / "script.py").write_text(INTERRUPTED.format(kind=kind, context=context, wait=wait))
    _, out, err = interrupted([sys.executable, "script.py"], tmp_path)
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert out.endswith("[] None\n")


class TestMetricsThatAreAwaited:
    def test_so_many_at_the_same_time(self, load):
        benchmark = load([{"id": str(n), "question": f"{n}?", "answer": "a"} for n in range(9)])
        running, most = 0, 0
        meet = asyncio.Barrier(3)

        async def judged(ground_truth, prediction, *, context):
            nonlocal running, most
            running += 1
            most = max(most, running)
            await meet.wait()
            running -= 1
            return float(context.question == f"{prediction}?")

        use(benchmark, "judged", judged)
        told = []
        results = benchmark.evaluate(
            [str(n) for n in range(8)] + ["0"],
            "judged",
            max_workers=3,
            progress=lambda done, total: told.append((done, total)),
        )
        assert scores(results) == [1.0] * 8 + [0.0]
        assert most == 3
        assert told == [(n, 9) for n in range(1, 10)]

    def test_also_where_a_loop_is_running(self, load):
        benchmark = use(load(), "right", right)

        async def notebook():
            return benchmark.evaluate(["Paris", "Tokyo", "?"], "right")

        assert scores(asyncio.run(notebook())) == [1.0, 1.0, 0.0]

    def test_one_that_raises_fails_its_item_only(self, load):
        async def judged(ground_truth, prediction, *, context):
            if prediction == "Tokyo":
                raise RuntimeError("no verdict")
            return 1.0

        benchmark = use(load(), "judged", judged)
        with pytest.warns(BenchmarkWarning, match="no verdict"):
            results = benchmark.evaluate({"fr": "Paris", "jp": "Tokyo"}, "judged", missing="skip")
        assert scores(results) == [1.0, None, None]
        assert benchmark.get_summary()["failed_items"] == 1

    def test_agreement_of_judges_is_summed_up(self, load):
        from pytest_agentbench.metrics.registry import Measured

        async def judged(ground_truth, prediction, *, context):
            return Measured(1.0, {"agreement": {"Paris": 1.0, "Tokyo": 0.5, "Lima": None}[prediction]})

        benchmark = use(load(), "judged", judged)
        benchmark.evaluate(["Paris", "Tokyo", "Lima"], "judged")
        assert benchmark.get_summary()["agreement"] == 0.75


async def right(ground_truth, prediction, *, context):
    return float(ground_truth == prediction)
