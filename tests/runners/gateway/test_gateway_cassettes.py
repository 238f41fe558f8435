"""What an agent asks through a gateway, recorded and replayed on another day and in another dialect."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest
from runners.gateway.gateway_support import CHAT, HISTORY, SPOKEN, Spoken
from runners.runners_support import assistant, told

from pytest_agentbench.config.sections import RunnerSettings
from pytest_agentbench.models.cassette_file import Cassette, read_cassette
from pytest_agentbench.models.cassettes import TapedClient
from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.models.tape import Tape
from pytest_agentbench.records.case import CassetteMode, Model
from pytest_agentbench.runners.base import Recorder
from pytest_agentbench.runners.chat import Requests
from pytest_agentbench.runners.gateway.gateway import Gateway
from pytest_agentbench.runners.gateway.policy import GatewayPolicy, Volatile
from pytest_agentbench.secrets.redaction import Redactor

POLICY = GatewayPolicy(
    passes=False,
    volatile=(
        Volatile("user", re.compile(r"Today is \d{4}-\d\d-\d\d"), "Today is [date]"),
        Volatile("tool", re.compile(r"Chunk ID: [0-9a-f]+"), "Chunk ID: [id]"),
    ),
)


async def run_agent(model: Model, folder: Path, mode: CassetteMode, spoken: Spoken, day: str, chunk: str) -> Gateway:
    """An agent that calls a tool, and says the day and what its program printed."""
    tape = Tape(folder / "c.yaml", Cassette("a_case", model.model_id, 1, "s"), lambda asked: mode, Redactor({}))
    endpoints, trace = Endpoints(), Recorder()
    client = TapedClient(model, tape, lambda: endpoints.client(model))
    requests = Requests("a_case", client, RunnerSettings(retries=0), trace)
    gateway, socket = Gateway(requests, model, trace, {}, policy=POLICY), folder / f"{mode}.sock"
    socket.unlink(missing_ok=True)
    transport = httpx2.AsyncHTTPTransport(verify=False, uds=str(socket))  # loading certificates takes 23 ms
    try:
        async with gateway.serving(socket), httpx2.AsyncClient(transport=transport, base_url="http://gateway") as http:
            with gateway.turn("Go."):
                body: dict[str, Any] = spoken.ask(f"Go. Today is {day}", "told-v1", tools=[spoken.tool])
                first = await http.post(spoken.at("told-v1"), json=body)
                if first.status_code == 200:
                    body[HISTORY[spoken.dialect]] += spoken.called(first.json(), f"Chunk ID: {chunk}")
                    last = await http.post(spoken.at("told-v1"), json=body)
                    assert spoken.text(last.json()) == "Done."
    finally:
        await endpoints.close()
    tape.save()
    return gateway


@pytest.mark.slow
@pytest.mark.parametrize("spoken", SPOKEN, ids=lambda each: each.dialect)
def test_a_recording_answers_on_another_day_and_in_its_own_dialect_only(tmp_path: Path, spoken: Spoken) -> None:
    with told(assistant(None, ("write", {"path": "a"})), assistant("Done.")) as (model, requests):
        recorded = asyncio.run(run_agent(model, tmp_path, "record", spoken, "2026-11-26", "0aff"))
    assert recorded.failure is None
    assert "Today is 2026-11-26" in str(requests[0])
    assert "Chunk ID: 0aff" in str(requests[1])
    kept = (tmp_path / "c.yaml").read_text()
    assert "Today is [date]" in kept
    assert "Chunk ID: [id]" in kept
    assert [exchange.asked for exchange in read_cassette(tmp_path / "c.yaml").exchanges] == ["told", "told"]
    replayed = asyncio.run(run_agent(model, tmp_path, "replay", spoken, "2027-03-01", "17bb"))
    assert replayed.failure is None
    other = next(each for each in SPOKEN if each is not spoken)
    missed = asyncio.run(run_agent(model, tmp_path, "replay", other, "2027-03-01", "17bb"))
    assert missed.outage is not None
    assert "the nearest it has is exchange 1" in str(missed.outage)


def test_a_recording_of_completions_is_as_it_ever_was(tmp_path: Path) -> None:
    with told(assistant(None, ("write", {"path": "a"})), assistant("Done.")) as (model, _):
        asyncio.run(run_agent(model, tmp_path, "record", CHAT, "2026-11-26", "0aff"))
    [first, _] = read_cassette(tmp_path / "c.yaml").exchanges
    assert first.request.keys() == {"model", "messages", "tools"}


def test_dates_and_times_are_left_out_of_the_comparison_but_for_the_cases_own() -> None:
    texts = [
        ("Today is 2026-11-29.", "Today is [date]."),
        ("Sun Nov 29 06:10:08 UTC 2026", "[date]"),
        ("Sunday, November 29, 2026, 6:10 PM", "[date], [time]"),
        ("29 November 2026", "[date]"),
        ("11/29/2026", "[date]"),
        ("2026-11-29T06:10:08.123Z", "[date]"),
        ("-rw-r--r-- 5 Nov 29 06:10 bird.txt", "-rw-r--r-- 5 [date] bird.txt"),
        ("at 06:10:08", "at [time]"),
        ("due 2026-01-01", "due 2026-01-01"),
        ("v1.2.3 of 2024, ratio 16:9", "v1.2.3 of 2024, ratio 16:9"),
    ]
    request = {"messages": [{"role": "user", "content": text} for text, _ in texts]}
    compared = GatewayPolicy().drop_moments(request, ["Is it due 2026-01-01?"])
    assert [message["content"] for message in compared["messages"]] == [text for _, text in texts]
