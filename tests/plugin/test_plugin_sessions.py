"""`agentbench sessions` on a session that runs: what it shows, one run cancelled, limits changed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from support.bench import ECHO, HEAD, LEAN

from pytest_agentbench.cli import main
from pytest_agentbench.distributed.control_socket import FOLDER, ControlSocket, RequestRefused, ask_session

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
        assert code == 1
        assert "in flight: found no run 'cases/many.q2', expected a part of the node id of one of these:" in text
        assert f"\n  {first}\n  {second}" in text
    assert read_report(bench)["totals"]["passed"] == 3


def test_nothing_to_operate_is_said(operate):
    assert operate() == (0, f"no session runs that writes to {operate.output}\n")
    assert operate("--json") == (0, "")
    code, text = operate("cancel", "q1")
    assert (code, "found no session that runs" in text) == (3, True)
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
    finished = bench.run()
    assert (finished.exit, (bench.path / "seen.txt").read_text()) == (0, "[]")
    [warning] = finished.report["session"]["warnings"]
    assert warning.startswith("`agentbench sessions` cannot operate this session: ")
    assert "others may open it; remove it" in warning


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["serial", "workers"])
def test_a_paused_session_starts_no_run_until_it_is_resumed(bench, operate, workers):
    bench.agent(WAITING)
    bench.questions(6)
    began = bench.path / "began.txt"
    with session(bench, "--agentbench-concurrency=2", *workers) as process:
        operate.wait(lambda state: len(state["in_flight"]) == 2)
        assert operate("pause", "--reason", "a look")[0] == 0
        code, text = operate("pause")
        assert (code, "the session is paused already" in text) == (1, True)
        bench.write("go", "")  # both runs end, and no other begins
        operate.wait(lambda state: not state["in_flight"] and state["paused"])
        assert len(began.read_text().splitlines()) == 2
        assert "paused: starts no more runs" in operate("show")[1]
        assert operate("resume", "--json") == (0, "{}\n")
        process.wait(timeout=60)
    report = read_report(bench)
    assert (report["totals"]["passed"], process.returncode) == (6, 0)
    assert report["session"]["warnings"] == [
        "the session was paused by the user (agentbench sessions pause)",
        "agentbench sessions pause: a look",
        "the session was resumed by the user (agentbench sessions resume)",
    ]


@pytest.mark.slow
def test_a_paused_session_that_is_drained_ends(bench, operate):
    bench.agent(WAITING)
    bench.questions(3)
    with session(bench, "--agentbench-concurrency=1") as process:
        operate.wait(lambda state: len(state["in_flight"]) == 1)
        operate("pause")
        bench.write("go", "")
        operate.wait(lambda state: not state["in_flight"])
        assert operate("drain", "--reason", "enough")[0] == 0
        process.wait(timeout=60)
    totals = read_report(bench)["totals"]
    assert (totals["passed"], totals["skipped"], process.returncode) == (1, 2, 1)


@pytest.mark.slow
def test_all_runs_in_flight_are_cancelled_and_made_by_the_next_session(bench, operate):
    bench.agent(WAITING)
    bench.questions(2)
    with session(bench, "--agentbench-concurrency=2", "--agentbench-json-lines=lines.jsonl") as process:
        operate.wait(lambda state: len(state["in_flight"]) == 2)
        code, text = operate("cancel", "--all", "--reason", "a wrong key")
        assert (code, text.count("is being cancelled")) == (0, 2)
        process.wait(timeout=60)
    report = read_report(bench)
    assert (report["totals"]["skipped"], process.returncode) == (2, 1)
    assert [(row["status"], row["final_score"]) for row in report["runs"]] == [("cancelled", None)] * 2
    records = map(json.loads, (bench.path / "lines.jsonl").read_text().splitlines())
    assert [record["status"] for record in records if record["event"] == "run"] == ["cancelled"] * 2
    assert "agentbench sessions cancel: a wrong key" in report["session"]["warnings"]
    [change] = report["session"]["changes"]
    assert (change["do"], len(change["runs"]), change["reason"]) == ("cancel", 2, "a wrong key")
    assert change["uid"] == os.getuid()
    bench.write("go", "")
    assert bench.run("--agentbench-metric=contains_answer").exit == 0
    assert operate("cancel")[0] == 2  # neither a run nor --all
    assert operate("cancel", "--all")[0] == 3  # no session runs


TALKING = (
    HEAD
    + """
async def agent(case, context):
    context.trace.message("user", "Where is it?")
    context.trace.message("assistant", "I look \\x1b[31mit up.")
    context.trace.tool_call("1", "find", {})
    note("began.txt", case.case_id)
    while not os.path.exists("go"):
        await asyncio.sleep(0.01)
    return "Paris"
