"""Batches: requests that stand alone, sent together to services on loopback, and found again by later sessions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.batch_server import KEY, BatchServer
from support.bench import LEAN
from support.stored import find_stored, list_stored

from pytest_agentbench.models.batches import collector, jobs

ITEMS = "abcd"
FAST = """
from pytest_agentbench.models.batches import collector
collector.PACE = collector.Pace(quiet=2, first=0.05, longest=0.05)
"""
KILL_AT_THE_THIRD_RUN = (
    FAST
    + """
import os, signal
from pytest_agentbench.store.artifacts import ModelStore, Writes
stored, put_run = [], ModelStore._put_run
def killed_put_run(model_store, *args):
    if len(stored) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    stored.append(put_run(model_store, *args))
    return stored[-1]
ModelStore._put_run = killed_put_run
"""
)


ONE_BY_ONE = """
async def make(writes, write):
    return write()
Writes.make = make
"""


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
    monkeypatch.setattr(collector, "PACE", collector.Pace(quiet=0.2, first=0.02, longest=0.02))
    monkeypatch.setenv("BATCH_KEY", KEY)


def project(bench, server, items=ITEMS, **entry):
    fields = {"model_id": "m", "base_url": server.base_url, "api_key_env": "BATCH_KEY", "batch": server.api}
    bench.models({**fields, "prices": {"input_per_1m": 100, "output_per_1m": 1000}, **entry})
    bench.rows("cases/sums.jsonl", *({"id": each, "question": f"2+2? item {each}", "answer": "4"} for each in items))


def run(bench, *args):
    return bench.run("--model", "m", *args)


def outcomes(finished):
    return {name.removeprefix("sums.").removesuffix("[m]"): each for name, each in finished.outcomes.items()}


def failed_line(status, code, message="no"):
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return {"response": {"status_code": status, "request_id": "q", "body": {"error": error}}, "error": None}


def lost_line(code):
    return {"response": None, "error": {"code": code, "message": "not run"}}


ALL_PASSED = dict.fromkeys(ITEMS, "passed")


def jobs_left(bench):
    return [*jobs.read_jobs(bench.path / "outputs")]


def load_scenarios():
    """What services were reported to answer, but for sessions that are killed: those are tests of their own."""
    path = Path(__file__).parents[3] / "shared" / "data" / "providers" / "batch.json"
    found = json.loads(path.read_text())["scenarios"] if path.is_file() else []
    return {each["id"].removeprefix("batch."): each for each in found if "kill" not in each["must"]}


SCENARIOS = load_scenarios()


@pytest.mark.slow
@pytest.mark.skipif(not SCENARIOS, reason="the providers' replies are not beside this checkout")
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_ends_as_it_must(bench, name):
    scenario = SCENARIOS[name]
    must, api = scenario["must"], scenario["api"]
    said = [*(scenario["output"] or ()), *(scenario["errors"] or ())]
    lines = dict.fromkeys(ITEMS, "missing") | {each.get("custom_id") or each["key"]: each for each in said}
    entry = {}
    if param := scenario.get("batch_param"):
        for line in lines.values():
            line["response"]["body"]["error"]["param"] = param
        entry = {"parameters": {"max_tokens": 50}, "dialect_overrides": {"limit": "max_tokens"}}
    errors = tuple(scenario.get("batch_errors", ()))
    with BatchServer(api, states=tuple(scenario["states"]), lines=lines, errors=errors) as server:
        project(bench, server, **entry)
        finished = run(bench)
        counts = {"creates": server.creates, "uploads": len(server.files), "direct_requests": sorted(server.direct)}
        assert server.problems == []
    wanted = {each: must["items"].get(each, must.get("others", "")) for each in ITEMS}
    rows = {each: finished.runs[f"sums.{each}[m]"] for each in ITEMS}
    assert {each: row["end_reason"] for each, row in rows.items()} == {
        each: end.partition(" ")[0].rstrip(":") for each, end in wanted.items()
    }
    assert all("batch_cancelled" in rows[each]["message"] for each, end in wanted.items() if "cancelled" in end)
    assert counts.items() >= {key: must[key] for key in counts if key in must}.items()
    if "second_batch" in must:
        assert server.items_of(1) == must["second_batch"]
    if "cost_factor" in must:
        assert {row["cost_usd"]["run"] for row in rows.values()} == {0.006 * must["cost_factor"]}
    if "adapted" in must:
        assert {row["adapted"][0] for row in rows.values()} == {must["adapted"]}


@pytest.mark.slow
def test_all_requests_of_a_model_go_in_one_batch_at_half_the_price(bench):
    states = ("validating", "in_progress", "finalizing", "completed")
    with BatchServer(states=states) as server:
        project(bench, server)
        finished = run(bench)
        assert (len(server.files), server.creates, server.direct) == (1, 1, [])
    assert outcomes(finished) == ALL_PASSED
    # 10 tokens for 100 USD a million and 5 for 1,000, halved
    assert [row["cost_usd"]["run"] for row in finished.runs.values()] == [pytest.approx(0.003)] * 4
    stored = [json.loads(each.read_text()) for each in find_stored(bench.path / "outputs", "run_1.json")]
    assert {each["provider"]["batch"]["id"] for each in stored} == {"batch_0"}
    assert jobs_left(bench) == []


@pytest.mark.slow
def test_the_option_takes_models_whose_endpoint_has_batches_and_names_the_others(bench):
    with BatchServer() as server:
        project(bench, server, batch=None, dialect="openai")
        assert outcomes(run(bench, "--agentbench-batch")) == ALL_PASSED
        assert server.creates == 1
        project(bench, server, batch=None)
        finished = run(bench, "--agentbench-batch", "--agentbench-no-reuse")
        assert (outcomes(finished), server.creates, len(server.direct)) == (ALL_PASSED, 1, 4)
    assert "its endpoint has no known batches: it is asked directly" in finished.text


def test_an_entry_that_wants_batches_of_an_unknown_endpoint_is_refused(bench):
    with BatchServer() as server:
        project(bench, server, batch="auto")
        finished = run(bench)
        assert (outcomes(finished), server.requests) == (dict.fromkeys(ITEMS, "error"), [])
    assert "set batch: openai, anthropic or gemini" in finished.text


@pytest.mark.slow
@pytest.mark.parametrize("code", ["context_length_exceeded", "invalid_prompt"])
def test_a_line_that_failed_ends_its_item_alone(bench, code):
    with BatchServer(states=("in_progress", "completed"), lines={"b": failed_line(400, code)}) as server:
        project(bench, server)
        finished = run(bench)
        assert (server.creates, server.direct) == (1, [])
    assert {name for name, each in outcomes(finished).items() if each == "passed"} == {"a", "c", "d"}
    assert outcomes(finished)["b"] in ("failed", "error")


@pytest.mark.slow
def test_a_batch_of_only_failed_lines_has_no_output_file(bench):
    lines = dict.fromkeys(ITEMS, failed_line(400, "invalid_prompt", "Invalid prompt: flagged"))
    with BatchServer(lines=lines) as server:
        project(bench, server)
        finished = run(bench)
        assert (server.creates, server.counts["downloads"]) == (1, 0)
    assert "passed" not in outcomes(finished).values()
    assert "flagged" in finished.text


@pytest.mark.slow
def test_lines_that_expired_go_in_a_second_batch(bench):
    lines = dict.fromkeys("cd", lost_line("batch_expired"))
    with BatchServer(states=("in_progress", "expired"), lines=lines) as server:
        project(bench, server)
        assert outcomes(run(bench)) == ALL_PASSED
        assert (server.creates, server.items_of(1), server.direct) == (2, ["c", "d"], [])
    assert jobs_left(bench) == []


@pytest.mark.slow
def test_a_batch_that_somebody_cancelled_is_not_made_again(bench):
    lines = dict.fromkeys("bcd", lost_line("batch_cancelled"))
    with BatchServer(states=("in_progress", "cancelling", "cancelled"), lines=lines) as server:
        project(bench, server)
        finished = run(bench)
        assert (server.creates, server.direct) == (1, [])
    assert outcomes(finished) == {"a": "passed", "b": "error", "c": "error", "d": "error"}
    assert "batch_cancelled" in finished.runs["sums.b[m]"]["message"]


@pytest.mark.slow
def test_a_refused_batch_is_an_error_of_each_of_its_runs(bench):
    errors = ({"code": "invalid_json_line", "line": 2, "message": "bad", "param": None},)
    with BatchServer(states=("validating", "failed"), errors=errors) as server:
        project(bench, server)
        finished = run(bench)
        assert (server.creates, server.direct) == (1, [])
    assert outcomes(finished) == dict.fromkeys(ITEMS, "error")
    assert "the batch was refused: invalid_json_line, line 2: bad" in finished.runs["sums.a[m]"]["message"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lines", "direct"),
    [
        ({"c": failed_line(429, "rate_limit_exceeded"), "d": failed_line(500, "server_error")}, ["c", "d"]),
        ({"d": {"response": {"status_code": 0, "request_id": "", "body": None}, "error": None}}, ["d"]),
        ({"d": "missing"}, ["d"]),
    ],
    ids=["429 and 500", "status 0", "missing"],
)
def test_few_lines_that_were_not_answered_are_asked_directly(bench, lines, direct):
    with BatchServer(lines=lines) as server:
        project(bench, server)
        finished = run(bench)
        assert (server.creates, sorted(server.direct)) == (1, direct)
    assert outcomes(finished) == ALL_PASSED
    # At the full price
    assert finished.runs["sums.d[m]"]["cost_usd"]["run"] == pytest.approx(0.006)


@pytest.mark.slow
def test_many_lines_that_were_not_answered_go_in_another_batch(bench, monkeypatch):
    monkeypatch.setattr(collector, "FEWEST", 2)
    with BatchServer(lines=dict.fromkeys("cd", failed_line(503, "overloaded"))) as server:
        project(bench, server)
        assert outcomes(run(bench)) == ALL_PASSED
        assert (server.creates, server.items_of(1), server.direct) == (2, ["c", "d"], [])


@pytest.mark.slow
def test_a_batch_that_is_gone_is_asked_directly(bench):
    with BatchServer(states=("in_progress", "404")) as server:
        project(bench, server)
        assert outcomes(run(bench)) == ALL_PASSED
        assert (server.creates, sorted(server.direct)) == (1, [*ITEMS])


@pytest.mark.slow
def test_anthropic_s_results_are_read(bench):
    too_long = {"type": "invalid_request_error", "message": "prompt is too long: 1 tokens > 0 maximum"}
    lines = {
        "b": {"result": {"type": "errored", "error": {"type": "error", "error": too_long}}},
        "c": {"result": {"type": "expired"}},
        "d": {"result": {"type": "canceled"}},
    }
    with BatchServer("anthropic", states=("in_progress", "ended"), lines=lines) as server:
        project(bench, server)
        finished = run(bench)
        assert (server.creates, server.items_of(1), server.direct) == (2, ["c"], [])
        assert server.batches[0]["requests"].popitem()[1]["max_tokens"] == 4096
    assert {outcomes(finished)[each] for each in "ac"} == {"passed"}
    assert finished.runs["sums.b[m]"]["end_reason"] == "context_exceeded"
    assert "batch_cancelled" in finished.runs["sums.d[m]"]["message"]


@pytest.mark.slow
@pytest.mark.parametrize(("entry", "version"), [({}, "2026-10-21"), ({"parameters": {"temperature": 0}}, "2023-06-01")])
def test_anthropic_s_batch_is_made_in_a_version_that_takes_its_lines(bench, entry, version):
    with BatchServer("anthropic", states=("ended",)) as server:
        project(bench, server, **entry)
        assert outcomes(run(bench)) == ALL_PASSED
        assert (server.creates, server.direct) == (1, [])
        assert server.versions[0] == version


@pytest.mark.slow
def test_gemini_s_results_are_read(bench):
    exceeded = "The input token count (9) exceeds the maximum number of tokens allowed (8)."
    lines = {
        "b": {"response": {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}},
        "c": {"error": {"code": 8, "message": "quota"}},
        "d": {"error": {"code": 3, "message": exceeded}},
    }
    states = ("JOB_STATE_PENDING", "JOB_STATE_RUNNING", "JOB_STATE_PARTIALLY_SUCCEEDED")
    with BatchServer("gemini", states=states, lines=lines) as server:
        project(bench, server)
        finished = run(bench)
        assert (server.creates, server.direct) == (1, ["c"])
    assert {outcomes(finished)[each] for each in "ac"} == {"passed"}
    ends = {each: finished.runs[f"sums.{each}[m]"]["end_reason"] for each in "bd"}
    assert ends == {"b": "filtered", "d": "context_exceeded"}


def spawn(bench, source, *args):
    bench.write("conftest.py", source)
    command = [sys.executable, "-m", "pytest", *LEAN, "-p", "no:cacheprovider", "--model", "m", *args]
    return subprocess.Popen(command, cwd=bench.path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("api", "moment"),
    [
        ("openai", "after upload"),
        ("openai", "after create"),
        ("openai", "while polling"),
        ("anthropic", "after create"),  # which uploads, too
        pytest.param("anthropic", "while polling", marks=pytest.mark.full),
        ("gemini", "after upload"),
        pytest.param("gemini", "after create", marks=pytest.mark.full),
        pytest.param("gemini", "while polling", marks=pytest.mark.full),
    ],
)
def test_a_session_that_was_killed_pays_for_nothing_twice(bench, api, moment):
    running = {"anthropic": "in_progress", "gemini": "JOB_STATE_RUNNING"}.get(api, "in_progress")
    done = {"anthropic": "ended", "gemini": "JOB_STATE_SUCCEEDED"}.get(api, "completed")
    places = {
        "openai": ("POST /v1/files", "POST /v1/batches", "GET /v1/batches/N"),
        "anthropic": ("", "POST /v1/messages/batches", "GET /v1/messages/batches/N"),
        "gemini": ("POST /upload/here", "POST /v1beta/models/m:batchGenerateContent", "GET /v1beta/batches/N"),
    }[api]
    moments = ("after upload", "after create", "while polling")
    with BatchServer(api, states=(running, running, done)) as server:
        project(bench, server)
        server.hold = places[moments.index(moment)]
        process = spawn(bench, FAST)
        try:
            assert server.holding.wait(60)
        finally:
            process.kill()
            process.wait()
        server.hold = None
        assert outcomes(run(bench)) == ALL_PASSED
        assert (server.creates, server.direct, server.items_of(0)) == (1, [], [*ITEMS])
        if api != "anthropic":
            assert len(server.files) == (2 if moment == "after upload" else 1)
    assert jobs_left(bench) == []


@pytest.mark.slow
# What answers at once is stored in one step: whole, or not at all
@pytest.mark.parametrize(("steps", "kept"), [(ONE_BY_ONE, 2), ("", 0)])
def test_a_session_that_was_killed_while_it_stored_reads_the_rest_again(bench, steps, kept):
    with BatchServer() as server:
        project(bench, server)
        process = spawn(bench, KILL_AT_THE_THIRD_RUN + steps)
        assert process.wait(60) == -signal.SIGKILL
        assert len(list_stored(bench.path / "outputs", "run_1.json")) == kept
        (bench.path / "conftest.py").unlink()
        finished = run(bench)
        assert (server.creates, server.direct, server.counts["downloads"]) == (1, [], 2)
    assert outcomes(finished) == ALL_PASSED
    assert finished.report["totals"]["reused"] == kept
    # Of those that had been stored nobody asks any more
    assert [len(each.ids) for each in jobs_left(bench)] == ([kept] if kept else [])


@pytest.mark.slow
def test_an_unfinished_batch_is_collected_by_a_later_session(bench):
    with BatchServer(states=("in_progress",)) as server:
        project(bench, server)
        finished = run(bench, "--agentbench-batch-wait", "0.5")
        assert finished.exit == 1
        assert outcomes(finished) == dict.fromkeys(ITEMS, "error")
        assert "4 items wait in batch_0; run again to collect" in finished.text
        listed = agentbench("batch", "list", bench)
        server.states = ("completed",)
        # Of another choice of cases each session takes its own
        assert outcomes(run(bench, "-k", "sums.b")) == {"b": "passed"}
        assert [len(each.ids) for each in jobs_left(bench)] == [3]
        assert outcomes(run(bench)) == ALL_PASSED
        assert (server.creates, server.direct) == (1, [])
    assert "batch_0" in listed.stdout
    assert "4 requests" in listed.stdout
    assert jobs_left(bench) == []


def agentbench(*args):
    *words, bench = args
    command = [sys.executable, "-m", "pytest_agentbench.cli", *words, "--output", str(bench.path / "outputs")]
    return subprocess.run(command, capture_output=True, text=True, cwd=bench.path, env={**os.environ})


@pytest.mark.slow
def test_a_job_is_cancelled_by_its_name(bench):
    with BatchServer(states=("in_progress",)) as server:
        project(bench, server)
        run(bench, "--agentbench-batch-wait", "0.3")
        [job] = jobs_left(bench)
        done = agentbench("batch", "cancel", job.job, "--cases", "cases", bench)
        assert done.returncode == 0, done.stderr
        assert server.batches[0]["cancelled"]
        unknown = agentbench("batch", "cancel", "nope", bench)
    assert unknown.returncode == 1
    assert "nope" in unknown.stderr
    assert job.job in unknown.stderr


@pytest.mark.slow
def test_repetitions_are_requests_of_their_own(bench):
    with BatchServer() as server:
        project(bench, server, items="a")
        run(bench, "--agentbench-repetitions", "3")
        assert server.items_of(0) == ["a", "a", "a"]
        assert len(set(server.batches[0]["items"])) == 3


def test_a_request_for_a_tool_goes_directly(bench):
    with BatchServer() as server:
        project(bench, server)
        for path in (bench.path / "cases").glob("*.jsonl"):
            path.unlink()
        messages = [{"role": "user", "content": "2+2? item t"}]
        bench.case("t", input={"messages": messages, "context": {"llm_probe": {"tools": ["read_file"]}}})
        run(bench)
        assert (server.creates, server.direct) == (0, ["t"])


@pytest.mark.slow
def test_judges_are_asked_in_batches_and_again_directly(bench):
    with BatchServer(answer=json.dumps({"correct": True, "reason": "yes"})) as server:
        project(bench, server, items="")
        bench.agent()
        metric = {"name": "llm_judgement", "args": {"model": "m", "repetitions": 3}, "threshold": 1}
        for name in "ab":
            messages = [{"role": "user", "content": f"The capital? item {name}"}]
            bench.case(
                name, reference="Paris", metrics=[metric], deterministic_checks=None, input={"messages": messages}
            )
        finished = bench.run()
        assert (server.creates, server.items_of(0), server.direct) == (1, ["a"] * 3 + ["b"] * 3, [])
    assert set(finished.outcomes.values()) == {"passed"}


@pytest.mark.slow
def test_a_service_that_refuses_the_key_ends_all_items(bench, monkeypatch):
    monkeypatch.setenv("BATCH_KEY", "sk-wrong")
    with BatchServer() as server:
        project(bench, server)
        finished = run(bench)
        assert (server.creates, server.direct) == (0, [])
    assert outcomes(finished) == dict.fromkeys(ITEMS, "error")
    assert "Incorrect API key provided" in finished.text
    assert jobs_left(bench) == []


@pytest.mark.slow
def test_a_creation_that_was_not_answered_is_looked_for_before_another(bench):
    with BatchServer() as server:
        project(bench, server)
        server.refuse["POST /v1/batches"] = 503
        finished = run(bench)
        assert outcomes(finished) == dict.fromkeys(ITEMS, "error")
        assert [each for each in server.requests if each == ("GET", "/v1/batches")]


def test_a_job_that_cannot_be_read_stops_who_could_pay_again(bench):
    with BatchServer() as server:
        project(bench, server)
        bench.write("outputs/.agentbench/batches/bad.json", "{")
        finished = run(bench)
        assert (server.creates, server.direct) == (0, [])
    assert "bad.json: found no job of a batch" in finished.text


@pytest.mark.slow
def test_the_limit_of_a_forecast_goes_by_the_name_of_its_protocol(bench):
    with BatchServer() as server:
        project(bench, server, parameters={"max_tokens": 20}, api="responses")
        run(bench, "--agentbench-max-cost", "0.02", "--agentbench-concurrency=1")
        assert len(server.batches[0]["items"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("most", ["0.02", "100"])
def test_waiting_requests_of_a_batch_count_at_their_forecast(bench, most):
    with BatchServer() as server:
        # 1,000 USD a million and at most 20 tokens, halved: 0.01 each, and a little for the question
        project(bench, server, parameters={"max_tokens": 20})
        finished = run(bench, "--agentbench-max-cost", most, "--agentbench-concurrency=1")
        asked = sum(len(batch["items"]) for batch in server.batches)
    few = most == "0.02"
    assert asked == (2 if few else 4)
    assert sum(outcome == "passed" for outcome in outcomes(finished).values()) == asked
    assert ("foreseen for batches of 0.0200 USD (--agentbench-max-cost)" in finished.text) is few
