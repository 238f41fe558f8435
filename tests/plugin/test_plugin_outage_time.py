"""The time in which a run's requests wait for an endpoint that fails is not the run's: it takes no limit, in any way
that an agent asks.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from support.bench import HEAD, Bench
from support.fault_endpoint import FaultEndpoint
from support.stored import find_stored

pytestmark = pytest.mark.slow

LIMIT = 1.0
ASKING = (
    HEAD
    + """
import httpx2

def request(context, text):
    body = {"model": context.gateway.model, "messages": [{"role": "user", "content": text}]}
    return {"url": f"{context.gateway.openai_base_url}/chat/completions", "json": body}

def read(response):
    return response.json()["choices"][0]["message"]["content"]
"""
)
AGENTS = {
    "sync": """
def agent(case, context):
    return [read(httpx2.post(**request(context, text), timeout=60)) for text in ("first", "Paris?")][-1]
""",
    "async": """
async def agent(case, context):
    async with httpx2.AsyncClient(timeout=60) as http:
        return [read(await http.post(**request(context, text))) for text in ("first", "Paris?")][-1]
""",
    "several requests at a time": """
async def agent(case, context):
    async with httpx2.AsyncClient(timeout=60) as http:
        asked = [http.post(**request(context, text)) for text in ("first", "Paris?", "Paris, and?", "Paris, or?")]
        return read((await asyncio.gather(*asked))[-1])
""",
    "its client gives up and asks again": """
def agent(case, context):
    read(httpx2.post(**request(context, "first")))
    for _ in range(99):
        try:
            return read(httpx2.post(**request(context, "Paris?"), timeout=0.5))
        except httpx2.TimeoutException:
            pass
""",
    "an SDK": """
def agent(case, context):
    import openai
    with openai.OpenAI(base_url=context.gateway.openai_base_url, api_key=context.gateway.key, timeout=60) as client:
        messages = [[{"role": "user", "content": text}] for text in ("first", "Paris?")]
        asked = [client.chat.completions.create(model=context.gateway.model, messages=each) for each in messages]
    return asked[-1].choices[0].message.content
""",
}
GIVES_UP = (
    ASKING
    + """
def agent(case, context):
    read(httpx2.post(**request(context, "first")))
    try:
        return read(httpx2.post(**request(context, "Paris?"), timeout=0.6))
    except httpx2.TimeoutException:
        @end
