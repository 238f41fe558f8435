"""An endpoint that stops answering: requests wait for it, and end at once where it is dead."""

from __future__ import annotations

import asyncio
import re
import time
from itertools import count, pairwise

import pytest
from support.fault_endpoint import FaultEndpoint, always, in_order

from pytest_agentbench.errors import UNREACHABLE, ProviderError
from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.models.clock import RUN_CLOCK, RunClock
from pytest_agentbench.models.failures import Backoff
from pytest_agentbench.models.limits import Patience
from pytest_agentbench.records.case import Model

QUICK = Backoff(first=0.001, longest=0.004)
IMPATIENT = Patience(never=0.1, first=0.02, longest=0.05)


def ask(
    endpoint: FaultEndpoint,
    texts: int,
    *,
    at_once: int = 8,
    limit: float | None = None,
    patience: Patience = IMPATIENT,
    **options,
):
    """What the texts ended with, in order, and what was told."""
    told: list[str] = []

    async def main() -> list:
        endpoints = Endpoints(backoff=QUICK, environ={}, tell=told.append, patience=patience)
        client = endpoints.client(Model(model_id="m", requested_model="m", base_url=endpoint.base_url))
        turns = asyncio.Semaphore(at_once)

        async def one(number: int):
            RUN_CLOCK.set(clock := RunClock())
            async with turns, clock.limit(limit):
                question = [{"role": "user", "content": str(number)}]
                return await client.complete(question, **options)

        try:
            return await asyncio.gather(*map(one, range(texts)), return_exceptions=True)
        finally:
            await endpoints.close()

    return asyncio.run(main()), told


def codes(outcomes: list) -> set[str | None]:
    return {getattr(outcome, "code", None) for outcome in outcomes}


@pytest.mark.parametrize("at_once", [1, 8])
def test_an_endpoint_that_never_answered_is_not_asked_again(at_once):
    with FaultEndpoint(lambda message, nth: "cut") as endpoint:
        outcomes, told = ask(endpoint, 40, at_once=at_once, retries=30)
        assert len(endpoint.requests) < 60
    assert all(isinstance(outcome, ProviderError) for outcome in outcomes)
    assert codes(outcomes) == {UNREACHABLE}
    said = rf"the connection failed: .*; {endpoint.base_url} has been down for \d s, so it is not asked any more"
    assert re.search(said, str(outcomes[-1]))
    assert told == []


@pytest.mark.slow
def test_an_endpoint_that_never_answered_is_given_up_in_time_despite_long_intervals():
    patience = Patience(never=0.5, first=0.4, longest=10)
    with FaultEndpoint(lambda message, nth: "cut") as endpoint:
        began = time.monotonic()
        outcomes, _ = ask(endpoint, 8, patience=patience)
        lasted = [request.at - began for request in endpoint.requests]
    assert codes(outcomes) == {UNREACHABLE}
    assert 0.5 <= max(lasted) < 1.2  # two intervals


@pytest.mark.slow
def test_a_model_that_is_still_being_loaded_is_waited_for():
    began = time.monotonic()
    with FaultEndpoint(lambda message, nth: "503" if time.monotonic() - began < 0.5 else "ok") as endpoint:
        outcomes, _ = ask(endpoint, 8)  # five times as long as for one that nobody is at
    assert codes(outcomes) == {None}, outcomes


@pytest.mark.slow
def test_an_outage_uses_no_retries_and_is_reported_once():
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


@pytest.mark.slow
def test_an_outage_without_end_ends_in_errors():
    with FaultEndpoint(lambda message, nth: "ok" if int(message) < 10 else "503") as endpoint:
        outcomes, _ = ask(endpoint, 40, at_once=1, retries=50, outage_seconds=0.3)
    assert codes(outcomes[:10]) == {None}
    assert codes(outcomes[10:]) == {UNREACHABLE}


@pytest.mark.parametrize("fault", ["500", "429", "malformed"])
def test_an_endpoint_that_answers_with_errors_is_not_unreachable(fault):
    with FaultEndpoint(lambda message, nth: fault) as endpoint:
        outcomes, _ = ask(endpoint, 6, retries=3)
        assert len(endpoint.requests) == 6 * 4
    assert UNREACHABLE not in codes(outcomes)


