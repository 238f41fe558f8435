from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.interrupting import interrupted

from pytest_agentbench.cli import main

ROWS = [
    {"id": "fr", "question": "Capital of France?", "answer": "Paris", "level": "easy", "tags": ["europe"]},
    {"id": "it", "question": "Capital of Italy?", "answer": "Rome", "level": "easy", "tags": ["europe", "rome"]},
    {"id": "jp", "question": "Capital of Japan?", "answer": "Tokyo", "level": "hard", "tags": ["asia"]},
    {"id": "pe", "question": "Capital of Peru?", "answer": "Lima", "level": "hard"},
]
RIGHT = {"fr": "Paris", "it": "Rome", "jp": "Tokyo", "pe": "Lima"}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    write(tmp_path / "rows.jsonl", "".join(json.dumps(row) + "\n" for row in ROWS))
    return tmp_path


@pytest.fixture
def evaluate(here, capsys):
    """Runs the command on rows.jsonl and predictions; gives status, stdout, stderr."""

    def run(predictions, *argv, data="rows.jsonl", name="preds.json"):
        write(here / name, predictions)
        status = main(["evaluate", data, name, *argv])
        out, err = capsys.readouterr()
        return status, out, err

    return run


def write(path, content):
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def test_the_table_counts_right_answers(evaluate):
    status, out, err = evaluate(RIGHT | {"jp": "Kyoto"})
    assert (status, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[:2] == [
        "Benchmark_rows.jsonl, exact_match >= 1",
        "4 of 4 items scored, 0 missing, 0 failed; scores 0 to 1, 3 perfect",
    ]
    assert "all 4 0.750 - 75.0 % [30.1, 95.4]" in lines
    assert "level: easy 2 1.000 - 100.0 % [34.2, 100.0]" in lines
    assert any(line.startswith("level: hard 2 0.500") for line in lines)
    assert any(line.startswith("tag: europe 2 1.000") for line in lines)


def test_replies_that_go_on_with_a_further_question_are_counted(evaluate):
    went_on = "The answer is 3.\n\nQ: And 2 + 2?\nA: The answer is 4."
    rows = [{"id": each, "question": "1 + 2?", "answer": "3"} for each in "ab"]
    for predictions, line in (
        ({"a": went_on, "b": "3"}, "1 reply goes on with a further question: the first answer was scored"),
        ({"a": went_on, "b": went_on}, "2 replies go on with a further question: the first answer was scored"),
    ):
        write(Path("sums.jsonl"), "".join(json.dumps(row) + "\n" for row in rows))
        status, out, _ = evaluate(predictions, "--metric", "numeric_match", data="sums.jsonl")
        assert (status, line in out) == (0, True), out
    assert "further question" not in evaluate(RIGHT)[1]


def test_missing_predictions_fail_unless_they_are_skipped(evaluate):
    status, out, _ = evaluate({"fr": "Paris", "it": "Rome"})
    assert status == 1
    assert "2 of 4 items scored, 2 missing (counted as 0), 0 failed" in out
    assert "missing: jp, pe\n" in out
    status, out, _ = evaluate({"fr": "Paris", "it": "Rome"}, "--missing", "skip")
    assert status == 0
    assert "2 missing (left out)" in out
    assert ["all", "2", "1.000", "-"] in [line.split()[:4] for line in out.splitlines()]
    assert "1.000" in out


def test_ten_missing_ids_are_named(evaluate, here):
    write(here / "many.jsonl", "".join(json.dumps({"question": f"{n}?", "answer": n}) + "\n" for n in range(30)))
    status, out, _ = evaluate({"item_1": "0"}, data="many.jsonl")
    assert status == 1
    assert "missing: item_2, item_3" in out
    assert "item_11 and 19 more" in out
    assert "item_12" not in out


def test_failed_items_are_named_with_their_error(evaluate):
    status, out, _ = evaluate(RIGHT | {"jp": {"text": "Tokyo"}})
    assert status == 1
    assert "3 of 4 items scored, 0 missing, 1 failed" in out
    assert "failed: jp: prediction: found an object, expected a text" in out
    rows = [line.split()[:4] for line in out.splitlines()]
    assert ["all", "3", "of", "4"] in rows
    assert ["level:", "hard", "1", "of"] in rows


def test_items_that_failed_alike_are_named_together(evaluate, here):
    write(here / "many.jsonl", "".join(json.dumps({"question": f"{n}?", "answer": n}) + "\n" for n in range(30)))
    answers = {f"item_{n}": {} for n in range(1, 31)} | {"item_7": ["6", "7"]}
    status, out, _ = evaluate(answers, data="many.jsonl")
    assert status == 1
    alike, other = [line for line in out.splitlines() if line.startswith("failed: ")]
    assert alike.startswith("failed: item_1, item_2, ")
    assert "item_11 and 19 more: prediction: found an object" in alike
    assert other.startswith("failed: item_7: metric 'exact_match': found several predictions")


def test_rows_that_cannot_be_loaded_are_named_and_the_others_scored(evaluate, here):
    with (here / "rows.jsonl").open("a") as file:
        file.write("{bad\n")
    status, out, err = evaluate(RIGHT)
    assert status == 1
    assert f"{here / 'rows.jsonl'}:5:2: not valid JSON" in err
    assert "4 of 4 items scored" in out


def test_predictions_of_no_item_are_warned_about(evaluate):
    status, out, err = evaluate(RIGHT | {f"x{n}": "?" for n in range(12)})
    assert status == 0
    assert err.startswith("preds.json: warning: found ids that no item has: x0, x1")
    assert err.endswith("x9 and 2 more\n")
    assert "4 of 4 items scored" in out


def test_several_metrics(evaluate, here):
    argv = ("--metric", "similarity", "--metric", "contains_answer>=0.5", "--output", "out/results.json")
    status, out, _ = evaluate(RIGHT | {"jp": "It is Tokyo."}, *argv)
    assert status == 0
    plain, gated = out.split("Benchmark_rows.jsonl, contains_answer >= 0.5")
    assert "pass rate" not in plain
    assert "100.0 %" in gated
    assert sorted(path.name for path in (here / "out").iterdir()) == [
        "results.contains_answer.json",
        "results.similarity.json",
    ]
    saved = json.loads((here / "out" / "results.similarity.json").read_text())
    assert saved["summary"]["metric"] == "similarity"
    assert len(saved["evaluation_results"]) == 4


def test_saved_results_are_predictions_again(evaluate, here):
    status, first, _ = evaluate(RIGHT | {"jp": "Kyoto"}, "--output", "saved.json")
    assert (status, "saved: saved.json" in first) == (0, True)
    main(["evaluate", "rows.jsonl", "saved.json"])
    assert json.loads((here / "saved.json").read_text())["summary"]["average_score"] == 0.75


@pytest.mark.parametrize(
    ("argv", "status", "said"),
    [
        (["--fail-under", "0.75"], 0, ""),
        (["--fail-under", "0.76"], 1, "FAILED: exact_match: the pass rate is 0.75, --fail-under asks for 0.76"),
        (["--metric", "similarity", "--fail-under", "0.8"], 0, ""),
        (["--metric", "similarity", "--fail-under", "0.9"], 1, "FAILED: similarity: the mean score is 0.85"),
        (["--metric", "similarity>=0.3", "--fail-under", "1"], 0, ""),
    ],
)
def test_gate(evaluate, argv, status, said):
    found, out, _ = evaluate(RIGHT | {"jp": "Kyoto"}, *argv)
    assert found == status
    assert said in out
    assert ("FAILED" in out) is bool(status)


def test_json(evaluate):
    status, out, err = evaluate({"fr": "Paris", "it": "Rom", "jp": 1.5, "x": "?"}, "--json", "--fail-under", "0.1")
    found = json.loads(out)
    assert (status, err.count("\n")) == (1, 1)
    assert found["load_errors"] == []
    assert found["unmatched_ids"] == ["x"]
    [card] = found["metrics"]
    assert (card["metric"], card["threshold"], card["total_items"]) == ("exact_match", 1.0, 4)
    assert (card["average_score"], card["pass_rate"]) == (0.25, 0.25)
    assert card["missing_ids"] == ["pe"]
    assert card["failed"] == []
    assert card["breakdown"][0] | {"score_ci95": None, "pass_rate_ci95": None} == {
        "field": "level",
        "value": "easy",
        "items": 2,
        "judged": 2,
        "mean_score": 0.5,
        "score_ci95": None,
        "pass_rate": 0.5,
        "pass_rate_ci95": None,
    }


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--metric", "exact_mach"], "unknown metric 'exact_mach'; did you mean 'exact_match'?"),
        (["--metric", "similarity", "--metric", "similarity>=0.5"], "found similarity twice"),
        (["--output", "."], "found the folder ., expected a file"),
    ],
)
def test_wrong_usage(evaluate, argv, said):
    status, out, err = evaluate(RIGHT, *argv)
    assert (status, out) == (2, "")
    assert f"agentbench evaluate: {argv[0]}: {said}" in err


