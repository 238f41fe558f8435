"""Connections: kept and shared out with many requests in flight, and through a proxy where the environment has one."""

from __future__ import annotations

import asyncio

import pytest
from support.fault_endpoint import FaultEndpoint

from pytest_agentbench.models.client import Endpoints
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
    assert endpoint.connections <= 48  # three pools that take turns


def test_few_requests_share_one_connection_each():
    with FaultEndpoint() as endpoint:
        ask(endpoint.base_url, rounds=10, at_once=2)
    assert endpoint.connections <= 2


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["HTTP_PROXY", "ALL_PROXY"])
def test_requests_go_through_the_environment_s_proxy(monkeypatch, variable):
    with FaultEndpoint() as proxy:
        monkeypatch.setenv(variable, proxy.base_url.removesuffix("/v1"))
        assert ask("http://models.invalid/v1", rounds=1, at_once=20)[0] == "answer to 0-0"
    assert proxy.requests[0].headers["host"] == "models.invalid"
