from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from support.bench import COUNTING, HEAD, LEAN

SOME_SLOW = [pytest.param((), id="serial"), pytest.param(("-n", "2"), id="xdist", marks=pytest.mark.slow)]
ONE_AFTER_ANOTHER = HEAD + (
    "async def agent(case):\n    note('started.txt', case.case_id)\n"
    "    await asyncio.sleep(0)\n    return case.metadata.get('says', 'Paris')\n"
)
BLOCKED = (
    HEAD
    + """
async def agent(case):
    note("started.txt", case.case_id)
    if case.case_id.endswith(".q0"):
        return "Rome"
    try:
        await asyncio.Event().wait()
    finally:
        note("cancelled.txt", case.case_id)
"""
)
"""The first row fails, the others never end by themselves."""


@pytest.mark.parametrize("args", [("-x",), ("--maxfail=1",)], ids=["x", "maxfail"])
def test_a_stop_cancels_what_is_in_flight(bench, args):
    bench.agent(BLOCKED)
    bench.questions(50)
    finished = bench.run("--agentbench-concurrency", "4", *args)
    assert finished.exit == 1
    assert finished.outcomes == {"cases/many.q0[agent]": "failed"}
    started = bench.lines("started.txt")
    assert len(started) <= 9  # the window of a session that may stop is small: one failed, up to eight ahead of it
    started.remove("cases/many.q0")
    assert sorted(bench.lines("cancelled.txt")) == sorted(started)


def test_maxfail_counts_failures(bench):
    bench.agent(ONE_AFTER_ANOTHER)
    bench.rows(
        "cases/many.jsonl",
        *({"id": f"q{i}", "question": "?", "answer": "Rome" if i in (3, 7, 9) else "Paris"} for i in range(40)),
    )
    finished = bench.run("--maxfail=2", "--agentbench-concurrency", "2")
    assert finished.exit == 1
    assert len(finished.runs) == 8
    assert list(finished.outcomes.values()).count("failed") == 2
    assert len(bench.lines("started.txt")) <= 12


@pytest.mark.parametrize("workers", SOME_SLOW)
def test_fail_fast_ends_the_session_after_a_failure(bench, workers):
    bench.agent(ONE_AFTER_ANOTHER)
    bench.profile("strict", policy={"fail_fast": True, "max_concurrency": 2})
    for number in range(30):
        bench.case(f"case{number:02}", metadata={"says": "Rome" if number == 1 else "Paris"})
    finished = bench.run("--agentbench-run-profile", "strict", *workers)
    assert finished.exit != 0
    assert finished.outcomes["case01[agent]"] == "failed"
    assert len(finished.runs) < 30
    assert "execution_policy.fail_fast of run profile 'strict'" in finished.text


RAISING = (
    HEAD
    + """
async def agent(case):
    note("started.txt", case.case_id)
    await asyncio.sleep(0.01)
    if case.metadata["raises"]:
        raise OSError("no engine")
    return case.metadata["says"]
"""
)


@pytest.mark.parametrize("at_once", [1, 2])
@pytest.mark.parametrize(("policy", "stops"), [("first", True), (True, False)])
def test_the_first_runner_error_ends_the_session_if_the_profile_says_so(bench, policy, stops, at_once):
    bench.agent(RAISING)
    bench.profile("strict", policy={"stop_on_runner_error": policy, "max_concurrency": at_once})
    says = ["Paris", "Rome", "Paris", "Paris", "Paris", "Paris"]
    for number, answer in enumerate(says):
        bench.case(f"case{number}", metadata={"says": answer, "raises": number == 2})
    finished = bench.run("--agentbench-run-profile", "strict")
    expected = ["passed", "failed", "error"]
    assert list(finished.outcomes.values()) == (expected if stops else [*expected, "passed", "passed", "passed"])
    assert ("execution_policy.stop_on_runner_error of 'strict'" in finished.text) == stops
    started = len(bench.lines("started.txt"))
    assert 3 <= started <= 2 + at_once if stops else started == 6