@pytest.mark.parametrize(
    "argv",
    [["--metric", "similarity>=2"], ["--fail-under", "5"], ["--missing", "one"], ["--compat", "v3"]],
)
def test_option_that_cannot_be_parsed(evaluate, argv, capsys):
    with pytest.raises(SystemExit) as ended:
        evaluate(RIGHT, *argv)
    assert ended.value.code == 2
    assert f"argument {argv[0]}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["nothing.jsonl", "preds.json"], "nothing.jsonl: there is no such file"),
        (["rows.jsonl", "nothing.json"], "nothing.json: there is no such file"),
        ([".", "preds.json"], ".: found a folder, expected a file"),
        (["rows.jsonl", "/dev/null"], "/dev/null: found no regular file, expected one"),
    ],
)
def test_file_that_is_not_there(here, capsys, argv, said):
    write(here / "preds.json", RIGHT)
    assert main(["evaluate", *argv]) == 2
    assert capsys.readouterr().err == f"agentbench evaluate: {said}\n"


@pytest.mark.parametrize(
    ("predictions", "said"),
    [
        ("", "preds.json:1:1: found no prediction"),
        ("\n\n", "preds.json:1:1: found no prediction"),
        ("id,prediction\nfr,Paris\n", "preds.json:1:1: not valid JSON"),
        ('"Paris"', "preds.json:1:1: found a text"),
        ('{"fr": "Paris",\n "fr": "Lyon"}', "preds.json:2:1: found a second prediction for 'fr'"),
        ('{"id": "fr", "prediction": "Paris"}\n{"id": "it"}\n', "preds.json:2:1: "),
        (b"\xff\xfe{\x00}\x00", "found UTF-16 or binary data"),
        (b"PK\x03\x04\x14\x00", "preds.json:1:1: "),
        (["Paris", "Rome"], "preds.json: predictions: found a list of 2, expected 4, one for each item"),
        ("{" * 100_000, "preds.json:1:"),
    ],
    ids=["empty", "blank", "csv", "text", "duplicate", "no prediction", "utf-16", "zip", "short", "deep"],
)
def test_predictions_that_are_none(evaluate, here, predictions, said):
    write(here / "kept.json", "kept")
    status, out, err = evaluate(predictions, "--output", "kept.json")
    assert (status, out) == (1, "")
    assert said in err
    assert len(err) < 2000
    assert (here / "kept.json").read_text() == "kept"


