"""The end of a session by a signal: requests in flight end and are stored, and nothing more is asked of a model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.bench import HEAD, LEAN, Bench
from support.fault_endpoint import FaultEndpoint, in_order

from pytest_agentbench.records.base import DIMENSIONS

pytestmark = pytest.mark.slow
COUNT, AT_ONCE = 20, 4
SECONDS = 2.0
"""How long the endpoint takes to answer what is in flight at the signal."""
PARIS = {"role": "assistant", "content": "Paris"}
BY_GATEWAY = (
    HEAD
    + """
import httpx2

async def agent(case, context):
    async with httpx2.AsyncClient(timeout=60) as http:
        response = await http.post(
            context.gateway.openai_base_url + "/chat/completions",
            json={"model": context.gateway.model, "messages": [{"role": "user", "content": case.messages[0].content}]},
            headers={"authorization": f"Bearer {context.gateway.key}"},
        )
    return response.json()["choices"][0]["message"]["content"]
"""
)


@pytest.fixture
def endpoint() -> Iterator[FaultEndpoint]:
    with FaultEndpoint(latency=SECONDS, answer=lambda body: PARIS) as served:
        yield served


def prepare(bench: Bench, endpoint: FaultEndpoint) -> None:
    bench.questions(COUNT)
    bench.models({"model_id": "m", "base_url": endpoint.base_url, "api_key_env": "none"})


@contextmanager
def session(bench: Bench, endpoint: FaultEndpoint, *args: str, asked: int = AT_ONCE) -> Iterator[subprocess.Popen[str]]:
    """A session, once the endpoint has so many requests."""
    command = [sys.executable, "-m", "pytest", *LEAN, "--model=m", f"--agentbench-concurrency={AT_ONCE}", *args]
    with subprocess.Popen(
        command, cwd=bench.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            while len(endpoint.requests) < asked:
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(0.02)
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def asked_again(bench: Bench, endpoint: FaultEndpoint, *args: str) -> int:
    """How many requests the next session sends, all of which are answered at once."""
    endpoint.latency, before = 0.0, len(endpoint.requests)
    finished = bench.spawn("--model=m", *args)
    assert finished.report["totals"]["passed"] == COUNT, finished.text
    return len(endpoint.requests) - before


@pytest.mark.parametrize(
    ("number", "args"),
    [
        (signal.SIGTERM, ("-pno:xdist",)),
        (signal.SIGHUP, ("-pno:xdist",)),
        (signal.SIGINT, ("-pno:xdist",)),
        (signal.SIGTERM, ("-n2",)),
        (signal.SIGINT, ("-n2",)),
    ],
    ids=["term", "hup", "int", "term-n2", "int-n2"],
)
def test_runs_in_flight_at_a_signal_are_stored_and_not_paid_again(bench, endpoint, number, args):
    prepare(bench, endpoint)
    with session(bench, endpoint, *args) as process:
        paid = len(endpoint.requests)
        process.send_signal(number)
        text = process.communicate(timeout=30)[0]
    assert process.returncode == (2 if number == signal.SIGINT else 128 + number), text
    assert len(endpoint.requests) == paid, "something was asked after the signal"
    assert asked_again(bench, endpoint) == COUNT - paid


def test_runs_in_flight_in_a_worker_at_a_signal_are_not_paid_again(bench, endpoint):
    bench.write("conftest.py", "import os\ndef pytest_sessionstart():\n    open(f'{os.getpid()}.pid', 'w').close()\n")
    prepare(bench, endpoint)
    # Each worker begins three runs, and one goes on: meanwhile the other worker begins two, which do not end together.
    seconds = {4: 3, 5: 3, 6: 3, 7: 3, 8: 4, 9: 4}
    endpoint.latency, endpoint.delays = 1, {f"question {number}?": more - 1 for number, more in seconds.items()}
    with session(bench, endpoint, "-n2", "--agentbench-concurrency=6", asked=6) as process:
        [worker, *_] = [int(path.stem) for path in bench.path.glob("*.pid") if int(path.stem) != process.pid]
        os.kill(worker, signal.SIGTERM)
        began = time.monotonic()
        text = process.communicate(timeout=40)[0]
    assert process.returncode == 128 + signal.SIGTERM, text
    assert time.monotonic() - began < 18, "it waited for the worker that took the first one's place"
    paid = len(endpoint.requests)
    assert paid >= 8, "the other worker asks once more before it hears of the signal"
    assert asked_again(bench, endpoint) == COUNT - paid


PROGRAM = """
import json, os, sys
from urllib.request import Request, urlopen

