"""An endpoint that answers only with 429: few requests are sent, and the others wait until one is answered."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter

import pytest
from support.fault_endpoint import Choose, FaultEndpoint, always

from pytest_agentbench.errors import UNREACHABLE
from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.models.failures import Backoff
from pytest_agentbench.models.limits import Patience
from pytest_agentbench.records.case import Limits, Model

QUICK = Backoff(first=0.001, longest=0.004)


def ask(endpoint: FaultEndpoint, count: int, patience: Patience, **options) -> tuple[list, list]:
    """What as many requests at once ended with, and what was told of rate limits."""
    told: list = []

    async def main() -> list:
        endpoints = Endpoints(
            backoff=QUICK, environ={}, patience=patience, tell_limited=lambda *said: told.append(said), tell=told.append
        )
        fields = {"requested_model": "m", "base_url": endpoint.base_url, "limits": Limits(max_concurrency=20)}
        client = endpoints.client(Model(model_id="m", **fields))
        calls = [client.complete([{"role": "user", "content": str(n)}], **options) for n in range(count)]
        try:
            return await asyncio.gather(*calls, return_exceptions=True)
        finally:
            await endpoints.close()

    return asyncio.run(main()), told


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["429", "429-retry-after"])
def test_an_endless_429_is_met_by_few_requests_and_ends_all_in_errors(fault):
    patience = Patience(first=0.1, longest=0.2)
    with FaultEndpoint(always(fault), retry_after=0.2) as endpoint:
        outcomes, told = ask(endpoint, 100, patience, outage_seconds=1)
        # What was in flight when the limit was met, and a probe for each interval
        assert len(endpoint.requests) <= 20 + 12
    assert {(each.code, each.reason) for each in outcomes} == {(UNREACHABLE, "provider_error")}
    assert re.search(r"has answered only with 429 for [1-9]\d* s, so it is not asked any more", str(outcomes[0]))
    assert told == []  # nothing was waited out


def limited_for(seconds: float) -> Choose:
    began = time.monotonic()
    return lambda message, nth: "429" if time.monotonic() < began + seconds else "ok"


@pytest.mark.slow
def test_a_rate_limit_that_ends_costs_no_request_its_answer():
    with FaultEndpoint(limited_for(0.5)) as endpoint:
        outcomes, told = ask(endpoint, 100, Patience(first=0.05, longest=0.1), outage_seconds=30)
        met = endpoint.faults["429"]
    assert Counter(type(each).__name__ for each in outcomes) == {"ChatReply": 100}
    assert met <= 20 + 12
    [(model_id, replies, seconds)] = told
    assert (model_id, replies) == ("m", met)
    assert 0.3 < seconds < 5


@pytest.mark.slow
def test_a_probe_is_no_earlier_than_retry_after_asks():
    with FaultEndpoint(lambda message, nth: "429-retry-after" if nth == 0 else "ok", retry_after=0.5) as endpoint:
        ask(endpoint, 10, Patience(first=0.01, longest=0.02), outage_seconds=30)
        times = [request.at for request in endpoint.requests]
    assert min(times[10:]) - times[4] > 0.45


def test_given_retries_bound_the_probes_of_each_request():
    with FaultEndpoint(always("429")) as endpoint:
        outcomes, _ = ask(endpoint, 6, Patience(first=0.001, longest=0.002), retries=3)
        assert len(endpoint.requests) == 6 * 4
    assert {each.code for each in outcomes} == {"rate_limited"}
