"""SIGTERM and SIGHUP in mid-session: the report is written, what was in flight has ended, nothing is paid again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.bench import HEAD, LEAN, Bench

pytestmark = pytest.mark.slow
DONE = 10
BLOCKED = (
    HEAD
    + f"""
async def agent(case):
    note("pids.txt", str(os.getpid()))
    note("asked.txt", case.case_id)
    if int(case.case_id.split("q")[1]) < {DONE} or os.path.exists("again"):
        return "Paris"
    note("blocked.txt", case.case_id)
    try:
        await asyncio.Event().wait()
    finally:
        note("cancelled.txt", case.case_id)
"""
)
STUBBORN = (
    HEAD
    + """
async def agent(case):
    while True:
        try:
            note("blocked.txt", case.case_id)
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            note("cancelled.txt")
"""
)


@contextmanager
def session(bench: Bench, *args: str) -> Iterator[subprocess.Popen[str]]:
    """A session of many cases, once as many of them are blocked as run at a time."""
    bench.questions(40)
    command = [
        sys.executable,
        "-m",
        "pytest",
        *LEAN,
        "-v",
        "--agentbench-concurrency=4",
        "--agentbench-grace=0.2",
        *args,
    ]
    with subprocess.Popen(
        command, cwd=bench.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            waiting = Watch(bench, process)
            waiting.until("blocked.txt", 4 if args else 1)
            if args:
                waiting.until_reported()
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


class Watch:
    """Waits for what agents note, for as long as the session lives."""

    def __init__(self, bench: Bench, process: subprocess.Popen[str]) -> None:
        self.bench, self.process = bench, process

    def until(self, name: str, lines: int) -> None:
        while len(self.bench.lines(name)) < lines:
            self.wait()

    def until_reported(self) -> None:
        """Waits for the first row: a session that is ended before it has none writes no report."""
        while not any(b'"event":"run"' in path.read_bytes() for path in self.bench.path.glob("outputs/.journals/*")):
            self.wait()

    def wait(self) -> None:
        try:
            self.process.wait(0.02)
        except subprocess.TimeoutExpired:
            return
        pytest.fail(self.process.communicate()[0])


def controller(bench: Bench, process: subprocess.Popen[str]) -> int:
    return process.pid


def worker(bench: Bench, process: subprocess.Popen[str]) -> int:
    return int(bench.lines("pids.txt")[0])


@pytest.mark.parametrize(
    ("number", "whom", "args"),
    [
        (signal.SIGTERM, controller, ("-pno:xdist",)),
        (signal.SIGHUP, controller, ("-pno:xdist",)),
        (signal.SIGTERM, controller, ("-n2",)),
        (signal.SIGTERM, worker, ("-n2",)),
    ],
    ids=["term", "hup", "term-controller", "term-worker"],
)
def test_a_signal_ends_a_session_as_ctrl_c_does(bench, number, whom, args):
    bench.agent(BLOCKED)
    with session(bench, *args) as process:
        os.kill(whom(bench, process), number)
        said = process.communicate(timeout=30)[0]
    assert process.returncode == 128 + number, said
    report = json.loads((bench.path / "outputs/report.json").read_text())
    assert report["session"]["exit_status"] == 128 + number
    reported = {row["case_id"] for row in report["runs"] if row["outcome"] == "passed"}
    assert {row["outcome"] for row in report["runs"]} <= {"passed", "skipped"}
    assert sorted(bench.lines("cancelled.txt")) == sorted(bench.lines("blocked.txt"))
    stored = len(list((bench.path / "outputs/runs").rglob("run_1.json")))
    assert len(reported) <= stored == DONE
    bench.write("again", "")
    asked = len(bench.lines("asked.txt"))
    assert bench.spawn().report["totals"]["reused"] == stored
    assert len(bench.lines("asked.txt")) - asked == 40 - stored


def test_a_second_signal_ends_it_at_once(bench):
    bench.agent(STUBBORN)
    with session(bench) as process:
        process.send_signal(signal.SIGTERM)
        Watch(bench, process).until("cancelled.txt", 1)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=3)
    assert process.returncode == -signal.SIGTERM


def test_a_signal_that_is_ignored_stays_so(bench):
    """nohup: the session goes on when its terminal is closed."""
    bench.agent(HEAD + "import signal\ndef agent(case):\n    os.kill(os.getpid(), signal.SIGHUP)\n    return 'Paris'\n")
    bench.case("capital")
    command = ["nohup", sys.executable, "-m", "pytest", *LEAN]
    done = subprocess.run(command, cwd=bench.path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