body = {"model": os.environ["MODEL"], "messages": [{"role": "user", "content": sys.argv[-1]}]}
headers = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "content-type": "application/json"}
request = Request(f"{os.environ['OPENAI_BASE_URL']}/chat/completions", json.dumps(body).encode(), headers)
print(json.load(urlopen(request))["choices"][0]["message"]["content"])
"""
COMMAND = {
    "type": "command",
    "command": [sys.executable, "agent.py", "{message}"],
    "env": {"MODEL": "{model}"},
    "answer": {"from": "stdout"},
}


@pytest.mark.parametrize("kind", ["callable", "command"])
def test_an_agent_behind_the_gateway_gets_its_answer_and_is_stored(bench, endpoint, kind):
    prepare(bench, endpoint)
    args = []
    if kind == "callable":
        bench.write("conftest.py", BY_GATEWAY)
    else:
        (bench.path / "cases/many.jsonl").unlink()
        bench.profile("here", policy={"max_concurrency": AT_ONCE}, sandbox={"type": "local"})
        args = ["--agentbench-run-profile=here"]
        for number in range(COUNT):
            bench.case(f"case_{number}", runner=COMMAND, workspace="workspace")
            bench.write(f"cases/case_{number}/workspace/agent.py", PROGRAM)
    with session(bench, endpoint, *args) as process:
        process.send_signal(signal.SIGTERM)
        text = process.communicate(timeout=30)[0]
    assert len(endpoint.requests) == AT_ONCE, text
    assert asked_again(bench, endpoint, *args) == COUNT - AT_ONCE


def test_the_verdict_of_a_judge_in_flight_is_not_paid_again(bench, endpoint):
    def answer(body: dict) -> dict:
        if "response_format" not in body:
            return PARIS
        scored = {"score": 9, "evidence": []}
        verdict = {"summary": "So.", "dimensions": dict.fromkeys(DIMENSIONS, scored), "overall": scored}
        return {"role": "assistant", "content": json.dumps({**verdict, "expectations": []})}

    endpoint.answer = answer
    prepare(bench, endpoint)
    (bench.path / "cases/many.jsonl").unlink()
    for number in range(AT_ONCE):
        bench.case(f"case_{number}", deterministic_checks=None)
    judges = {"judges": [{"judge_id": "j", "type": "llm_probe", "model": "m"}]}
    runs = {"judge_runs": [{"judge_run_id": "j", "judge_id": "j", "repetitions": 1}]}
    profile = {"schema_version": 1, "evaluation_profile_id": "judged", "title": "Judged", **judges, **runs}
    bench.write("cases/evaluation_profiles/judged.yaml", profile)
    args = ("--agentbench-evaluation-profile=judged",)
    with session(bench, endpoint, *args, asked=2 * AT_ONCE) as process:
        process.send_signal(signal.SIGTERM)
        text = process.communicate(timeout=30)[0]
    assert process.returncode == 128 + signal.SIGTERM, text
    endpoint.latency, before = 0.0, len(endpoint.requests)
    finished = bench.spawn("--model=m", *args)
    assert finished.report["totals"]["passed"] == AT_ONCE, finished.text
    assert len(endpoint.requests) == before


def test_a_run_that_would_ask_again_ends_without_asking(bench):
    with FaultEndpoint(in_order("500"), latency=SECONDS, answer=lambda body: PARIS) as endpoint:
        prepare(bench, endpoint)
        with session(bench, endpoint) as process:
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            text = process.communicate(timeout=30)[0]
        assert len(endpoint.requests) == AT_ONCE, text
        assert time.monotonic() - began < 8  # once the last answer is there, and not after the whole grace


@pytest.mark.parametrize("args", [("-pno:xdist",), ("-n2",)], ids=" ".join)
def test_runs_longer_than_the_grace_period_are_cancelled(bench, endpoint, args):
    endpoint.latency = 60
    prepare(bench, endpoint)
    with session(bench, endpoint, *args, "--agentbench-grace=0.5") as process:
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        text = process.communicate(timeout=30)[0]
    assert time.monotonic() - began < 10, text
    assert process.returncode == 128 + signal.SIGTERM
    assert asked_again(bench, endpoint) == COUNT


def test_a_second_ctrl_c_cuts_at_once(bench, endpoint):
    endpoint.latency = 60
    prepare(bench, endpoint)
    with session(bench, endpoint, "-pno:xdist", "--agentbench-grace=50") as process:
        assert process.stdout is not None
        process.send_signal(signal.SIGINT)
        while "waiting 50 s at most for 4 runs" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    assert process.returncode == 2
    assert (bench.path / "outputs/report.json").exists()


def test_the_answer_of_a_scripted_model_is_not_waited_for(bench):
    bench.case("waits")
    bench.write("conftest.py", BY_GATEWAY.replace("    async with", "    note('begun')\n    async with"))
    reply = {"steps": [{"content": "Paris", "latency_seconds": 60}]}
    bench.write("cases/waits/demo.yaml", {"schema_version": 1, "replies": [reply]})
    command = [sys.executable, "-m", "pytest", *LEAN, "--model=demo", "-pno:xdist"]
    with subprocess.Popen(command, cwd=bench.path, stdout=subprocess.DEVNULL) as process:
        while not (bench.path / "begun").exists():
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.02)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    assert time.monotonic() - began < 8