"""
)


@pytest.mark.slow
def test_a_run_in_flight_shows_how_far_it_is_and_its_messages_only_on_request(bench, operate):
    bench.agent(TALKING)
    bench.questions(1)
    began = bench.path / "began.txt"
    with session(bench):
        operate.wait(lambda state: began.is_file() and bool(state["in_flight"]))
        code, text = operate("show", "cases/many.q0")
        assert code == 0, text
        assert ("1 model replies" in text, "last tools: find" in text) == (True, True)
        assert "Where is it" not in text
        assert "assistant: I look \\x1b[31mit up." in operate("show", "cases/many.q0", "--content")[1]
        assert operate("show", "cases/many.q7")[0] == 1


@pytest.mark.slow
def test_the_runs_of_a_session_are_followed_and_listed(bench, operate):
    bench.agent(WAITING.replace('os.path.exists("go")', 'os.path.exists("go" if "q2" in case.case_id else "first")'))
    bench.questions(3)
    with session(bench, "--agentbench-concurrency=1"):
        operate.wait(lambda state: len(state["in_flight"]) == 1)
        name = name_session(bench)
        listed = ask_session(operate.output, name, {"do": "list", "state": "running"})
        assert (listed["counts"]["planned"], [run["state"] for run in listed["runs"]]) == (3, ["running"])
        with pytest.raises(RequestRefused, match="state: found 'lost', expected running, done, error"):
            ask_session(operate.output, name, {"do": "list", "state": "lost"})
        command = [Path(sys.executable).with_name("agentbench"), "sessions", "follow", "--json"]
        with subprocess.Popen(command, cwd=bench.path, stdout=subprocess.PIPE) as following:
            bench.write("first", "")
            assert following.stdout is not None
            first = following.stdout.readline()
            bench.write("go", "")
            rest = following.stdout.read()  # not communicate, which misses lines that readline has read ahead
    records = [json.loads(line) for line in [first, *rest.splitlines()]]
    assert following.returncode == 0
    assert [record["nodeid"].partition("::")[2] for record in records] == [f"cases/many.q{i}[agent]" for i in range(3)]
    assert {record["outcome"] for record in records} == {"passed"}


@pytest.mark.slow
def test_the_facts_of_a_session_are_in_a_file_of_its_user_and_in_the_start_record(bench, operate):
    bench.agent(WAITING)
    bench.questions(1)
    with session(bench, "--agentbench-json-lines=lines.jsonl"):
        operate.wait(lambda state: len(state["in_flight"]) == 1)
        name = name_session(bench)
        file = operate.output / FOLDER / f"{name}.json"
        facts = json.loads(file.read_text())
        assert (facts["v"], facts["session"], facts["models"], facts["planned"]) == (1, name, ["agent"], 1)
        assert file.stat().st_mode & 0o077 == 0
        start = json.loads((bench.path / "lines.jsonl").read_text().splitlines()[0])
        assert (start["socket"], start["variants"]) == (facts["socket"], [])
    assert not file.exists()


@pytest.mark.slow
def test_clients_that_say_nothing_do_not_keep_others_from_the_session(bench, operate):
    bench.agent(WAITING)
    bench.questions(1)
    with session(bench) as process, ExitStack() as clients:
        operate.wait(lambda state: len(state["in_flight"]) == 1)
        folder = os.open(operate.output / FOLDER, os.O_RDONLY)  # an address has 107 bytes at most
        clients.callback(os.close, folder)
        address = f"/proc/self/fd/{folder}/{name_session(bench)}.sock"
        for _ in range(5):  # of the eight at a time
            clients.enter_context(socket.socket(socket.AF_UNIX)).connect(address)
        assert operate("show")[0] == 0
        big = clients.enter_context(socket.socket(socket.AF_UNIX))
        big.connect(address)
        with suppress(OSError):
            big.sendall(b"x" * 2**22)
        for _ in range(100):
            with suppress(OSError):
                clients.enter_context(socket.socket(socket.AF_UNIX)).connect(address)
        bench.write("go", "")
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_requests_carry_their_id_and_unknown_fields_are_refused(tmp_path):
    control = ControlSocket(tmp_path, "one", lambda request: {"saw": request}, {"session": "one"})
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(control.path))
            client.sendall(b'{"v": 1, "id": 7, "do": "state"}\n')
            assert json.loads(client.recv(2**16)) == {"v": 1, "id": 7, "ok": True, "saw": {"do": "state"}}
        with pytest.raises(RequestRefused, match="v: found 2, expected 1"):
            ask_session(tmp_path, "one", {"v": 2, "do": "state"})
    finally:
        control.close()
    assert [*(tmp_path / FOLDER).iterdir()] == []


def name_session(bench) -> str:
    """Return the id of the only session that runs."""
    [path] = (bench.path / "outputs" / FOLDER).glob("*.sock")
    return path.stem
