"""`llm_judgement` through the real client: scripted in process, and an endpoint on loopback."""

from __future__ import annotations

import json

import pytest
from support.stored import find_stored

from pytest_agentbench import BenchmarkWarning, create_benchmark

ROWS = """\
{"id": "fr", "question": "Capital of France?", "answer": "Paris"}
{"id": "jp", "question": "Capital of Japan?", "answer": "Tokyo"}
"""
SCRIPT = """\
schema_version: 1
default: What is asked of judges only.
judgements:
  fr: {correct: true, reason: It says Paris.}
  jp: [true, false, false]
"""


@pytest.fixture
def benchmark(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "capitals.jsonl").write_text(ROWS)
    (tmp_path / "capitals.demo.yaml").write_text(SCRIPT)
    return create_benchmark("capitals.jsonl")


def test_votes_and_their_agreement(benchmark):
    results = benchmark.evaluate(["It is Paris.", "Kyoto"], "llm_judgement", model="demo", repetitions=3)
    assert [result.score for result in results] == [1.0, 0.0]
    first, second = (result.details for result in results)
    assert first["reason"] == "It says Paris."
    assert (first["agreement"], second["agreement"]) == (1.0, pytest.approx(1 / 3))
    assert [vote["correct"] for vote in second["votes"]] == [True, False, False]
    assert first["usage"]["input_tokens"] > 0
    assert benchmark.get_summary()["agreement"] == pytest.approx(2 / 3)
    assert benchmark.get_summary()["average_score"] == 0.5


def test_item_without_a_verdict_is_failed_and_no_zero(benchmark, tmp_path):
    (tmp_path / "capitals.demo.yaml").write_text(SCRIPT.replace("jp: [true, false, false]", ""))
    benchmark.load_data("capitals.jsonl")
    with pytest.warns(BenchmarkWarning, match="no scripted judgement for case 'capitals.jp'"):
        results = benchmark.evaluate(["Paris", "Tokyo"], "llm_judgement", model="demo")
    assert [result.score for result in results] == [1.0, None]
    assert benchmark.get_summary()["failed_items"] == 1


def test_blank_prediction_is_wrong_and_a_missing_one_missing(benchmark):
    results = benchmark.evaluate({"fr": " "}, "llm_judgement", model="demo")
    assert [result.score for result in results] == [0.0, 0.0]
    assert [result.missing for result in results] == [False, True]


@pytest.mark.parametrize(
    ("options", "said"),
    [({}, "no model to ask"), ({"model": "gpt-4o"}, "needs a key: the environment variable OPENAI_API_KEY")],
)
def test_without_a_model_or_key_nothing_is_scored(benchmark, monkeypatch, options, said):
    monkeypatch.delenv("OPENAI_MODEL", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.warns(BenchmarkWarning, match=said):
        results = benchmark.evaluate(["Paris", "Tokyo"], "llm_judgement", **options)
    assert [result.score for result in results] == [None, None]
    assert benchmark.get_summary()["average_score"] is None


def test_the_model_of_the_environment_judges_if_no_model_is_named(benchmark, monkeypatch):
    monkeypatch.setenv("OPENAI_MODEL", "demo")
    results = benchmark.evaluate(["It is Paris.", "Kyoto"], "llm_judgement")
    assert [(result.score, result.details["model"]) for result in results] == [(1.0, "demo"), (1.0, "demo")]


@pytest.mark.slow
def test_a_repeated_evaluation_reuses_the_replies_of_the_judge(benchmark, tmp_path, served):
    """Through HTTP, with the models.yaml of the data's folder."""
    base_url = served(tmp_path)
    (tmp_path / "models.yaml").write_text(
        json.dumps(
            {
                "schema_version": 1,
                "models": [{"model_id": "judge", "base_url": base_url, "api_key_env": "none"}],
            }
        )
    )
    options = {"metric": "llm_judgement", "model": "judge", "output": "kept"}
    first = benchmark.evaluate(["It is Paris.", "Tokyo"], **options)
    assert [result.score for result in first] == [1.0, 1.0]
    assert len(find_stored(tmp_path / "kept", "judgements/*/*.json")) == 2
    served.stop()
    again = benchmark.evaluate(["It is Paris.", "Tokyo"], **options)
    assert [result.score for result in again] == [1.0, 1.0]
    assert [result.details["cached"] for result in again] == [1, 1]


@pytest.fixture
def served():
    """Serves the scripts below a folder on loopback, as `agentbench serve` does."""
    import subprocess
    import sys

    class Served:
        process: subprocess.Popen[str] | None = None

        def __call__(self, folder):
            command = [sys.executable, "-m", "pytest_agentbench.cli", "serve", str(folder), "--port", "0"]
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            return self.process.stdout.readline().split()[1]

        def stop(self):
            if self.process is not None:
                self.process.terminate()
                self.process.communicate(timeout=20)
                self.process = None

    server = Served()
    yield server
    server.stop()
