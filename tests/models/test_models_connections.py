"""Connections: kept and shared out with many requests in flight, and through a proxy where the environment has one."""

from __future__ import annotations

import asyncio

import httpx2
import openai
import pytest
from support.fault_endpoint import FaultEndpoint, in_order

from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.models.failures import Backoff
from pytest_agentbench.records.case import Model

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def ask(base_url: str, rounds: int, at_once: int) -> list[str | None]:
    """The answers to `rounds` times `at_once` questions."""
    model = Model(model_id="m", requested_model="m", base_url=base_url)

    async def main() -> list[str | None]:
        endpoints = Endpoints(concurrency=at_once)
        client = endpoints.client(model)
        answers: list[str | None] = []
        for turn in range(rounds):
            questions = ([{"role": "user", "content": f"{turn}-{n}"}] for n in range(at_once))
            replies = await asyncio.gather(*(client.complete(messages, retries=0) for messages in questions))
            answers += [reply.content for reply in replies]
        await endpoints.close()
        return answers

    return asyncio.run(main())


@pytest.mark.slow
def test_connections_are_kept_and_no_more_than_the_requests_in_flight():
    with FaultEndpoint(latency=0.01) as endpoint:
        answers = ask(endpoint.base_url, rounds=5, at_once=40)
    assert answers == [f"answer to {turn}-{n}" for turn in range(5) for n in range(40)]
    assert endpoint.connections <= 40


def test_few_requests_share_one_connection_each():
    with FaultEndpoint() as endpoint:
        ask(endpoint.base_url, rounds=10, at_once=2)
    assert endpoint.connections <= 2


@pytest.mark.parametrize(("declared", "expected"), [({}, 3), ({"max_concurrency": 1}, 1)], ids=["default", "declared"])
def test_a_changed_concurrency_holds_for_models_that_declare_none(declared, expected):
    async def main() -> None:
        endpoints = Endpoints(concurrency=1)
        client = endpoints.client(Model(model_id="m", requested_model="m", base_url=endpoint.base_url, limits=declared))
        for concurrency in (1, 3):
            endpoints.retune(concurrency)
            messages = [{"role": "user", "content": str(concurrency)}]
            await asyncio.gather(*(client.complete(messages, retries=0) for _ in range(3)))
        await endpoints.close()

    with FaultEndpoint(latency=0.001, delays={"3": 0.1}) as endpoint:
        asyncio.run(main())
    assert endpoint.connections == expected


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["HTTP_PROXY", "ALL_PROXY"])
def test_requests_go_through_the_environment_s_proxy(monkeypatch, variable):
    with FaultEndpoint() as proxy:
        monkeypatch.setenv(variable, proxy.base_url.removesuffix("/v1"))
        assert ask("http://models.invalid/v1", rounds=1, at_once=20)[0] == "answer to 0-0"
    assert proxy.requests[0].headers["host"] == "models.invalid"


@pytest.mark.slow
def test_a_request_that_is_given_up_takes_its_connection_with_it_and_no_more():
    with FaultEndpoint(in_order("hang")) as endpoint:
        model = Model(model_id="m", requested_model="m", base_url=endpoint.base_url)

        async def main() -> list[str | None]:
            endpoints = Endpoints(backoff=Backoff(first=0.001))
            client, messages = endpoints.client(model), [{"role": "user", "content": "hello"}]
            try:
                return [(await client.complete(messages, timeout=0.5)).content for _ in range(3)]
            finally:
                await endpoints.close()

        assert asyncio.run(main()) == ["answer to hello"] * 3
    assert (len(endpoint.requests), endpoint.connections) == (4, 2)


@pytest.mark.parametrize("path", ["", "/openai", "?api-version=3"])
def test_requests_are_those_of_openai_s_client(monkeypatch, path):
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with FaultEndpoint() as endpoint:
        base_url = endpoint.base_url + path

        async def main() -> None:
            timeout = httpx2.Timeout(None, connect=1)
            async with openai.AsyncOpenAI(base_url=base_url, timeout=timeout) as client:
                await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "0-0"}])

        asyncio.run(main())
        ask(base_url, rounds=2, at_once=2)
    theirs, *ours = endpoint.requests
    # Ours says what it reads within bounds, and its own length.
    told = {"accept-encoding", "content-length"}
    for request in ours:
        assert request.target == theirs.target
        assert {k: v for k, v in request.headers.items() if k not in told} == {
            k: v for k, v in theirs.headers.items() if k not in told
        }
        assert request.headers["accept-encoding"] == "gzip, deflate"
    assert len(ours) == 4
    assert theirs.headers["openai-organization"] == "org-1"


def test_cookies_of_an_endpoint_are_sent_back():
    with FaultEndpoint(sent_headers={"set-cookie": "replica=7"}) as endpoint:
        ask(endpoint.base_url, rounds=2, at_once=1)
    assert [request.headers.get("cookie") for request in endpoint.requests] == [None, "replica=7"]


def test_a_first_request_that_is_cut_off_leaves_the_others_alone():
    with FaultEndpoint() as endpoint:
        model = Model(model_id="m", requested_model="m", base_url=endpoint.base_url)

        async def main() -> str | None:
            endpoints = Endpoints()
            client, messages = endpoints.client(model), [{"role": "user", "content": "hello"}]
            first, other = (asyncio.ensure_future(client.complete(messages)) for _ in range(2))
            await asyncio.sleep(0)
            first.cancel()
            try:
                return (await other).content
            finally:
                await endpoints.close()

        assert asyncio.run(main()) == "answer to hello"
