"""An endpoint that stops answering: requests wait for it, and end at once where it is dead."""

from __future__ import annotations

import asyncio
import time
from itertools import count

import pytest
from support.fault_endpoint import FaultEndpoint

from pytest_agentbench.errors import UNREACHABLE, ProviderError
from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.models.failures import Backoff
from pytest_agentbench.models.limits import Patience
from pytest_agentbench.models.routes import RUN_LIMIT
from pytest_agentbench.records.case import Model

QUICK = Backoff(first=0.001, longest=0.004)
IMPATIENT = Patience(notice=0.02, never=0.1, outage=0.3, first=0.02, longest=0.05)


def ask(endpoint: FaultEndpoint, texts: int, *, at_once: int = 8, limit: float | None = None, **options):
    """What the texts ended with, in order, and what was told."""
    told: list[str] = []

    async def main() -> list:
        endpoints = Endpoints(backoff=QUICK, environ={}, tell=told.append, patience=IMPATIENT)
        client = endpoints.client(Model(model_id="m", requested_model="m", base_url=endpoint.base_url))
        turns = asyncio.Semaphore(at_once)

        async def one(number: int):
            async with turns, asyncio.timeout(limit) as timer:
                RUN_LIMIT.set(timer)
                return await client.complete([{"role": "user", "content": str(number)}], **options)

        try:
            return await asyncio.gather(*map(one, range(texts)), return_exceptions=True)
        finally:
            await endpoints.close()

    return asyncio.run(main()), told


def codes(outcomes: list) -> set[str | None]:
    return {getattr(outcome, "code", None) for outcome in outcomes}


@pytest.mark.parametrize("at_once", [1, 8])
def test_what_never_answered_is_dead_and_asked_no_more(at_once):
    with FaultEndpoint(lambda message, nth: "503") as endpoint:
        outcomes, told = ask(endpoint, 40, at_once=at_once, retries=30)
        assert len(endpoint.requests) < 60
    assert all(isinstance(outcome, ProviderError) for outcome in outcomes)
    assert codes(outcomes) == {UNREACHABLE}
    assert "HTTP 503: Overloaded; nothing was answered for 0 s, so it is not asked any more" in str(outcomes[-1])
    assert told == []


def test_an_outage_takes_no_retries_and_is_told_once():
    began: list[float] = []

    def choose(message: str, nth: int) -> str:
        if message == "10":
            began[:] = began or [time.monotonic()]
        # Longer than a run's limit, and for as many requests as it takes: on a busy machine few come in that time.
        return "cut" if began and (time.monotonic() - began[0] < 0.2 or endpoint.faults["cut"] < 10) else "ok"

    with FaultEndpoint(choose) as endpoint:
        outcomes, told = ask(endpoint, 40, retries=12, limit=0.15)
        assert endpoint.faults["cut"] < 8 * 12
    assert codes(outcomes) == {None}, outcomes  # nor does it take a run's time
    assert [line.partition(" did not answer for ")[0] for line in told] == [endpoint.base_url]


def test_an_outage_without_end_ends_in_errors():
    with FaultEndpoint(lambda message, nth: "ok" if int(message) < 10 else "503") as endpoint:
        outcomes, _ = ask(endpoint, 40, at_once=1, retries=50)
    assert codes(outcomes[:10]) == {None}
    assert codes(outcomes[10:]) == {UNREACHABLE}


@pytest.mark.parametrize("fault", ["500", "429", "malformed"])
def test_what_answers_is_there_whatever_it_answers(fault):
    with FaultEndpoint(lambda message, nth: fault) as endpoint:
        outcomes, _ = ask(endpoint, 6, retries=3)
        assert len(endpoint.requests) == 6 * 4
    assert UNREACHABLE not in codes(outcomes)


def test_a_request_that_takes_too_long_says_nothing_of_the_endpoint():
    with FaultEndpoint(lambda message, nth: "hang") as endpoint:
        outcomes, _ = ask(endpoint, 6, retries=3, timeout=0.05)
    assert codes(outcomes) == {"timeout"}


def test_a_probe_that_is_cancelled_lets_the_next_one_probe():
    numbers = count()
    with FaultEndpoint(lambda message, nth: "503" if next(numbers) < 6 else "ok") as endpoint:

        async def main() -> str | None:
            patience = Patience(notice=0.0, first=0.05, longest=0.05)
            endpoints = Endpoints(backoff=QUICK, environ={}, patience=patience)
            client = endpoints.client(Model(model_id="m", requested_model="m", base_url=endpoint.base_url))
            calls = [asyncio.create_task(client.complete([{"role": "user", "content": f"{n}"}])) for n in range(4)]
            while not endpoints.describe_pauses():  # noqa: ASYNC110 - nothing tells of the beginning of a pause
                await asyncio.sleep(0)
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
            try:
                return (await client.complete([{"role": "user", "content": "last"}])).content
            finally:
                await endpoints.close()

        assert asyncio.run(main()) == "answer to last"
