from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import jsonschema
import pytest
from support.bench import HEAD, LEAN, check
from support.fault_endpoint import FaultEndpoint

from pytest_agentbench.reports.reading import report_schema

SOME_SLOW = [
    pytest.param((), id="serial"),
    pytest.param(("-n", "2"), id="workers", marks=pytest.mark.slow),
]
PRICES = {"input_per_1m": 100_000, "output_per_1m": 0}  # a reply has 10 input and 5 output tokens: 1 USD
PARIS = {"role": "assistant", "content": "Paris"}
TOKENS = (
    HEAD
    + """
async def agent(case):
    note("started.txt", case.case_id)
    await asyncio.sleep(0)
    return RunOutput(output="Paris", usage=Usage(input_tokens=60, output_tokens=40, cost_usd=0.5))
"""
)
GATED = (
    HEAD
    + """
async def agent(case):
    note("started.txt", case.case_id)
    while not os.path.exists('go'):
        await asyncio.sleep(0.01)
    note("ended.txt", case.case_id)
    return RunOutput(output="Paris", usage=Usage(cost_usd=1.0))
"""
)
"""An agent that waits until the file `go` is there."""


def but_the_first(answer):
    """The same, but for the first case: it is answered at once and costs 1 USD."""
    at_once = f"if case.case_id.endswith('q0'): return RunOutput(output={answer!r}, usage=Usage(cost_usd=1.0))"
    return GATED.replace("while not", f"{at_once}\n    while not")


def model(bench, endpoint, **fields):
    bench.models({"model_id": "local", "base_url": endpoint.base_url, "api_key_env": "none", **fields})


@pytest.mark.slow
@pytest.mark.parametrize("workers", SOME_SLOW)
@pytest.mark.parametrize(
    ("limit", "reason"),
    [("--agentbench-max-cost=2", "of 2.0000 USD"), ("--agentbench-max-tokens=400", "of 400 tokens")],
)
def test_a_limit_ends_what_is_in_flight_and_skips_the_rest(bench, limit, reason, workers):
    bench.agent(TOKENS)
    bench.questions(200)
    finished = bench.run(limit, "--agentbench-concurrency=2", *workers)
    jsonschema.validate(finished.report, report_schema())
    started, totals = len(bench.lines("started.txt")), finished.report["totals"]
    assert finished.exit == 1
    assert totals["passed"] == started  # nothing that was begun is thrown away
    assert totals["skipped"] == 200 - started
    assert totals["spent_usd"]["run"] == pytest.approx(0.5 * started)
    if not workers:
        assert 4 <= started <= 6
    [message] = {row["message"] for row in finished.runs.values() if row["outcome"] == "skipped"}
    assert "not run: the budget is used up" in message
    assert reason in message
    [warning] = finished.report["session"]["warnings"]
    assert warning.endswith(f"{200 - started} runs were not started")


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "workers"), [(2, ()), (12, ("-n", "2"))], ids=["serial", "workers"])
def test_a_session_whose_time_is_up_starts_nothing_more(bench, limit, workers):
    bench.agent(GATED.replace("while not os.path.exists('go')", f"for _ in range({100 * limit})"))
    bench.questions(100)
    finished = bench.run(f"--agentbench-max-seconds={limit}", "--agentbench-concurrency=2", *workers)
    assert finished.exit == 1
    assert len(bench.lines("started.txt")) == len(bench.lines("ended.txt")) == 2
    totals = finished.report["totals"]
    assert (totals["passed"], totals["skipped"]) == (2, 98)
    assert f"the time is used up: {limit} s (--agentbench-max-seconds); 98 runs were not started" in finished.text


@pytest.mark.parametrize("workers", SOME_SLOW)
def test_a_time_that_is_up_before_the_first_run_skips_all(bench, workers):
    bench.agent(TOKENS)
    bench.questions(10)
    finished = bench.run("--agentbench-max-seconds=0.000001", *workers)
    assert (finished.exit, finished.report["totals"]["skipped"]) == (1, 10)
    assert bench.lines("started.txt") == []


def test_a_limit_that_the_last_run_reaches_has_stopped_nothing(bench):
    bench.agent(TOKENS)
    bench.questions(4)
    finished = bench.run("--agentbench-max-cost=2")
    assert finished.exit == 0
    assert finished.report["session"]["warnings"] == []


