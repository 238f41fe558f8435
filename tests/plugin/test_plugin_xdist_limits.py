"""Limits hold over all of xdist's workers together: measured where the requests arrive."""

from __future__ import annotations

import pytest
from support.bench import HEAD
from support.fault_endpoint import FaultEndpoint

pytestmark = pytest.mark.slow

TIMED = (
    HEAD
    + """
async def agent(case):
    begun = time.monotonic()
    await asyncio.sleep(0.05)
    note("flights.txt", f"{begun} {time.monotonic()}")
    return "Paris"
"""
)
"""An agent that notes when each of its runs began and ended, on a clock that all processes share."""


def limited(bench, endpoint, questions, **limits):
    """A project of questions to the endpoint's model."""
    model = {"model_id": "local", "base_url": endpoint.base_url, "api_key_env": "none", "limits": limits}
    bench.models(model)
    bench.questions(questions, answer="answer")
    return ("--model=local", "--agentbench-metric=contains_answer>=0")


def crowded(times, seconds):
    """The most requests in any stretch of so many seconds."""
    return max(sum(start <= at < start + seconds for at in times) for start in times)


def most_at_once(bench):
    """The most runs that were in flight at a time, from what TIMED noted."""
    flights = [tuple(map(float, line.split())) for line in bench.lines("flights.txt")]
    return max(sum(begun <= at < ended for begun, ended in flights) for at, _ in flights), len(flights)


def test_one_rate_holds_for_all_workers(bench):
    with FaultEndpoint() as endpoint:
        finished = bench.run(*limited(bench, endpoint, 50, rpm=600), "-n", "3")
        times = [request.at for request in endpoint.requests]
    assert finished.report["totals"]["passed"] == len(times) == 50
    warm = [at - times[0] for at in times if at > times[0] + 2]  # a worker's first request is as late as its imports
    assert crowded(warm, 1) <= 10 + 5  # late by half a second, where the machine is busy with other things
    assert crowded(warm, 3) <= 30 + 5
    assert 4.9 - 2 <= times[-1] - times[0] < 7  # all of the rate was used


def test_a_worker_gets_the_whole_rate_while_the_others_are_idle(bench):
    with FaultEndpoint() as endpoint:
        args = limited(bench, endpoint, 40, rpm=600)
        bench.write("test_plain.py", "def test_plain(): pass\n")
        finished = bench.run(*args, "-n", "3", "--dist", "loadfile")  # one file goes to one worker
        times = [request.at for request in endpoint.requests]
    assert finished.report["totals"]["passed"] == len(times) == 40
    assert 3.9 - 0.3 <= max(times) - min(times) < 8  # a third of the rate would take 12 seconds


@pytest.mark.parametrize("declared", [1, 5])
def test_declared_requests_at_once_hold_for_all_workers(bench, declared):
    with FaultEndpoint(latency=0.05) as endpoint:
        args = limited(bench, endpoint, 60, max_concurrency=declared)
        finished = bench.run(*args, "-n", "3", "--agentbench-concurrency", "16")
    assert finished.report["totals"]["passed"] == len(endpoint.requests) == 60
    assert endpoint.peak == declared


def test_tokens_per_minute_hold_for_all_workers(bench):
    with FaultEndpoint() as endpoint:  # each reply is of 15 tokens
        finished = bench.run(*limited(bench, endpoint, 40, tpm=6000), "-n", "3")
        times = [request.at for request in endpoint.requests]
    assert finished.report["totals"]["passed"] == 40
    assert max(times) - min(times) > (40 * 15 - 100 - 16 * 15) / 100  # 100 a second, 100 at once, 16 not yet settled


@pytest.mark.parametrize("concurrency", [1, 5])
def test_runs_at_once_hold_for_all_workers(bench, concurrency):
    bench.agent(TIMED)
    bench.questions(runs := 40 * concurrency)  # two seconds: a worker may be late
    finished = bench.run("-n", "3", "--agentbench-concurrency", str(concurrency))
    assert finished.report["totals"]["passed"] == runs
    assert most_at_once(bench) == (concurrency, runs)


def test_the_narrower_of_two_profiles_holds_for_all_workers(bench):
    bench.agent(TIMED)
    bench.profile("narrow", policy={"max_concurrency": 2})
    bench.questions(40)
    finished = bench.run("-n", "3", "--agentbench-run-profile", "narrow")
    assert finished.report["totals"]["passed"] == 40
    assert most_at_once(bench) == (2, 40)


def test_a_crashed_worker_gives_its_places_back(bench):
    bench.agent(
        TIMED.replace(
            "    await asyncio", "    if case.case_id.endswith('.q7'):\n        os._exit(7)\n    await asyncio"
        )
    )
    bench.questions(40)
    finished = bench.run("-n", "3", "--agentbench-concurrency", "3")
    assert [name for name, outcome in finished.outcomes.items() if outcome != "passed"] == ["cases/many.q7[agent]"]
    assert len(finished.runs) == 40
    assert most_at_once(bench)[0] <= 3


def test_a_rate_and_a_limit_hold_while_the_endpoint_says_429(bench):
    with FaultEndpoint(latency=0.05, capacity=2) as endpoint:
        finished = bench.run(*limited(bench, endpoint, 40, max_concurrency=8, rpm=6000), "-n", "3")
    assert finished.report["totals"]["passed"] == 40
    assert endpoint.peak <= 8
    assert endpoint.faults["429"] < 40  # the controller has learnt from one worker's 429 for all


def test_a_policy_stops_workers_that_are_busy(bench):
    bench.agent(
        HEAD
        + """
async def agent(case):
    note("started.txt", case.case_id)
    if case.case_id != "case00":
        await asyncio.Event().wait()
    return "Rome"
"""
    )
    bench.profile("strict", policy={"fail_fast": True, "max_concurrency": 8})
    for number in range(80):
        bench.case(f"case{number:02}")
    finished = bench.run("--agentbench-run-profile=strict", "-n", "3")
    assert finished.exit != 0
    assert finished.outcomes["case00[agent]"] == "failed"
    assert "execution_policy.fail_fast of run profile 'strict'" in finished.text
    assert len(bench.lines("started.txt")) <= 3 * 2 * 9  # two in flight each, and what a worker's window holds


def test_a_budget_holds_for_all_workers(bench):
    bench.agent(
        HEAD
        + """
async def agent(case):
    note("started.txt", case.case_id)
    await asyncio.sleep(0.3)
    return RunOutput(output="Paris", usage=Usage(cost_usd=1.0))
"""
    )
    bench.questions(80)
    finished = bench.run("-n", "3", "--agentbench-concurrency=4", "--agentbench-max-cost=6")
    totals = finished.report["totals"]
    assert finished.exit == 1
    assert totals["passed"] + totals["skipped"] == 80
    assert totals["passed"] == totals["spent_usd"]["run"] == len(bench.lines("started.txt"))
    assert 6 <= totals["passed"] <= 6 + 4 + 4  # the four in flight, and four more that began before they were told