def test_an_error_of_a_case_is_no_runner_error(bench):
    bench.agent(ONE_AFTER_ANOTHER)
    bench.profile("strict", policy={"stop_on_runner_error": "first"})
    unknown_cost = {"check_id": "cost", "declarative": {"kind": "max_cost_usd", "usd": 1.0}}
    bench.case("a", metadata={"says": "Paris"}, deterministic_checks=[unknown_cost])
    bench.case("b", metadata={"says": "Paris"}, deterministic_checks=None)
    bench.case("c", metadata={"says": "Paris"})
    finished = bench.run("--agentbench-run-profile", "strict")
    assert list(finished.outcomes.values()) == ["error", "error", "passed"]


@pytest.mark.parametrize(
    ("policy", "args"),
    [
        ({"fail_fast": True, "max_concurrency": 1}, ()),
        ({"fail_fast": True, "max_concurrency": 1}, ("--agentbench-concurrency", "1")),
        ({"max_concurrency": 1}, ("-x",)),
    ],
)
def test_nothing_is_asked_past_a_stop_where_runs_are_made_one_at_a_time(bench, policy, args):
    bench.agent(ONE_AFTER_ANOTHER)
    bench.profile("strict", policy=policy)
    for number in range(6):
        bench.case(f"case{number:02}", metadata={"says": "Rome" if number == 2 else "Paris"})
    finished = bench.run("--agentbench-run-profile", "strict", *args)
    assert finished.outcomes == {"case00[agent]": "passed", "case01[agent]": "passed", "case02[agent]": "failed"}
    assert len(bench.lines("started.txt")) == 3


@pytest.mark.slow
@pytest.mark.parametrize(("args", "most"), [((), 16), (("--agentbench-concurrency", "5"), 5)])
def test_as_many_runs_are_in_flight_as_allowed(bench, args, most):
    bench.agent(COUNTING)
    bench.questions(60)
    assert bench.run(*args).exit == 0
    assert bench.lines("most.txt") == [str(most)]


def test_max_concurrency_of_the_profile_is_the_limit(bench):
    bench.agent(COUNTING)
    bench.profile("narrow", policy={"max_concurrency": 3})
    bench.questions(30)
    assert bench.run("--agentbench-run-profile", "narrow").exit == 0
    assert bench.lines("most.txt") == ["3"]


COSTLY = (
    HEAD
    + """
async def agent(case):
    note("started.txt", case.case_id)
    await asyncio.sleep(0)
    return RunOutput(output="Paris", usage=Usage(cost_usd=COST))
"""
)


@pytest.mark.slow
@pytest.mark.parametrize("workers", SOME_SLOW)
def test_a_used_up_budget_skips_the_rest(bench, workers):
    bench.agent(COSTLY.replace("COST)", "0.5)"))
    bench.questions(200)
    finished = bench.run("--agentbench-max-cost", "2", "--agentbench-concurrency", "2", *workers)
    assert finished.exit == 1
    totals = finished.report["totals"]
    assert totals["runs"] == 200
    assert totals["passed"] + totals["skipped"] == 200
    if not workers:
        assert 4 <= totals["passed"] <= 6  # what was in flight may still end
    assert len(bench.lines("started.txt")) < 200
    skipped = [row for row in finished.runs.values() if row["outcome"] == "skipped"]
    assert {"--agentbench-max-cost" in row["message"] for row in skipped} == {True}
    assert any("the budget is used up" in text for text in finished.report["session"]["warnings"])


def test_unknown_costs_are_not_taken_for_nothing(bench):
    bench.agent(COSTLY.replace("COST)", "None)"))
    bench.questions(3)
    finished = bench.run("--agentbench-max-cost", "2")
    assert finished.exit == 0
    assert any("the cost of 3" in text for text in finished.report["session"]["warnings"])


DYING = """
from pytest_agentbench.engine import lookahead

pump = lookahead.LookAhead._pump

def broken(self):
    if len(self.done) + self.at > 5:
        raise MemoryError("the scheduler broke")
    pump(self)

lookahead.LookAhead._pump = broken
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", SOME_SLOW)
def test_a_dead_engine_is_an_error_of_each_pending_item(bench, workers):
    bench.agent(ONE_AFTER_ANOTHER + DYING)
    bench.questions(40)
    finished = bench.spawn("--agentbench-concurrency", "4", *workers, timeout=30)
    assert finished.exit == 1
    outcomes = list(finished.outcomes.values())
    assert len(outcomes) == 40
    assert set(outcomes) == {"passed", "error"}
    messages = {row["message"] for row in finished.runs.values() if row["outcome"] == "error"}
    assert all("the engine died" in message and "the scheduler broke" in message for message in messages)


@pytest.mark.slow
@pytest.mark.parametrize("workers", SOME_SLOW)
def test_interrupt_ends_soon_and_keeps_what_is_done(bench, workers):
    bench.agent(
        HEAD
        + """
