"""What sessions leave in the output folder: one database, and files that show what is in it."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from support.bench import ECHO_TO_FILE, HEAD, LEAN
from support.fault_endpoint import FaultEndpoint
from support.stored import as_files, list_stored
from test_plugin_reuse import Campaign

LARGE = HEAD + "\ndef agent(case):\n    note('runs.txt', case.case_id)\n    return 'Paris ' + 'x' * 100_000\n"
FAILS_AT_77 = HEAD + "\ndef agent(case):\n    return 'Rome' if case.case_id.endswith('q77') else 'Paris'\n"
CONTAINED = "--agentbench-metric=contains_answer"


def query(output: Path, statement: str) -> list[tuple]:
    """What another program reads in the database."""
    with contextlib.closing(sqlite3.connect(f"file:{output}/store.sqlite?mode=ro", uri=True)) as database:
        return database.execute(statement).fetchall()


def check_layout(output: Path) -> None:
    """Assert that the files of the layout are the documents in the database: all of them, and nothing else."""
    stored = dict(query(output, "SELECT path, content FROM files"))
    roots = (output / name for name in ("runs", "evaluations", "judgements"))
    files = [path for root in roots for path in root.rglob("*") if path.is_file() and ".artifacts" not in str(path)]
    assert {path.relative_to(output).as_posix() for path in files} == stored.keys()
    for path, content in stored.items():
        if content is not None:  # a large one, which is that file
            assert (output / path).read_text() == content


@pytest.fixture
def campaign(bench):
    with FaultEndpoint() as endpoint:
        yield Campaign(bench, endpoint, "one", "two")


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["serial", "workers"])
def test_after_each_session_the_files_are_what_the_database_holds(campaign, workers):
    output = campaign.bench.path / "outputs"
    for options in (
        (),
        ("--agentbench-no-reuse",),
        ("--agentbench-rejudge",),
        ("--agentbench-repetitions=2",),
    ):
        campaign.asked(*options, *workers)
        check_layout(output)
    campaign.case("two", question="Which city is it?", good="Says Paris, and why")
    campaign.asked(*workers)
    check_layout(output)
    assert [path for path in list_stored(output, "run_1.????????.json") if "/two/" in path]
    campaign.judge_fault = "401"
    campaign.asked("--agentbench-rejudge", *workers, outcome="error")
    check_layout(output)
    assert list_stored(output, "final_result_1.????????.json")


@pytest.mark.slow
def test_an_old_store_is_used_as_it_is_and_what_is_added_goes_to_the_database(campaign):
    output = campaign.bench.path / "outputs"
    campaign.asked("--agentbench-repetitions=2")
    as_files(output)
    before = {path: path.read_bytes() for path in output.rglob("*.json")}
    assert campaign.asked("--agentbench-repetitions=2") == (0, 0)
    campaign.case("two", good="Says Paris, and why")
    assert campaign.asked("--agentbench-repetitions=3") == (2, 4)
    assert {path for (path,) in query(output, "SELECT path FROM runs WHERE repetition = 3")} == {
        row["artifact"] for name, row in campaign.finished.runs.items() if "-r3" in name
    }
    assert {path: path.read_bytes() for path in before if "/one/" in str(path)} == {
        path: content for path, content in before.items() if "/one/" in str(path)
    }
    assert campaign.asked("--agentbench-repetitions=3") == (0, 0)


def test_a_session_lays_out_all_reused_results(bench):
    bench.agent(ECHO_TO_FILE)
    bench.case("one")
    output = bench.path / "outputs"
    bench.run()
    for name in ("runs", "evaluations"):
        shutil.rmtree(output / name)
    assert bench.run().runs["one[agent]"]["reused"]
    check_layout(output)


def test_a_run_and_its_verdict_are_rows_of_views(bench):
    bench.agent(ECHO_TO_FILE)
    bench.case("one")
    bench.case("two", metadata={"says": "Rome"})
    finished = bench.run()
    output = bench.path / "outputs"
    assert not [*output.glob("store.sqlite-*")]  # one file to copy
    assert query(output, "SELECT case_id, status, model_id, repetition FROM runs ORDER BY 1") == [
        ("one", "success", "agent", 1),
        ("two", "success", "agent", 1),
    ]
    verdicts = query(output, "SELECT r.case_id, e.outcome FROM runs r JOIN evaluations e USING (run_id) ORDER BY 1")
    assert verdicts == [("one", "passed"), ("two", "failed")]
    assert query(output, "SELECT path FROM runs WHERE case_id = 'one'") == [(finished.runs["one[agent]"]["artifact"],)]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["serial", "workers"])
def test_a_session_of_more_than_1000_runs_makes_files_of_the_failed_ones_only(bench, workers):
    bench.agent(FAILS_AT_77)
    bench.questions(1_001)
    output = bench.path / "outputs"
    finished = bench.spawn(CONTAINED, *workers, timeout=300)
    [failed] = [row for row in finished.report["runs"] if row["outcome"] == "failed"]
    assert finished.report["totals"]["passed"] == 1_000
    assert f"full trace: outputs/{failed['artifact']}" in finished.text
    assert query(output, "SELECT count(*) FROM runs") == [(1_001,)]
    assert [*output.rglob("run_1.json")] == [output / failed["artifact"]]
    shutil.rmtree(output / "runs")
    again = bench.spawn(CONTAINED, *workers, timeout=300)
    assert again.report["totals"]["reused"] == 1_001
    assert [*output.rglob("run_1.json")] == [output / failed["artifact"]]
    assert bench.run(CONTAINED, "-k", "q7").exit == 1
    assert len([*output.rglob("run_1.json")]) == 111  # of those that it found
    assert bench.run(CONTAINED, "-k", "q8", "--agentbench-dry-run").exit == 0
    assert len([*output.rglob("run_1.json")]) == 111


@pytest.mark.slow
def test_large_answers_are_files_that_the_database_names(bench):
    bench.agent(LARGE)
    bench.questions(3)
    output = bench.path / "outputs"
    for _ in range(2):
        assert bench.run(CONTAINED).exit == 0
        assert query(output, "SELECT count(*), count(content) FROM files WHERE name = 'run_1.json'") == [(3, 0)]
        check_layout(output)
    assert len(bench.lines("runs.txt")) == 3


@pytest.mark.slow
def test_two_sessions_of_large_answers_at_once_pay_each_run_once(bench):
    bench.agent(LARGE)
    bench.questions(40)
    command = [sys.executable, "-m", "pytest", *LEAN, CONTAINED, "--agentbench-concurrency=4"]
    reports = [bench.path / f"report{number}.json" for number in range(2)]
    sessions = [subprocess.Popen([*command, f"--agentbench-json={report}"], cwd=bench.path) for report in reports]
    assert [session.wait(180) for session in sessions] == [0, 0]
    assert set(Counter(bench.lines("runs.txt")).values()) == {1}
    assert sum(json.loads(report.read_text())["totals"]["reused"] for report in reports) == 40
    check_layout(bench.path / "outputs")


@pytest.mark.slow
def test_the_folder_may_be_removed_between_sessions_and_copied(bench):
    bench.agent(ECHO_TO_FILE)
    bench.case("one")
    output = bench.path / "outputs"
    assert bench.run().exit == 0
    (output / "store.sqlite").rename(bench.path / "kept.sqlite")
    for path in sorted(output.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert bench.run().exit == 0
    assert bench.lines("runs.txt") == ["one", "one"]
    (bench.path / "elsewhere").mkdir()
    (bench.path / "kept.sqlite").rename(bench.path / "elsewhere/store.sqlite")
    assert bench.run("--agentbench-output=elsewhere").exit == 0
    assert bench.lines("runs.txt") == ["one", "one"]