@pytest.mark.slow
def test_a_request_that_takes_too_long_says_nothing_of_the_endpoint():
    with FaultEndpoint(lambda message, nth: "hang") as endpoint:
        outcomes, _ = ask(endpoint, 6, retries=3, timeout=0.05)
    assert codes(outcomes) == {"timeout"}


def test_a_probe_that_is_cancelled_lets_the_next_one_probe():
    numbers = count()
    with FaultEndpoint(lambda message, nth: "503" if next(numbers) < 6 else "ok") as endpoint:

        async def main() -> str | None:
            patience = Patience(failures=3, first=0.05, longest=0.05)
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


@pytest.mark.slow
def test_of_64_in_flight_in_an_outage_none_fails_and_one_at_a_time_looks_whether_it_is_over():
    cut = [str(number) for number in range(64)]
    looked = count()

    def choose(message: str, nth: int) -> str:
        if message in cut and nth == 0:
            return "cut"  # what was under way when it began
        return "503" if message in cut and next(looked) < 6 else "ok"

    async def main(base_url: str) -> list:
        patience = Patience(first=0.01, longest=0.1)
        endpoints = Endpoints(backoff=Backoff(first=0.3), environ={}, patience=patience)
        client = endpoints.client(Model(model_id="m", requested_model="m", base_url=base_url))
        questions = [[{"role": "user", "content": text}] for text in ("before", *cut)]
        await client.complete(questions[0])
        try:
            return await asyncio.gather(*map(client.complete, questions[1:]), return_exceptions=True)
        finally:
            await endpoints.close()

    with FaultEndpoint(choose) as endpoint:
        outcomes = asyncio.run(main(endpoint.base_url))
        probes = [request.at for request in endpoint.requests if request.fault == "503"]
    assert codes(outcomes) == {None}, outcomes
    # With 1 s and 10 s in place of these, no more than nine come in a minute
    gaps = [later - before for before, later in pairwise(probes)]
    assert all(gap > least for gap, least in zip(gaps, (0.019, 0.038, 0.076, 0.095, 0.095), strict=True)), gaps


@pytest.mark.slow
def test_errors_without_any_success_are_an_outage_after_a_while():
    with FaultEndpoint(lambda message, nth: "ok" if message == "0" else "500") as endpoint:
        patience = Patience(quiet=0.05, first=0.02, longest=0.05)
        outcomes, _ = ask(endpoint, 20, at_once=4, patience=patience, outage_seconds=0.3)
    assert codes(outcomes[:1]) == {None}
    assert UNREACHABLE in codes(outcomes[1:])
    assert codes(outcomes[1:]) <= {UNREACHABLE, "server_error"}
    assert "has been down for" in str(outcomes[-1])


def test_without_retries_a_request_is_repeated_for_as_long_as_it_bears_an_outage():
    with FaultEndpoint(in_order(*["500"] * 8)) as endpoint:
        [outcome], _ = ask(endpoint, 1, outage_seconds=60)
        assert (outcome.content, outcome.attempts) == ("answer to 0", 9)
    with FaultEndpoint(always("500")) as endpoint:
        outcomes, _ = ask(endpoint, 2, at_once=1, outage_seconds=0.05)
        assert codes(outcomes) == {"server_error"}
        assert len(endpoint.requests) > 2


def test_two_models_of_an_endpoint_have_trouble_of_their_own():
    async def main(base_url: str) -> list:
        endpoints = Endpoints(backoff=QUICK, environ={}, patience=IMPATIENT)
        bad, good = (
            endpoints.client(Model(model_id=name, requested_model=name, base_url=base_url)) for name in ("bad", "good")
        )
        calls = [bad.complete([{"role": "user", "content": "bad"}], outage_seconds=0.1) for _ in range(6)]
        try:
            failed = await asyncio.gather(*calls, return_exceptions=True)
            return [*failed, await good.complete([{"role": "user", "content": "good"}])]
        finally:
            await endpoints.close()

    with FaultEndpoint(lambda message, nth: "503" if message == "bad" else "ok") as endpoint:
        *failed, answered = asyncio.run(main(endpoint.base_url))
    assert codes(failed) == {UNREACHABLE}
    assert answered.content == "answer to good"