def test_data_that_is_none(evaluate, here):
    write(here / "schema.json", {"type": "object"})
    status, _, err = evaluate(RIGHT, data="schema.json")
    assert status == 1
    assert "schema.json:1:1: question: found none, expected a text" in err


@pytest.mark.slow
def test_huge_predictions(evaluate, here):
    count = 100_000
    write(here / "big.jsonl", "".join(json.dumps({"question": f"{n}?", "answer": n}) + "\n" for n in range(count)))
    predictions = {f"item_{n + 1}": str(n) for n in range(count)}
    predictions["item_7"] = "x" * 20_000_000
    status, out, _ = evaluate(predictions, data="big.jsonl")
    assert status == 0
    assert "100,000 of 100,000 items scored" in out
    assert "99,999 perfect" in out


def test_list_in_item_order(evaluate):
    status, out, _ = evaluate(["Paris", "Rome", "Tokyo", None])
    assert status == 1
    assert "3 of 4 items scored, 1 missing" in out


def test_file_does_not_steer_the_terminal(evaluate, here):
    write(here / "evil.jsonl", json.dumps({"id": "a\x1b[31m", "question": "?", "answer": "x", "level": "\x1b]0;t"}))
    _, out, _ = evaluate({"b": "x"}, data="evil.jsonl")
    assert "\x1b" not in out
    assert "missing: a\\x1b[31m" in out


