"""Journals of real sessions: the same as report.json at the end, all that was known where they were killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.bench import ECHO, HEAD, LEAN

from pytest_agentbench.reports.journal import JournalReader, RowsGoneError, journals, read_journal

STUCK = (
    HEAD
    + """
async def agent(case):
    if "q2" in case.case_id:
        await asyncio.sleep(600)
    return "Paris"
"""
)


def journal_of(bench, finished=None) -> dict:
    if finished is not None:  # the bench has taken its report away
        (bench.path / "outputs" / "report.json").write_text(json.dumps(finished.report), encoding="utf-8")
    [path] = journals(bench.path / "outputs")
    return read_journal(path)


@pytest.mark.parametrize("workers", [(), pytest.param(("-n2",), marks=pytest.mark.slow)], ids=["serial", "workers"])
def test_the_journal_of_a_session_is_its_report(bench, workers):
    bench.agent(ECHO)
    bench.questions(6)
    bench.case("london", metadata={"says": "London"})
    finished = bench.run(*workers) if not workers else bench.spawn(*workers)
    assert len(finished.report["runs"]) == 7
    report = journal_of(bench, finished)
    for part in ("session", "totals", "models", "cases", "runs"):
        assert report[part] == finished.report[part], part


@pytest.mark.parametrize("elsewhere", [False, True], ids=["beside", "elsewhere"])
def test_a_row_stays_in_the_journal_only_where_no_report_is_beside_it(bench, elsewhere):
    bench.agent(ECHO)
    bench.questions(3)
    finished = bench.run(*(["--agentbench-json=told.json"] if elsewhere else []))
    [path] = journals(bench.path / "outputs")
    assert path.read_bytes().count(b'"event":"run"') == (3 if elsewhere else 0)
    assert len(journal_of(bench, None if elsewhere else finished)["runs"]) == 3


def test_a_reused_run_is_in_the_journal_of_its_session_too(bench):
    bench.agent(ECHO)
    bench.questions(3)
    bench.run()
    [row] = journal_of(bench, bench.run("-k", "q1"))["runs"]
    assert row["reused"]


def test_a_broken_teardown_is_in_the_journal(bench):
    bench.agent(ECHO + "\n@pytest.fixture(autouse=True)\ndef broken():\n    yield\n    raise RuntimeError('bad end')\n")
    bench.case("capital")
    [row] = journal_of(bench, bench.run())["runs"]
    assert (row["outcome"], row["message"]) == ("error", "teardown failed")


@pytest.mark.parametrize("options", [["--agentbench-dry-run", "--model=demo"], ["--collect-only"], ["--setup-plan"]])
def test_a_session_without_runs_leaves_no_journal(bench, options):
    bench.agent(ECHO)
    bench.questions(3)
    bench.run(*options)
    assert journals(bench.path / "outputs") == []


@pytest.mark.slow
def test_journals_are_never_collected(bench):
    bench.agent(ECHO)
    bench.questions(3)
    bench.write("pytest.ini", "[pytest]\nnorecursedirs = nothing\n")
    bench.run()
    assert len(bench.run().report["runs"]) == 3


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["serial", "workers"])
def test_a_killed_session_leaves_what_it_had_reported(bench, workers):
    bench.agent(STUCK)
    bench.questions(4)
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *LEAN, *workers, "--agentbench-metric=contains_answer"],
        cwd=bench.path,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with process:
        reader = first(bench.path / "outputs", process)
        while len(reader.rows) < 2 and process.poll() is None:
            reader.read()
        assert reader.is_live()
        assert reader.planned == 4
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=20)
    assert not reader.is_live()
    assert not (bench.path / "outputs/report.json").exists()
    report = journal_of(bench)
    assert report["totals"]["passed"] == len(report["runs"]) >= 2
    assert "The session was killed:" in report["session"]["warnings"][-1]
    bench.agent(ECHO)
    assert journal_of(bench, bench.run("--agentbench-metric=contains_answer"))["totals"]["runs"] == 4


@pytest.mark.slow
def test_runs_in_flight_are_in_the_journal(bench):
    bench.agent(STUCK)
    bench.questions(4)
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *LEAN, "--agentbench-metric=contains_answer"],
        cwd=bench.path,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with process:
        reader = first(bench.path / "outputs", process)
        while reader.ended != 3 and process.poll() is None:
            reader.read()
        os.killpg(process.pid, signal.SIGKILL)
    assert (reader.in_flight, [name.partition("[")[0] for name in reader.running]) == (1, ["cases/many.q2"])


def first(output: Path, process: subprocess.Popen) -> JournalReader:
    """The journal of a session that is starting."""
    while not (found := journals(output)):
        assert process.poll() is None, process.communicate()
    return JournalReader(found[0])


@pytest.mark.slow
def test_two_sessions_in_one_output_folder_have_a_journal_each(bench):
    bench.agent(STUCK)
    bench.questions(4)
    command = [sys.executable, "-m", "pytest", *LEAN, "--agentbench-metric=contains_answer"]
    with subprocess.Popen(command, cwd=bench.path, stdout=subprocess.PIPE, start_new_session=True) as process:
        stuck = first(bench.path / "outputs", process)
        assert bench.spawn("-k", "q1", "--agentbench-metric=contains_answer").report["totals"]["runs"] == 1
        newest, older = map(JournalReader, journals(bench.path / "outputs"))
        assert older.path == stuck.path
        with pytest.raises(RowsGoneError):  # the bench has taken its report away
            newest.read()
        assert stuck.is_live()
        os.killpg(process.pid, signal.SIGKILL)


def test_an_output_folder_that_takes_no_journal_costs_a_warning(bench):
    bench.agent(ECHO)
    bench.case("capital")
    bench.write("outputs/.journals", "in the way")
    finished = bench.run()
    assert finished.exit == 0
    [warning] = finished.report["session"]["warnings"]
    assert "the session's journal cannot be written" in warning
    json.dumps(finished.report)


@pytest.mark.slow
@pytest.mark.parametrize("reported", [0, 1])
def test_an_interrupted_session_has_a_report_that_says_so(bench, reported):
    bench.agent(
        ECHO
        + f"""
def pytest_runtest_setup(item):
    if item.session.items.index(item) == {reported}:
        raise KeyboardInterrupt
"""
    )
    bench.questions(3)
    bench.write("outputs/report.json", "an earlier session's")
    done = bench.pytester.runpytest_inprocess(*LEAN, no_reraise_ctrlc=True)
    report = json.loads((bench.path / "outputs" / "report.json").read_text(encoding="utf-8"))
    assert (done.ret, report["session"]["exit_status"], len(report["runs"])) == (2, 2, reported)
    fault = "The session was interrupted before any run was reported."
    assert (fault in report["session"]["faults"]) == (reported == 0)
    done.stdout.fnmatch_lines(["*KeyboardInterrupt*"])