async def agent(case):
    if int(case.case_id.split("q")[1]) < 10:
        return "Paris"
    note("blocked.txt", case.case_id)
    try:
        await asyncio.Event().wait()
    finally:
        note("cancelled.txt", case.case_id)
"""
    )
    bench.questions(100)
    options = ("-v", "--agentbench-concurrency=8", "--agentbench-grace=0")
    command = [sys.executable, "-m", "pytest", *LEAN, *options, *workers]
    process = subprocess.Popen(
        command, cwd=bench.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    said = []
    for line in process.stdout:
        said.append(line)
        if sum("PASSED" in line for line in said) == 10:
            break
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: workers get it too
    said.append(process.communicate(timeout=15)[0])
    assert process.returncode == 2, "".join(said)
    assert "KeyboardInterrupt" in "".join(said)
    report = json.loads((bench.path / "outputs/report.json").read_text())
    assert [row["outcome"] for row in report["runs"]] == ["passed"] * 10
    assert report["session"]["exit_status"] == 2
    assert report["session"]["warnings"] == []
    assert len(list((bench.path / "outputs/runs").rglob("run_1.json"))) == 10
    assert sorted(bench.lines("cancelled.txt")) == sorted(bench.lines("blocked.txt"))


@pytest.mark.slow
def test_an_interrupt_is_told_where_python_knows_no_line(bench):
    """CPython 3.11 gives jumps back to a loop's head no line; pytest cannot show a traceback that has one."""
    bench.agent(
        HEAD
        + """
def agent(case):
    return "Paris"

def interrupt():
    raise KeyboardInterrupt

interrupt.__code__ = interrupt.__code__.replace(co_linetable=b"")

@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item):
    if "q3" in item.name:
        interrupt()
"""
    )
    bench.questions(10)
    finished = bench.spawn()
    assert finished.exit == 2
    assert "KeyboardInterrupt" in finished.text
    assert finished.report["session"]["exit_status"] == 2
    assert list(finished.outcomes.values()) == ["passed"] * 4


@pytest.mark.slow  # it is waited for some seconds
def test_an_agent_that_swallows_cancellation_does_not_block_the_session(bench):
    bench.agent(
        HEAD
        + """
async def agent(case):
    if case.case_id.endswith("q0"):
        return "Rome"
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
"""
    )
    bench.questions(5)
    finished = bench.spawn("-x", timeout=30)
    assert finished.exit == 1
    assert finished.outcomes == {"cases/many.q0[agent]": "failed"}


@pytest.mark.slow
def test_a_blocking_coroutine_holds_up_only_the_engine(bench):
    bench.agent(
        HEAD
        + """
async def agent(case):
    if case.case_id.endswith("q3"):
        time.sleep(0.3)
    return "Paris"
"""
    )
    bench.questions(8)
    assert bench.run().report["totals"]["passed"] == 8


@pytest.mark.slow
def test_items_keep_their_own_results_in_any_order(bench):
    bench.agent(
        HEAD
        + """
async def agent(case):
    await asyncio.sleep(len(case.case_id) % 7 / 1000)
    return case.case_id

def pytest_collection_modifyitems(items):
    items.reverse()
"""
    )
    bench.rows("cases/many.jsonl", *({"id": f"q{i}", "question": "?", "answer": f"cases/many.q{i}"} for i in range(50)))
    finished = bench.run()
    assert finished.report["totals"]["passed"] == 50


def test_other_tests_run_beside_cases(bench):
    bench.agent(ONE_AFTER_ANOTHER)
    bench.questions(3)
    bench.write("test_a.py", "def test_a(): pass\n")
    bench.write("tests/test_z.py", "def test_z(): assert 0\n")
    finished = bench.run()
    finished.result.assert_outcomes(passed=4, failed=1)
    assert finished.report["totals"]["runs"] == 3