def test_the_descriptors_metrics_are_used(evaluate, here):
    write(
        here / "dataset.yaml",
        "schema_version: 1\nname: capitals\ndescription: Four capitals\nfiles: [rows.jsonl]\n"
        "metrics:\n  - {name: similarity, threshold: 0.5}\n  - {name: contains_answer}\n",
    )
    status, out, _ = evaluate(RIGHT, data="dataset.yaml")
    assert status == 0
    assert "capitals, similarity >= 0.5" in out
    assert "capitals, contains_answer\n" in out


def test_list_for_rows_in_another_order_is_refused(evaluate, here):
    write(here / "dataset.yaml", "schema_version: 1\nfiles: [rows.jsonl]\nshuffle_seed: 1\n")
    status, out, err = evaluate(["Paris", "Rome", "Tokyo", "Lima"], data="dataset.yaml")
    assert (status, out) == (1, "")
    assert "the dataset has a shuffle_seed; name predictions by id" in err
    assert evaluate(RIGHT, data="dataset.yaml")[0] == 0


def test_arguments_of_a_metric_from_the_row(evaluate, here):
    write(
        here / "choices.jsonl",
        '{"id": "a", "question": "?", "answer": "B", "options": ["Paris", "Rome"]}\n'
        '{"id": "b", "question": "?", "answer": "B", "options": ["Oslo", "Lima"]}\n',
    )
    write(
        here / "dataset.yaml",
        "schema_version: 1\nfiles: [choices.jsonl]\n"
        'metrics: [{name: multiple_choice, threshold: 1, args: {choices: "{{ options }}"}}]\n',
    )
    status, out, _ = evaluate({"a": "Rome", "b": "Oslo"}, data="dataset.yaml")
    assert status == 0
    assert "multiple_choice >= 1" in out
    assert "scores 0 to 1, 1 perfect" in out


CUSTOM = """
from pytest_agentbench import Benchmark, BenchmarkItem

class Problems(Benchmark):
    def _parse_item(self, data, line_num):
        return BenchmarkItem(id=data["nr"], question=data["problem"], answer=data["solution"])
"""


def test_class_of_a_descriptor_makes_the_items(evaluate, here):
    write(here / "problems_of_mine.py", CUSTOM)
    write(here / "problems.jsonl", '{"nr": "one", "problem": "1 + 1?", "solution": "2"}\n')
    descriptor = "schema_version: 1\nfiles: [problems.jsonl]\nbenchmark: problems_of_mine:Problems\n"
    write(here / "problems.dataset.yaml", descriptor)
    status, out, err = evaluate({"one": "2"}, data="problems.dataset.yaml")
    assert (status, err) == (0, "")
    assert "1 of 1 items scored" in out


