"""An agent that hangs up: what its model generated all the same is counted, else estimated."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from runners.gateway.gateway_support import PLAIN, Served, served
from runners.gateway.test_gateway_passing import (
    ASKED,
    CALL_USAGE,
    PATHS,
    REPLIES,
    STREAMED,
    STREAMS,
    Upstream,
    answered,
    as_usage,
    events,
    ok,
    passing,
    streaming,
)
from support.fault_endpoint import FaultEndpoint, always

from pytest_agentbench.engine.budget import over_budget
from pytest_agentbench.errors import ProviderError
from pytest_agentbench.records.case import Model, Prices


async def hang_up(it: Served, path: str, body: bytes, upstream: Upstream, first: bytes = b"") -> None:
    """Ask, and go once the endpoint has the request, and the agent what the reply begins with."""
    asked = len(upstream.requests)
    reader, writer = await asyncio.open_unix_connection(it.socket)
    writer.write(f"POST {path} HTTP/1.1\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
    while len(upstream.requests) == asked:  # noqa: ASYNC110 - nobody else waits for that
        await asyncio.sleep(0.005)
    if first:
        await reader.readuntil(first)
    writer.transport.abort()


@pytest.mark.parametrize("moment", ["before the first byte", "in the middle", "whole"])
@pytest.mark.parametrize("dialect", PATHS)
def test_the_reply_to_an_agent_that_hung_up_is_counted_in_every_dialect(tmp_path, dialect, moment):
    first, *rest = [each.encode() for each in STREAMS[dialect]]
    before, whole = moment == "before the first byte", moment == "whole"
    pieces = [0.05, first, *rest] if before else [first, 0.05, *rest]
    answer = ok(0.05, REPLIES[dialect].encode()) if whole else events(*pieces)
    path, body = (PATHS if whole else STREAMED)[dialect], (ASKED[dialect] if whole else streaming(dialect)).encode()

    async def run() -> None:
        async with Upstream([answer]).serving() as upstream, passing(tmp_path, upstream, api=dialect) as it:
            await hang_up(it, path, body, upstream, b"" if before or whole else first.strip())
            await answered(it)
            assert as_usage(it.trace.usage) == as_usage(CALL_USAGE)
            assert it.trace.usage.unsettled is None
            assert it.gateway.failure is None
            assert len(upstream.requests) == 1

    asyncio.run(run())


@pytest.mark.parametrize("dialect", PATHS)
def test_the_reply_is_counted_if_the_request_was_translated(tmp_path, dialect):
    body = streaming(dialect).encode()

    async def run() -> None:
        async with Upstream([ok(0.05, REPLIES["chat"].encode())]).serving() as upstream:
            async with passing(tmp_path, upstream, policy=PLAIN) as it:
                await hang_up(it, STREAMED[dialect], body, upstream)
                await answered(it)
            assert as_usage(it.trace.usage) == as_usage(CALL_USAGE)

    asyncio.run(run())


def test_a_turns_end_reads_the_replies_on_that_nobody_waits_for(tmp_path):
    async def run() -> None:
        first, *rest = [each.encode() for each in STREAMS["chat"][1:]]
        answers = [ok(0.05, REPLIES["chat"].encode()), events(first, 0.05, *rest)]
        async with Upstream(answers).serving() as upstream, passing(tmp_path, upstream) as it:
            with it.gateway.turn("Go."):
                asking = [
                    asyncio.create_task(it.http.post(PATHS["chat"], content=body))
                    for body in (ASKED["chat"], streaming("chat"))
                ]
                while len(upstream.requests) < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
            await asyncio.gather(*asking, return_exceptions=True)
            await answered(it)
            assert as_usage(it.trace.usage) == as_usage(CALL_USAGE + CALL_USAGE)

    asyncio.run(run())


PRICES = Prices(input_per_1m=0, output_per_1m=1_000_000)


def priced(endpoint: FaultEndpoint) -> Model:
    """A model of which each reply costs 5 USD."""
    way = {"base_url": endpoint.base_url, "api_key_env": None, "prices": PRICES}
    return Model(model_id="m", requested_model="m-1", **way)


def test_a_cost_that_never_comes_is_estimated_and_the_run_asks_nothing_more_under_a_limit(tmp_path):
    async def run(endpoint: FaultEndpoint) -> None:
        limit = partial(over_budget, 1000.0, None)
        async with served(priced(endpoint), tmp_path, over_budget=limit, outage_seconds=0.05) as it:
            asking = asyncio.create_task(it.ask(max_tokens=70))
            while not endpoint.requests:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            asking.cancel()
            await answered(it)
            usage = it.trace.usage
            assert (usage.cost_usd, usage.total_tokens) == (None, None)
            assert (usage.unsettled.requests, usage.unsettled.given_up) == (1, 1)
            assert (usage.unsettled.known_cost_usd, usage.unsettled.estimated_cost_usd) == (None, 70.0)
            endpoint.choose = always("ok")
            assert (await it.ask()).status_code == 400
            assert isinstance(it.gateway.failure, ProviderError)
            assert it.gateway.failure.code == "over_budget"
            assert "the agent hung up on 1 request whose cost is unknown" in str(it.gateway.failure)
        assert len(endpoint.requests) == 1

    with FaultEndpoint(always("hang")) as endpoint:
        asyncio.run(run(endpoint))


@pytest.mark.slow
def test_an_agent_that_hangs_up_on_many_requests_pays_for_all_and_exceeds_a_limit_by_those_in_flight(tmp_path):
    async def run(endpoint: FaultEndpoint) -> None:
        async with served(priced(endpoint), tmp_path, over_budget=partial(over_budget, 0.01, None)) as it:
            asking = [asyncio.create_task(it.ask(stream=number % 2 == 0)) for number in range(32)]
            while len(endpoint.requests) < 8:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            for task in asking:
                task.cancel()
            await answered(it)
            assert (await it.ask()).status_code == 400
            assert it.gateway.failure.code == "over_budget"
        assert it.trace.usage.cost_usd == 5.0 * len(endpoint.requests)
        assert len(endpoint.requests) == 8

    with FaultEndpoint(latency=0.2) as endpoint:
        asyncio.run(run(endpoint))


def test_a_request_that_was_not_sent_yet_costs_nothing(tmp_path):
    async def run(endpoint: FaultEndpoint) -> None:
        model = priced(endpoint).model_copy(update={"base_url": "http://127.0.0.1:1/v1"})
        async with served(model, tmp_path, outage_seconds=0.05) as it:
            assert (await it.ask()).status_code == 400
            assert it.trace.usage.unsettled is None

    with FaultEndpoint() as endpoint:
        asyncio.run(run(endpoint))


def test_a_hang_up_ends_the_repetitions_of_a_request(tmp_path):
    async def run(endpoint: FaultEndpoint) -> None:
        async with served(priced(endpoint), tmp_path, retries=100) as it:
            asking = asyncio.create_task(it.ask())
            while not endpoint.requests:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            asking.cancel()
            await answered(it)
            assert it.trace.usage.unsettled is None  # an error status is not billed
        assert len(endpoint.requests) == 1

    with FaultEndpoint(always("500"), latency=0.05) as endpoint:
        asyncio.run(run(endpoint))
