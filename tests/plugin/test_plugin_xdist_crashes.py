"""Workers that die, in sessions of many items: nothing is lost, nothing is reported or paid twice."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest
from support.bench import HEAD, LEAN

pytestmark = pytest.mark.slow

ITEMS, FEWER = 3_000, 600
SECONDS = 900
"""No session may take longer, however busy the machine is."""

AGENT = (
    HEAD
    + """
def pytest_configure(config):
    if hasattr(config, "workerinput"):
        note("pids.txt", str(os.getpid()))

async def agent(case):
    await asyncio.sleep(0.001)
    if case.case_id in CRASHING:
        os._exit(7)
    note("ran.txt", case.case_id)
    return "Paris"

CRASHING = ()
"""
)


def start(bench, *args):
    """A session in a process of its own, its output in files."""
    command = [sys.executable, "-m", "pytest", *LEAN, "-p", "no:cacheprovider", "-q", "--tb=line", *args]
    with (bench.path / "out.txt").open("w") as out:
        return subprocess.Popen(command, cwd=bench.path, stdout=out, stderr=subprocess.STDOUT)


def finish(bench, session):
    """The report, and how many passed by the terminal's own count."""
    assert session.wait(SECONDS) in (0, 1)
    report = json.loads((bench.path / "outputs" / "report.json").read_text())
    said = (bench.path / "out.txt").read_text()
    return report, int(re.search(r"(\d+) passed.* in \d", said)[1])


def ran_again(bench):
    """How many runs were made beyond the first of each case."""
    ran = Counter(bench.lines("ran.txt"))
    return ran.total() - len(ran)


def test_agents_that_end_the_process_lose_and_double_nothing(bench):
    culprits = {f"cases/many.q{number}" for number in random.sample(range(FEWER), 4)}
    bench.agent(AGENT.replace("CRASHING = ()", f"CRASHING = {culprits!r}"))
    bench.questions(FEWER)
    report, passed = finish(bench, start(bench, "-n", "4", "--agentbench-concurrency", "16"))
    outcomes = {row["case_id"]: row["outcome"] for row in report["runs"]}
    assert len(report["runs"]) == len(outcomes) == FEWER
    assert {case_id for case_id, outcome in outcomes.items() if outcome != "passed"} == culprits
    assert {outcomes[case_id] for case_id in culprits} == {"error"}
    assert passed == FEWER - len(culprits)
    assert ran_again(bench) <= 2 * 2 * len(culprits)  # each dies twice, and takes along what its worker had in flight


def kill_some(bench, session, times):
    """Kills workers while the session goes on, at random moments, one to three at once. Returns how many."""
    killed: set[int] = set()
    for at in sorted(random.sample(range(ITEMS // 20, ITEMS - ITEMS // 20), times)):
        while len(bench.lines("ran.txt")) < at and session.poll() is None:
            time.sleep(0.01)
        while not (alive := {int(pid) for pid in bench.lines("pids.txt")} - killed) and session.poll() is None:
            time.sleep(0.01)  # all are dead: until one has taken their place
        for pid in random.sample(sorted(alive), min(len(alive), random.randint(1, 3))):
            if session.poll() is None:
                killed.add(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    return len(killed)


def test_workers_that_are_killed_at_random_lose_and_double_nothing(bench):
    bench.agent(AGENT)
    bench.questions(ITEMS)
    session = start(bench, "-n", "4", "--agentbench-concurrency", "16")
    killed = kill_some(bench, session, 5)  # 15 at most: xdist replaces 16
    report, passed = finish(bench, session)
    assert killed >= 5
    assert len({row["case_id"] for row in report["runs"]}) == len(report["runs"]) == ITEMS
    errors = [row["message"] for row in report["runs"] if row["outcome"] != "passed"]
    assert passed == ITEMS - len(errors)
    assert len(errors) <= killed // 2  # a worker that is killed while it runs a suspect alone looks like a crash of it
    assert all("crashed while running" in error for error in errors)
    assert ran_again(bench) <= 2 * killed
