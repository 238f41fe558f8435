"""`agentbench sessions` on a session that runs: what it shows, one run cancelled, limits changed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.bench import ECHO, HEAD, LEAN

from pytest_agentbench.cli import main
from pytest_agentbench.distributed.control_socket import FOLDER

WAITING = (
    HEAD
    + """
async def agent(case):
    note("began.txt", case.case_id)
    while not os.path.exists("go"):
        await asyncio.sleep(0.01)
    return "Paris"
"""
)
"""A conftest.py whose agent answers once the file `go` is there."""


class Operator:
    """Calls the command in the project's folder."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.output, self._capsys = folder / "outputs", capsys

    def __call__(self, *words: str) -> tuple[int, str]:
        code = main(["sessions", *words, "--output", str(self.output)])
        captured = self._capsys.readouterr()
        return code, captured.out + captured.err

    def wait(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the state of the only session once it meets the condition."""
        state: dict[str, Any] = {}
        until = time.monotonic() + 60
        while time.monotonic() < until:
            lines = self("--json")[1].splitlines()
            if lines and "in_flight" in (state := json.loads(lines[0])) and condition(state):
                return state
        raise AssertionError(state)


@pytest.fixture
def operate(bench, capsys):
    return Operator(bench.path, capsys)


@contextmanager
def session(bench, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a session that waits for the file `go`; write it at the end."""
    command = [sys.executable, "-m", "pytest", *LEAN, "--agentbench-metric=contains_answer", *options]
    with subprocess.Popen(command, cwd=bench.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            yield process
        finally:
            bench.write("go", "")
            process.communicate(timeout=60)


def read_report(bench) -> dict[str, Any]:
    return json.loads((bench.path / "outputs/report.json").read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "before", "after"), [((), 1, 3), (("-n2",), 2, 4)], ids=["serial", "workers"])
def test_a_user_sees_cancels_and_retunes_a_session(bench, operate, workers, before, after):
    bench.agent(WAITING)
    bench.questions(6)
    with session(bench, f"--agentbench-concurrency={before}", *workers) as process:
        state = operate.wait(lambda state: len(state["in_flight"]) == before)
        assert (state["runs"], state["limits"]) == (6, {"concurrency": before, "max_cost": None})
        nodeid = state["in_flight"][0]["nodeid"]
        name = nodeid.partition("::")[2]
        assert name in operate("show")[1]
        assert operate("cancel", name) == (0, f"{nodeid}: is being cancelled\n")
        operate.wait(lambda state: nodeid not in str(state["in_flight"]))
        assert (state["spent_usd"], state["at_least"]) == (0, {"spent_usd": 0})
        code, text = operate("retune", "--concurrency", str(after), "--max-cost", "2.5")
        assert (code, text.splitlines()[0]) == (
            0,
            f"the number of runs in flight was changed to {after} during the session",
        )
        state = operate.wait(lambda state: len(state["in_flight"]) == after)
        assert state["limits"] == {"concurrency": after, "max_cost": 2.5}
    report = read_report(bench)
    outcomes = {row["nodeid"]: (row["outcome"], row["message"]) for row in report["runs"]}
    assert outcomes.pop(nodeid) == ("skipped", "not run: cancelled by the user (agentbench sessions cancel)")
    assert {outcome for outcome, _ in outcomes.values()} == {"passed"}
    assert len(outcomes) == 5
    assert "1 run was cancelled by the user (agentbench sessions cancel)" in report["session"]["warnings"]
    assert process.returncode == report["session"]["exit_status"] == 1
    assert [*(bench.path / "outputs" / FOLDER).iterdir()] == []
    assert operate() == (0, f"no session runs that writes to {operate.output}\n")


@pytest.mark.slow
def test_a_limit_that_is_reached_already_ends_the_session_after_the_runs_in_flight(bench, operate):
    bench.agent(WAITING)
    bench.questions(4)
    began = bench.path / "began.txt"
    with session(bench, "--agentbench-concurrency=2", "--agentbench-fail-under=0.5"):
        operate.wait(lambda state: began.is_file() and len(began.read_text().splitlines()) == 2)
        assert operate("retune", "--max-cost", "0")[0] == 0
        code, text = operate("retune", "--concurrency", "4")
        assert code == 1
        assert "the session starts no more runs: the budget is used up: 0.0000 of 0.0000 USD" in text
    totals = read_report(bench)["totals"]
    assert (totals["passed"], totals["skipped"]) == (2, 2)


@pytest.mark.slow
def test_a_session_is_drained_and_its_limits_bound_what_a_user_may_set(bench, operate):
    bench.agent(WAITING)
    bench.questions(4)
    with session(bench, "--agentbench-concurrency=1", "--agentbench-max-cost=2") as process:
        operate.wait(lambda state: len(state["in_flight"]) == 1)
        code, text = operate("retune", "--concurrency", "5")
        assert (code, "found 5, expected 4 at most" in text) == (1, True)
        code, text = operate("retune", "--max-cost", "2.5")
        assert (code, "found 2.5000, expected 2.0000 USD at most" in text) == (1, True)
        assert operate("retune", "--max-cost", "1.5")[0] == 0
        assert operate("retune", "--max-cost", "2")[0] == 0
        assert operate("drain")[0] == 0
        assert operate("drain")[0] == 1  # it starts no more runs already
    report = read_report(bench)
    assert (report["totals"]["passed"], report["totals"]["skipped"], process.returncode) == (1, 3, 1)
    assert "ended by the user (agentbench sessions drain); 3 runs were not started" in report["session"]["warnings"]


@pytest.mark.slow
def test_a_run_that_is_not_in_flight_is_not_cancelled(bench, operate):
    bench.agent(WAITING)
    bench.questions(3)
    with session(bench, "--agentbench-concurrency=2"):
        state = operate.wait(lambda state: len(state["in_flight"]) == 2)
        first, second = (run["nodeid"] for run in state["in_flight"])
        code, text = operate("cancel", "cases/many.q2")
        assert (code, f"found no run 'cases/many.q2' in flight; in flight are: {first}, {second}" in text) == (1, True)
    assert read_report(bench)["totals"]["passed"] == 3


def test_nothing_to_operate_is_said(operate):
    assert operate() == (0, f"no session runs that writes to {operate.output}\n")
    assert operate("--json") == (0, "")
    code, text = operate("cancel", "q1")
    assert (code, "found no session that runs" in text) == (1, True)
    assert operate("retune")[0] == 2


@pytest.mark.parametrize("options", [["--agentbench-dry-run", "--model=demo"], ["--collect-only"]])
def test_a_session_without_runs_opens_no_socket(bench, options):
    bench.agent(ECHO)
    bench.questions(3)
    bench.run(*options)
    assert not (bench.path / "outputs" / FOLDER).exists()


def test_a_folder_of_sockets_that_others_may_open_is_not_used(bench, operate):
    bench.agent(
        ECHO
        + """
def pytest_runtest_setup(item):
    import os
    with open("seen.txt", "w") as file:
        file.write(str(os.listdir("outputs/.control")))
"""
    )
    bench.case("paris")
    (bench.path / "outputs" / FOLDER).mkdir(parents=True, mode=0o755)
    (bench.path / "outputs" / FOLDER).chmod(0o755)
    assert bench.run().exit == 0
    assert (bench.path / "seen.txt").read_text() == "[]"