def test_tokens_that_nobody_told_are_said(bench):
    bench.agent()
    bench.questions(3)
    finished = bench.run("--agentbench-max-tokens=10")
    assert finished.exit == 0
    [warning] = finished.report["session"]["warnings"]
    assert "the tokens of 3 requests are unknown" in warning


def test_a_gate_fails_where_the_budget_kept_cases_from_running(bench):
    bench.agent(TOKENS)
    bench.questions(50)
    finished = bench.run("--agentbench-max-cost=2", "--agentbench-concurrency=2", "--agentbench-fail-under=0.5")
    assert finished.exit == 1
    [reason] = finished.report["session"]["gate"]["reasons"]
    assert "The session stopped early: the budget is used up" in reason


@pytest.mark.slow
def test_reused_runs_cost_no_budget(bench):
    bench.questions(6)
    with FaultEndpoint(answer=lambda _: PARIS) as endpoint:
        model(bench, endpoint, prices=PRICES)
        args = ("--model=local", "--agentbench-max-cost=2", "--agentbench-concurrency=1")
        sessions = [bench.run(*args) for _ in range(4)]
        assert len(endpoint.requests) == 6
    totals = [session.report["totals"] for session in sessions]
    assert [each["reused"] for each in totals] == [0, 2, 4, 6]
    assert [each["skipped"] for each in totals] == [4, 2, 0, 0]
    assert [each["spent_usd"]["run"] for each in totals] == [2, 2, 2, 0]
    assert [each["cost_usd"]["run"] for each in totals] == [2, 4, 6, 6]
    assert [session.exit for session in sessions] == [1, 1, 0, 0]
    assert "6 reused" in sessions[3].text
    assert "cost: run $6.00; of that paid now: $0.0000" in sessions[3].text


@pytest.mark.slow
def test_new_verdicts_of_reused_runs_are_counted_in_every_report(bench):
    bench.agent()
    for case_id in ("a", "b", "c"):
        bench.case(case_id)
    bench.run()
    bench.case("a", deterministic_checks=[check("capital", kind="regex_match", pattern="Par")])
    bench.case("b", metadata={"says": "Paris!"})
    finished = bench.run("--junit-xml=junit.xml")
    totals = finished.report["totals"]
    assert (totals["reused"], totals["rejudged"]) == (2, 1)
    marks = {name: (row["reused"], row["evaluation_reused"]) for name, row in finished.runs.items()}
    assert marks == {"a[agent]": (True, False), "b[agent]": (False, False), "c[agent]": (True, True)}
    assert "2 of 3 runs reused (1 judged anew)" in finished.text
    assert "3 runs: 3 passed, 2 reused (1 judged anew)" in finished.text
    junit = (bench.path / "junit.xml").read_text()
    assert junit.count('<property name="agentbench.reused" value="True"') == 2
    assert junit.count('<property name="agentbench.evaluation_reused" value="True"') == 1
    assert '<property name="agentbench.reused" value="2"' in junit
    assert '<property name="agentbench.rejudged" value="1"' in junit


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["serial", "workers"])
def test_an_interrupt_does_not_wait_for_what_a_budget_lets_end(bench, workers):
    bench.agent(but_the_first("Paris"))
    bench.questions(60)
    options = ("-v", "--agentbench-concurrency=8", "--agentbench-max-cost=1", "--agentbench-grace=0")
    command = [sys.executable, "-m", "pytest", *LEAN, *options]
    process = subprocess.Popen(
        [*command, *workers],
        cwd=bench.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    said = next(line for line in process.stdout if "PASSED" in line)
    os.killpg(process.pid, signal.SIGINT)
    said += process.communicate(timeout=15)[0]
    assert process.returncode == 2, said
    report = json.loads((bench.path / "outputs/report.json").read_text())
    assert report["session"]["exit_status"] == 2
    assert report["totals"]["passed"] == 1
    assert bench.lines("ended.txt") == []


@pytest.mark.slow
@pytest.mark.parametrize("workers", SOME_SLOW)
def test_a_failure_under_x_ends_a_session_that_drains(bench, workers):
    bench.agent(but_the_first("Rome"))
    bench.questions(40)
    finished = bench.spawn("-x", "--agentbench-max-cost=1", "--agentbench-concurrency=4", *workers, timeout=30)
    assert finished.exit in (1, 2)  # pytest-xdist ends with 2
    assert finished.outcomes["cases/many.q0[agent]"] == "failed"
    assert bench.lines("ended.txt") == []