"""
)
COMMAND = """
import json, os, sys, urllib.request
for text in ("first", "Paris?" + sys.argv[1]):
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    answer = json.load(urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode())))
print(answer["choices"][0]["message"]["content"])
"""


def failing(seconds: float, fault: str) -> Callable[[str, int], str]:
    """The first request is answered; from the second one on the endpoint fails for so many seconds."""
    begun: list[float] = []

    def choose(message: str, nth: int) -> str:
        if message == "first":
            return "ok"
        begun[:] = begun or [time.monotonic()]
        return fault if time.monotonic() - begun[0] < seconds else "ok"

    return choose


def run(bench: Bench, endpoint: FaultEndpoint, limit: float = LIMIT, **runner: Any) -> tuple[str, dict[str, Any], str]:
    """The outcome of a case, what is stored of its run, and what the session printed."""
    bench.models({"model_id": "m", "base_url": endpoint.base_url, "api_key_env": "none"})
    bench.profile("short", run_timeout_seconds=limit)
    if "input" not in runner:
        runner["input"] = {"messages": [{"role": "user", "content": "Paris?"}]}
    given = runner.pop("input")
    bench.case("one", input=given, runner={"type": "llm_probe", **runner})
    finished = bench.run("--model=m", "--agentbench-run-profile=short")
    [stored] = find_stored(bench.path / "outputs", "run_1.json")
    return finished.outcomes["one[m]"], json.loads(stored.read_text()), finished.text


@pytest.mark.parametrize("fault", ["503", "429-retry-after", "cut"])
@pytest.mark.parametrize("agent", ["llm_probe", "sync"])
def test_time_waited_for_an_endpoint_is_not_the_runs(bench: Bench, agent: str, fault: str) -> None:
    if agent != "llm_probe":
        bench.write("conftest.py", ASKING + AGENTS[agent])
    with FaultEndpoint(failing(2 * LIMIT, fault), retry_after=1.5 * LIMIT) as endpoint:
        outcome, stored, text = run(bench, endpoint)
    assert (outcome, stored["status"]) == ("passed", "success"), text
    assert stored["duration_seconds"] > 1.5 * LIMIT


@pytest.mark.parametrize("agent", [name for name in AGENTS if name != "sync"])
def test_an_outage_takes_no_time_of_agents_in_process(bench: Bench, agent: str) -> None:
    bench.write("conftest.py", ASKING + AGENTS[agent])
    with FaultEndpoint(failing(3 * LIMIT, "503")) as endpoint:
        outcome, stored, text = run(bench, endpoint, 2 * LIMIT)
    assert (outcome, stored["status"]) == ("passed", "success"), text


@pytest.mark.parametrize("own_limit", [True, False], ids=["timeout_seconds", "run_timeout_seconds"])
def test_an_outage_takes_no_time_of_a_commands_turns(bench: Bench, own_limit: bool) -> None:
    limits = {"timeout_seconds": 2 * LIMIT} if own_limit else {}
    turns = [{"role": "user", "content": text} for text in (" One.", " Two.")]
    command = ["python3", "-c", COMMAND, "{message}"]
    with FaultEndpoint(failing(4 * LIMIT, "503")) as endpoint:
        outcome, stored, text = run(
            bench,
            endpoint,
            60 if own_limit else 2 * LIMIT,
            type="command",
            command=command,
            resume=command,
            sandbox="local",
            input={"turns": turns},
            **limits,
        )
    assert (outcome, stored["status"]) == ("passed", "success"), text
    assert stored["trace"][-1]["content"] == "answer to Paris? Two."


@pytest.mark.parametrize(
    ("agent", "fault"),
    [(None, "503"), ("sync", "503"), ("sync", "429-retry-after"), ("its client gives up and asks again", "503")],
)
def test_an_endpoint_that_stays_away_is_an_error_and_no_failure(bench: Bench, agent: str | None, fault: str) -> None:
    if agent is not None:
        bench.write("conftest.py", ASKING + AGENTS[agent])
    with FaultEndpoint(failing(99, fault), retry_after=0.1) as endpoint:
        outcome, stored, text = run(bench, endpoint, outage_seconds=2.0)
    assert (outcome, stored["status"]) == ("error", "provider_error"), text


@pytest.mark.parametrize("end", ["raise", "return 'Paris'", "time.sleep(9)"])
def test_an_agent_that_gives_up_in_an_outage_is_an_error_for_every_end(bench: Bench, end: str) -> None:
    bench.write("conftest.py", GIVES_UP.replace("@end", end))
    with FaultEndpoint(failing(99, "503")) as endpoint:
        outcome, stored, text = run(bench, endpoint, 2.0)
    assert (outcome, stored["status"]) == ("error", "provider_error"), text
    assert "no later request of the run had an answer: HTTP 503: Overloaded" in stored["error"]["message"]


def test_without_a_bound_of_its_own_an_outage_lasts_as_long_as_the_run_may(bench: Bench) -> None:
    with FaultEndpoint(failing(99, "503")) as endpoint:
        outcome, stored, text = run(bench, endpoint, outage_seconds=0)
    assert (outcome, stored["status"]) == ("error", "provider_error"), text
    assert "still failed at the end of run_timeout_seconds (1 s): HTTP 503: Overloaded" in stored["error"]["message"]


def test_an_agent_that_is_slow_itself_is_timed_out_after_an_outage_too(bench: Bench) -> None:
    bench.write("conftest.py", ASKING + AGENTS["sync"].replace("return [", "said = [") + "    time.sleep(9)\n")
    with FaultEndpoint(failing(LIMIT, "503")) as endpoint:
        outcome, stored, text = run(bench, endpoint)
    assert (outcome, stored["status"]) == ("failed", "timed_out"), text
