"""The listener of a session: runs are told apart by their tokens, wherever a client sends them."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import resource
import socket
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from runners.gateway.gateway_support import CHAT, MESSAGES, SPOKEN, Spoken
from runners.runners_support import assistant, make_case, told
from support.fault_endpoint import FaultEndpoint

from pytest_agentbench.errors import ConfigError, InfrastructureError
from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.records.case import Model
from pytest_agentbench.records.run import RunnerEvent
from pytest_agentbench.runners.base import RUN, RunContext
from pytest_agentbench.runners.gateway import server as server_module
from pytest_agentbench.runners.gateway.listener import Listener
from pytest_agentbench.runners.gateway.opening import open_gateway

spoken = pytest.mark.parametrize("spoken", SPOKEN, ids=lambda each: each.dialect)
Make = Callable[..., RunContext]


def no_sandboxes() -> Any:
    raise AssertionError("no run here has a sandbox")


class Sleepers:
    """Connections of this process that send nothing, or half a head."""

    def __init__(self, listener: Listener, number: int) -> None:
        host, _, port = listener.url.removeprefix("http://").partition(":")
        self.open = [socket.socket() for _ in range(number)]
        for at, each in enumerate(self.open):
            each.setblocking(False)
            each.connect_ex((host, int(port)))
            if at % 2:
                with suppress(OSError):
                    each.send(b"POST /v1/chat/comp")

    def close(self) -> None:
        for each in self.open:
            each.close()


@asynccontextmanager
async def listening(model: Model) -> AsyncIterator[tuple[Listener, Make, httpx2.AsyncClient]]:
    """A listener, what makes a run of the model that may ask there, and an HTTP client."""
    listener, endpoints = Listener(asyncio.get_running_loop()), Endpoints(concurrency=100)

    def make(text: str = "Go.", **settings: Any) -> RunContext:
        context = RunContext(
            make_case(Path("case"), text=text),
            no_sandboxes,
            model=model,
            client=endpoints.client(model),
            settings={"retries": 0, **settings},
            open_gateway=lambda context: open_gateway(context, listener),
        )
        context.variables = copy_context()
        context.variables.run(RUN.set, context)
        return context

    try:
        async with httpx2.AsyncClient(verify=False, base_url=listener.url) as http:
            yield listener, make, http
    finally:
        await listener.close()
        await endpoints.close()


def end(context: RunContext) -> None:
    assert context.opened_gateway is not None
    context.opened_gateway.close()


def at(endpoint: FaultEndpoint) -> Model:
    return Model(model_id="m", requested_model="m-1", base_url=endpoint.base_url, api_key_env=None)


@pytest.mark.slow
def test_a_hundred_runs_twenty_at_a_time_in_four_dialects_get_their_own_answers_only() -> None:
    async def one(number: int, make: Make, http: httpx2.AsyncClient, room: asyncio.Semaphore) -> None:
        spoken, text = SPOKEN[number % 4], f"the secret of run {number:03}."
        async with room:
            context = make(text)
            path = f"/r/{context.gateway.key}{spoken.at('m-1')}"
            for _ in range(2):
                response = await http.post(path, json=spoken.ask(text, "m-1"))
                assert spoken.text(response.json()) == f"answer to {text}"
            end(context)
            assert (await http.post(path, json=spoken.ask(text, "m-1"))).status_code == 409
        seen = [event.data for event in context.trace.events if isinstance(event, RunnerEvent)]
        said = [data["message"]["content"] for data in seen if "message" in data]
        assert said == [f"answer to {text}"] * 2
        assert context.trace.provider["requests"] == 2

    async def run(endpoint: FaultEndpoint) -> None:
        async with listening(at(endpoint)) as (_, make, http):
            room = asyncio.Semaphore(20)
            await asyncio.gather(*(one(number, make, http, room) for number in range(100)))

    with FaultEndpoint(latency=0.01) as endpoint:
        asyncio.run(run(endpoint))
        assert len(endpoint.requests) == 200


@pytest.mark.slow
def test_a_run_in_flight_takes_little_memory() -> None:
    async def run(model: Model) -> None:
        async with listening(model) as (_, make, http):

            async def ask(*contexts: RunContext) -> None:
                for context, spoken in zip(contexts, itertools.cycle(SPOKEN)):
                    path = f"/r/{context.gateway.key}{spoken.at('told-v1')}"
                    assert (await http.post(path, json=spoken.ask("Go.", "told-v1"))).status_code == 200

            await ask(*(make() for _ in SPOKEN))  # what is imported and made once is no run's
            tracemalloc.start()
            try:
                contexts = [make() for _ in range(20)]
                before = tracemalloc.get_traced_memory()[0]
                await ask(*contexts)
                assert (tracemalloc.get_traced_memory()[0] - before) / 20 < 200_000
            finally:
                tracemalloc.stop()

    with told(*[assistant("Hello.")] * 24) as (model, _):
        asyncio.run(run(model))


@spoken
@pytest.mark.parametrize(
    "sent",
    [
        lambda token: {"authorization": f"Bearer {token}"},
        lambda token: {"x-api-key": token},
        lambda token: {"x-goog-api-key": token},
        lambda token: {"api-key": token},
        lambda token: {"x-agentbench-run": token, "authorization": "Bearer sk-of-a-person"},
    ],
    ids=["bearer", "x-api-key", "x-goog-api-key", "api-key", "own"],
)
def test_a_token_may_come_as_a_key(spoken: Spoken, sent: Callable[[str], dict[str, str]]) -> None:
    async def run(model: Model) -> None:
        async with listening(model) as (_, make, http):
            context = make()
            headers = sent(context.gateway.key)
            response = await http.post(spoken.at("told-v1"), json=spoken.ask("Go.", "told-v1"), headers=headers)
            assert spoken.text(response.json()) == "Hello."
            foreign = context.trace.provider["gateway"].get("foreign_key", False)
            assert foreign == ("sk-of-a-person" in str(headers))
            assert "sk-of-a-person" not in str(context.trace.events) + str(context.trace.provider)

    with told(assistant("Hello.")) as (model, requests):
        asyncio.run(run(model))
    assert "sk-of-a-person" not in str(requests)


@spoken
def test_nobody_is_let_in_without_a_token_or_with_that_of_an_ended_run(spoken: Spoken) -> None:
    async def run(model: Model) -> None:
        async with listening(model) as (_, make, http):
            context, other = make(), make("Another.")
            token, body, path = context.gateway.key, spoken.ask("Go.", "told-v1"), spoken.at("told-v1")
            assert other.gateway.key != token
            for headers, prefix in (({}, ""), ({"x-api-key": "none"}, ""), ({}, "/r/none"), ({}, f"/r/{token}x")):
                response = await http.post(prefix + path, json=body, headers=headers)
                assert (response.status_code, spoken.code(response.json())) == (401, "invalid_token")
            end(context)
            for response in (
                await http.post(f"/r/{token}{path}", json=body),
                await http.post(path, json=body, headers={"x-agentbench-run": token}),
            ):
                assert (response.status_code, spoken.code(response.json())) == (409, "no_turn")

    with told() as (model, requests):
        asyncio.run(run(model))
    assert requests == []


def test_requests_in_flight_are_cancelled_when_a_run_ends() -> None:
    async def run(endpoint: FaultEndpoint) -> None:
        asked, loop = asyncio.Event(), asyncio.get_running_loop()

        def hang(message: str, nth: int) -> str:
            loop.call_soon_threadsafe(asked.set)
            return "hang"

        endpoint.choose = hang
        async with listening(at(endpoint)) as (_, make, http):
            context = make()
            asking = asyncio.create_task(http.post(f"/r/{context.gateway.key}{CHAT.path}", json=CHAT.ask("Go.", "m-1")))
            await asked.wait()
            end(context)
            with pytest.raises(httpx2.HTTPError):
                await asking

    with FaultEndpoint() as endpoint:
        asyncio.run(run(endpoint))


@pytest.mark.slow
def test_one_runs_connections_leave_room_for_the_others() -> None:
    async def run(endpoint: FaultEndpoint) -> None:
        async with listening(at(endpoint)) as (listener, make, _):
            greedy, other = make(), make()
            url = f"{listener.url}/r/{{}}{CHAT.path}"
            async with httpx2.AsyncClient(limits=httpx2.Limits(max_connections=100), timeout=30) as http:
                body = CHAT.ask("Go.", "m-1")
                asking = [asyncio.create_task(http.post(url.format(greedy.gateway.key), json=body)) for _ in range(40)]
                await asyncio.sleep(0.3)
                answer = await http.post(url.format(other.gateway.key), json=CHAT.ask("And I?", "m-1"))
                assert CHAT.text(answer.json()) == "answer to And I?"
                end(greedy)
                ended = await asyncio.gather(*asking, return_exceptions=True)
            assert sum(isinstance(each, httpx2.HTTPError) for each in ended) >= 8

    with FaultEndpoint(lambda message, nth: "hang" if message == "Go." else "ok") as endpoint:
        asyncio.run(run(endpoint))


@pytest.mark.slow
def test_connections_without_a_token_are_few_and_keep_no_run_from_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_PRESSED_SECONDS", 0.2)

    async def run(model: Model) -> None:
        async with listening(model) as (listener, make, http):
            context = make()
            url, before = f"/r/{context.gateway.key}{CHAT.path}", len(os.listdir("/proc/self/fd"))
            sleepers = Sleepers(listener, 300)
            try:
                for _ in range(3):
                    response = await http.post(url, json=CHAT.ask("Go.", "told-v1"), timeout=30)
                    assert CHAT.text(response.json()) == "Hello."
                    assert len(os.listdir("/proc/self/fd")) - before - 300 < 80
            finally:
                sleepers.close()
            assert context.opened_gateway is not None
            assert context.opened_gateway.find_end(answered=False) is None

    with told(*[assistant("Hello.")] * 3) as (model, _):
        asyncio.run(run(model))


def test_too_many_open_files_are_the_listeners_fault_and_its_end_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(model: Model) -> None:
        async with listening(model) as (_, make, http):
            context, later = make(), make("Another.")
            url = f"/r/{context.gateway.key}{CHAT.path}"
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            filler = [os.open("/dev/null", os.O_RDONLY)]
            # The client's own socket is the last one that may be open
            resource.setrlimit(resource.RLIMIT_NOFILE, (filler[0] + 60, hard))
            try:
                with suppress(OSError):
                    while True:
                        filler.append(os.open("/dev/null", os.O_RDONLY))
                os.close(filler.pop())
                asking = asyncio.create_task(http.post(url, json=CHAT.ask("Go.", "told-v1"), timeout=30))
                opened = context.opened_gateway
                assert opened is not None
                async with asyncio.timeout(10):
                    while True:
                        await asyncio.sleep(0.01)
                        if opened.fault is not None:
                            break
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                for each in filler:
                    os.close(each)
            assert CHAT.text((await asking).json()) == "Hello."  # it goes on as soon as there is room
            with pytest.raises(InfrastructureError, match=r"accepting a connection failed: .*Too many open files"):
                opened.find_end(answered=False)
            assert opened.find_end(answered=True) is None
            assert later.gateway.key
            assert later.opened_gateway is not None
            assert later.opened_gateway.fault is None

    with told(assistant("Hello.")) as (model, _):
        asyncio.run(run(model))


@pytest.mark.slow
@spoken
@pytest.mark.parametrize("size", [10, 5 * 2**20], ids=["small", "more than a slot"])
def test_a_request_in_chunks_is_answered(spoken: Spoken, size: int) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        body = json.dumps(spoken.ask("Go." + "x" * size, "told-v1")).encode()
        for at in range(0, len(body), 100_000):
            yield body[at : at + 100_000]

    async def run(model: Model) -> None:
        async with listening(model) as (_, make, http):
            url = f"/r/{make().gateway.key}{spoken.at('told-v1')}"
            response = await http.post(url, content=chunks(), headers={"content-type": "application/json"})
            assert spoken.text(response.json()) == "Hello."

    with told(assistant("Hello.")) as (model, _):
        asyncio.run(run(model))


def test_a_client_that_runs_share_is_told_to_name_the_run_with_each_request() -> None:
    async def ask(context: RunContext, url: str, **headers: str) -> httpx2.Response:
        RUN.set(context)
        async with httpx2.AsyncClient(verify=False) as http:
            return await http.post(url, json=CHAT.ask("Go.", "told-v1"), headers=headers)

    async def run(model: Model) -> None:
        async with listening(model) as (_, make, _):
            first, second = make(), make()
            url = first.gateway.openai_base_url + "/chat/completions"
            assert (await asyncio.create_task(ask(first, url))).status_code == 200
            refused = await asyncio.create_task(ask(second, url))
            assert (refused.status_code, CHAT.code(refused.json())) == (409, "other_run")
            assert "gateway.headers" in refused.text
            told = second.asking.describe_nothing()
            assert told is not None
            assert "1 request came with the token of another run" in told
            answered = await asyncio.create_task(ask(second, url, **second.gateway.headers))
            assert answered.status_code == 200
            assert [each.trace.provider["requests"] for each in (first, second)] == [1, 1]
            end(first)  # the token of a run that has ended is another run's, too
            refused = await asyncio.create_task(ask(second, url))
            assert (refused.status_code, CHAT.code(refused.json())) == (409, "other_run")

    with told(*[assistant("Hello.")] * 2) as (model, _):
        asyncio.run(run(model))


def test_a_plain_function_opens_its_gateway_from_its_thread_and_sdks_find_it() -> None:
    def agent(context: RunContext) -> str | None:
        gateway = context.gateway
        with openai.OpenAI(base_url=gateway.openai_base_url, api_key=gateway.key, max_retries=0) as client:
            return client.responses.create(model=gateway.model, input="Go.").output_text

    async def run(model: Model) -> None:
        async with listening(model) as (_, make, _):
            assert await asyncio.to_thread(agent, make()) == "Hello."

    with told(assistant("Hello.")) as (model, _):
        asyncio.run(run(model))


def test_the_address_has_all_variables_and_sets_none_unasked() -> None:
    async def run(model: Model) -> None:
        async with listening(model) as (listener, make, _):
            context = make()
            gateway, before = context.gateway, dict(os.environ)
            assert context.gateway is gateway
            base = f"{listener.url}/r/{gateway.key}"
            assert len(gateway.key) == 24
            assert gateway.env()["OPENAI_BASE_URL"] == gateway.openai_base_url == f"{base}/v1"
            assert gateway.env()["ANTHROPIC_BASE_URL"] == gateway.anthropic_base_url == base
            assert gateway.env()["GOOGLE_GEMINI_BASE_URL"] == gateway.google_base_url == base
            assert gateway.env()["ANTHROPIC_AUTH_TOKEN"] == gateway.key
            assert gateway.headers == {"x-agentbench-run": gateway.key}
            with pytest.raises(ConfigError, match="env: serial"), gateway.session_env():
                pass
            with replace(gateway, serial=True).session_env():
                assert os.environ["OPENAI_API_KEY"] == gateway.key
            assert dict(os.environ) == before

    with told() as (model, _):
        asyncio.run(run(model))


def test_anthropics_clients_add_their_version_themselves() -> None:
    async def run(model: Model) -> None:
        async with listening(model) as (_, make, http):
            context = make()
            gateway = context.gateway
            body = MESSAGES.ask("Go.", "told-v1")
            assert (await http.post(f"{gateway.anthropic_base_url}/v1/messages", json=body)).status_code == 200

    with told(assistant("Hello.")) as (model, _):
        asyncio.run(run(model))
