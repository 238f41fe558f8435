"""Refused keys and pages of proxies: what one reply says depends on what the endpoint has answered before."""

from __future__ import annotations

import asyncio

import pytest
from support.fault_endpoint import FaultEndpoint, always

from pytest_agentbench.errors import ProviderError
from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.models.failures import Backoff
from pytest_agentbench.records.case import Limits, Model


def end_of(outcome: object) -> str:
    return outcome.reason if isinstance(outcome, ProviderError) else "ok"


def ask(endpoint: FaultEndpoint, *texts: str, at_once: int = 1, model: str = "m", before: str | None = None) -> list:
    """What each text ended with. `before` names a model that is asked before, with the same key."""

    async def main() -> list:
        endpoints = Endpoints(backoff=Backoff(first=0.001, longest=0.004), environ={"TEST_KEY": "sk-secret"})
        turns = asyncio.Semaphore(at_once)

        async def one(name: str, text: str):
            fields = {"requested_model": name, "base_url": endpoint.base_url, "api_key_env": "TEST_KEY"}
            client = endpoints.client(Model(model_id=name, limits=Limits(max_concurrency=at_once), **fields))
            async with turns:
                return await client.complete([{"role": "user", "content": text}], retries=2)

        try:
            if before is not None:
                await one(before, "before")
            return await asyncio.gather(*(one(model, text) for text in texts), return_exceptions=True)
        finally:
            await endpoints.close()

    return asyncio.run(main())


def refuse(fault: str, *texts: str):
    return lambda message, nth: fault if message in texts else "ok"


@pytest.mark.parametrize("fault", ["401", "403"])
def test_a_refusal_after_a_success_is_that_requests_error(fault):
    with FaultEndpoint(refuse(fault, "bad")) as endpoint:
        outcomes = ask(endpoint, "first", "bad", "second", *["bad"] * 4, "third")
    assert [end_of(each) for each in outcomes] == ["ok", "request_refused", "ok", *["request_refused"] * 4, "ok"]
    assert outcomes[1].code == "request_refused"
    assert "Only this request was refused: others get answers with the key in TEST_KEY" in str(outcomes[1])


def test_three_different_requests_that_are_refused_in_a_row_show_that_the_key_is():
    with FaultEndpoint(refuse("401", "b", "d", "e", "f")) as endpoint:
        outcomes = ask(endpoint, *"abcdeefg")
    ends = dict.fromkeys("acg", "ok") | dict.fromkeys("bde", "request_refused") | {"f": "authentication"}
    assert [end_of(each) for each in outcomes] == [ends[text] for text in "abcdeefg"]
    assert "Key refused: the key in TEST_KEY was accepted before, and then 3 different requests" in str(outcomes[6])


def test_a_key_is_known_by_any_model_and_its_refusals_by_each():
    with FaultEndpoint(lambda message, nth: "ok" if message == "before" else "403") as endpoint:
        outcomes = ask(endpoint, *"abc", before="other")
    assert [end_of(each) for each in outcomes] == ["request_refused", "request_refused", "authentication"]


@pytest.mark.parametrize(("fault", "end"), [("403", "request_refused"), ("html", "ok"), ("text", "ok")])
def test_a_reply_that_comes_before_the_first_good_one_is_judged_by_what_is_in_flight(fault, end):
    def choose(message: str, nth: int) -> str:
        return fault if message in "abcd" and (nth == 0 or fault == "403") else "ok"

    with FaultEndpoint(choose, latency=0.15, quick=frozenset({fault})) as endpoint:
        outcomes = ask(endpoint, *"abcdef", at_once=6)
    assert [end_of(each) for each in outcomes] == [*[end] * 4, "ok", "ok"]


@pytest.mark.parametrize(("fault", "end"), [("401", "authentication"), ("html", "rejected"), ("html-404", "rejected")])
def test_where_nothing_is_answered_all_in_flight_end_at_once(fault, end):
    with FaultEndpoint(always(fault)) as endpoint:
        outcomes = ask(endpoint, *"abcdef", at_once=6)
        assert len(endpoint.requests) == 6
    assert [end_of(each) for each in outcomes] == [end] * 6