@pytest.mark.slow
def test_progress_is_for_terminals_only(here):
    """Show a bar on a terminal's stderr, none in a file, and never one on stdout."""
    write(here / "preds.json", RIGHT)
    command = [sys.executable, "-m", "pytest_agentbench.cli", "evaluate", "rows.jsonl", "preds.json"]
    piped = subprocess.run(command, capture_output=True, text=True, check=True)
    assert piped.stderr == ""
    ours, theirs = pty.openpty()
    shown = b""

    def read():
        nonlocal shown
        try:
            while chunk := os.read(ours, 1024):
                shown += chunk
        except OSError:  # the other end is closed
            pass

    reader = threading.Thread(target=read)
    reader.start()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, text=True, check=True)
    os.close(theirs)
    reader.join(10)
    os.close(ours)
    assert done.stdout == piped.stdout
    assert b"exact_match" in shown


@pytest.mark.parametrize("columns", [28, 45, 60])
@pytest.mark.slow
def test_narrow_terminal_keeps_the_names(here, columns):
    """Of a table that does not fit, intervals are left out first."""
    write(here / "preds.json", RIGHT)
    command = [sys.executable, "-m", "pytest_agentbench.cli", "evaluate", "rows.jsonl", "preds.json"]
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm", "NO_COLOR": "1"}
    subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, env=environment, check=True)
    os.close(theirs)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", os.read(ours, 10_000).decode()).splitlines()
    os.close(ours)
    table = lines[lines.index(next(line for line in lines if "pass rate" in line)) :]
    assert all(len(line) <= columns for line in table)
    assert "…" not in "".join(table)
    words = [line.split() for line in table]
    assert any(line[0] == "all" and "100.0" in line for line in words if line)
    assert any(line[:2] == ["level:", "easy"] for line in words)
    assert ("items" in "".join(table)) == (columns > 28)


def test_piped_table_is_as_wide_as_it_needs_to_be(evaluate, here, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    rows = [{**row, "level": f"{row['level']} {'x' * 30}"} for row in ROWS]
    write(here / "rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    _, out, _ = evaluate(RIGHT)
    assert any(line.startswith(f" level: easy {'x' * 30} ") and "100.0 %" in line for line in out.splitlines())


def test_results_that_cannot_be_saved_are_shown_all_the_same(evaluate, here):
    (here / "file").touch()
    status, out, err = evaluate(RIGHT, "--output", "file/results.json")
    assert (status, "4 perfect" in out, "saved" in out) == (1, True, False)
    assert err.startswith("file/results.json: the results could not be written")


def test_model_that_nothing_asks_is_warned_about(evaluate):
    status, _, err = evaluate(RIGHT, "--model", "demo")
    assert (status, err) == (0, "agentbench evaluate: warning: --model: no metric here asks a model\n")


STUCK = """
import os, threading
from pytest_agentbench import Benchmark, metric

@metric("stuck")
def stuck(ground_truth, prediction):
    if prediction == "Paris":
        os.write(1, b"begun\\n")  # a thread inside of print could hold its lock when Python ends
    threading.Event().wait()

class Mine(Benchmark):
    pass
"""


@pytest.mark.slow
def test_interrupt_leaves_nothing_half_written(here):
    write(here / "stuck_metric.py", STUCK)
    write(here / "dataset.yaml", "schema_version: 1\nfiles: [rows.jsonl]\nbenchmark: stuck_metric:Mine\n")
    write(here / "preds.json", RIGHT)
    argv = ["evaluate", "dataset.yaml", "preds.json", "--metric", "stuck", "--output", "out/results.json"]
    status, _, err = interrupted([sys.executable, "-m", "pytest_agentbench.cli", *argv], here)
    assert (status, err) == (130, "")
    assert not (here / "out").exists()
