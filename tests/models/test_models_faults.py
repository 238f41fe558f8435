"""Every way an endpoint can fail: the right outcome, and a message that says what to do."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from support.fault_endpoint import TRANSIENT, FaultEndpoint, always, in_order, share_of

from pytest_agentbench.errors import ProviderError
from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.models.failures import Backoff, RequestFailed
from pytest_agentbench.models.messages import ChatReply
from pytest_agentbench.models.replies import read_reply
from pytest_agentbench.records.case import Limits, Model

QUICK = Backoff(first=0.001, longest=0.004, longest_retry_after=0.05)


def model_at(endpoint: FaultEndpoint, **fields) -> Model:
    defaults = {"model_id": "gpt4o", "requested_model": "gpt-4o", "api_key_env": "TEST_KEY"}
    return Model(**defaults | {"base_url": endpoint.base_url} | fields)


def ask(endpoint: FaultEndpoint, *texts: str, backoff: Backoff = QUICK, model: Model | None = None, **options) -> list:
    """What each text ended with: a reply or the error."""

    async def main() -> list:
        endpoints = Endpoints(backoff=backoff, environ={"TEST_KEY": "sk-secret"})
        client = endpoints.client(model or model_at(endpoint))
        calls = [client.complete([{"role": "user", "content": text}], **options) for text in texts]
        try:
            return await asyncio.gather(*calls, return_exceptions=True)
        finally:
            await endpoints.close()

    return asyncio.run(main())


@pytest.mark.parametrize("fault", [*TRANSIENT, "408", "429-retry-date", "error-inside"])
def test_a_transient_fault_is_repeated(fault):
    with FaultEndpoint(in_order(fault, fault)) as endpoint:
        [reply] = ask(endpoint, "hello")
    assert isinstance(reply, ChatReply), reply
    assert (reply.content, reply.attempts, len(endpoint.requests)) == ("answer to hello", 3, 3)


def test_a_page_in_place_of_an_answer_is_not_asked_for_again():
    with FaultEndpoint(always("html")) as endpoint:
        [error] = ask(endpoint, "hello", retries=2)
    assert isinstance(error, ProviderError), error
    assert (error.code, error.reason, len(endpoint.requests)) == ("invalid_response", "rejected", 1)
    assert "its content type is text/html; it begins '<html><title>Welcome" in str(error)


def ask_in_order(endpoint: FaultEndpoint, *asked: tuple[Model, str], retries: int = 1, **options) -> list:
    """What each (model, text) ended with, one asked after the other in one session."""

    async def main() -> list:
        endpoints, ended = Endpoints(backoff=QUICK), []
        try:
            for model, text in asked:
                message = [{"role": "user", "content": text}]
                try:
                    ended.append(await endpoints.client(model).complete(message, retries=retries, **options))
                except ProviderError as error:
                    ended.append(error)
        finally:
            await endpoints.close()
        return ended

    return asyncio.run(main())


def page_for(text: str, *pages: str):
    """The requests with this text meet the pages, one after the other, all others are answered."""
    return lambda message, nth: pages[nth] if message == text and nth < len(pages) else "ok"


@pytest.mark.parametrize("page", ["html", "text", "html-404"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_page_after_a_good_answer_is_asked_for_again(page, stream):
    with FaultEndpoint(page_for("second", page)) as endpoint:
        model = model_at(endpoint, stream=stream)
        first, second = ask_in_order(endpoint, (model, "first"), (model, "second"))
    assert (first.attempts, second.attempts) == (1, 2)
    assert second.content == "answer to second"


def test_a_page_that_stays_after_a_good_answer_ends_as_an_outage():
    with FaultEndpoint(page_for("second", "html", "html")) as endpoint:
        model = model_at(endpoint)
        _, error = ask_in_order(endpoint, (model, "first"), (model, "second"))
    assert (error.code, error.reason, error.retryable) == ("server_error", "provider_error", True)
    assert "HTTP 200 with a page (text/html) in place of an answer; it begins '<html><title>Welcome" in str(error)
    assert len(endpoint.requests) == 3


@pytest.mark.parametrize("page", ["html", "text", "html-404"])
@pytest.mark.parametrize("before", ["400", "429", "500", "malformed", "html"])
def test_an_invalid_answer_does_not_prove_the_address(page, before):
    with FaultEndpoint(lambda message, nth: before if message == "first" else page) as endpoint:
        model = model_at(endpoint)
        _, error = ask_in_order(endpoint, (model, "first"), (model, "second"))
        assert sum(request.message == "second" for request in endpoint.requests) == 1
    assert error.reason == "rejected"


@pytest.mark.parametrize(
    ("changed", "page", "repeated"),
    [
        ({"model_id": "same"}, "html", True),
        ({"api_key_env": None}, "html", True),
        ({"requested_model": "other"}, "html", False),
        ({"requested_model": "other"}, "html-404", False),
        ({"api": "responses"}, "html", False),
    ],
)
def test_a_good_answer_proves_its_protocol_and_its_model(changed, page, repeated):
    with FaultEndpoint(lambda message, nth: "ok" if message == "first" else page) as endpoint:
        first, second = model_at(endpoint), model_at(endpoint, **changed)
        _, error = ask_in_order(endpoint, (first, "first"), (second, "second"))
    assert error.reason == ("provider_error" if repeated else "rejected")
    assert len(endpoint.requests) == (3 if repeated else 2)


@pytest.mark.parametrize(
    ("fault", "code", "advice"),
    [
        ("429", "rate_limited", "lower limits.max_concurrency"),
        ("429-retry-after", "rate_limited", "lower limits.max_concurrency"),
        ("500", "server_error", "run again later"),
        ("cut", "connection", "its server runs"),
        ("cut-body", "connection", "its server runs"),
        ("malformed", "invalid_response", "its JSON is malformed"),
        ("no-choices", "invalid_response", "it has no choices"),
        ("error-inside", "server_error", "Upstream provider failed"),
    ],
)
def test_a_fault_that_stays_ends_in_its_error(fault, code, advice):
    with FaultEndpoint(always(fault)) as endpoint:
        [error] = ask(endpoint, "hello", retries=2)
    assert isinstance(error, ProviderError), error
    assert (error.code, error.retryable, len(endpoint.requests)) == (code, True, 3)
    message = str(error)
    assert advice in message
    assert message.startswith(f"model 'gpt4o' at {endpoint.base_url}: ")
    assert "(3 attempts in " in message


@pytest.mark.parametrize(
    ("fault", "code", "advice"),
    [
        ("400", "bad_request", "Unsupported parameter: 'banana'. Check the request parameters (temperature;"),
        ("401", "authentication", "Check the key in TEST_KEY"),
        ("403", "permission", "The key in TEST_KEY may not use 'gpt-4o'"),
        ("404", "not_found", "Check requested_model ('gpt-4o') and base_url"),
        ("quota", "quota", "check its billing"),
    ],
)
def test_a_refusal_is_not_repeated(fault, code, advice):
    with FaultEndpoint(always(fault)) as endpoint:
        [error] = ask(endpoint, "hello", model=model_at(endpoint, parameters={"temperature": 0}))
    assert isinstance(error, ProviderError), error
    assert (error.code, error.retryable, len(endpoint.requests)) == (code, False, 1)
    assert advice in str(error)


@pytest.mark.parametrize("finish", ["abort", "aborted", "cancelled", "canceled", "Abort", "error"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_generation_that_the_server_gave_up_is_asked_again_and_then_an_error(finish, stream):
    half = {"role": "assistant", "content": "Par", "finish_reason": finish}
    told = []

    def note(reason, wait, partial=None):
        told.append((reason, partial))

    with FaultEndpoint(answer=lambda body: half) as endpoint:
        [error] = ask(endpoint, "hello", retries=1, stream=stream, on_retry=note)
    assert isinstance(error, ProviderError), error
    reason, said = "aborted", "the server stopped generating"
    if finish == "error":
        reason, said = "provider_error", "the generation broke off"
    assert (error.code, error.reason, error.retryable) == ("broken_off", reason, True)
    assert (len(endpoint.requests), error.partial, error.detail.raw) == (2, "Par", finish)
    assert told == [(f"{said} (finish_reason: {finish})", "Par")]
    assert f"{said} (finish_reason: {finish}) (2 attempts" in str(error)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["slow-body", "hang"])
def test_the_timeout_bounds_the_whole_request_even_while_bytes_keep_coming(fault):
    with FaultEndpoint(in_order(fault)) as endpoint:
        [reply] = ask(endpoint, "hello", timeout=0.2)
        [error] = ask(endpoint, "hello again", timeout=0.1, retries=0)
    assert (reply.content, reply.attempts) == ("answer to hello", 2)
    assert error.code == "timeout"
    assert "no complete reply within 0.1 s. Raise timeout_seconds" in str(error)


def test_nobody_listens():
    with FaultEndpoint() as endpoint:
        model = model_at(endpoint)
    [error] = ask(endpoint, "hello", model=model, retries=1)
    assert error.code == "connection"
    assert f"Check that base_url ({endpoint.base_url}) is right" in str(error)


def test_a_key_is_sent_and_never_shown():
    with FaultEndpoint(always("401")) as endpoint:
        [error] = ask(endpoint, "hello")
    assert endpoint.requests[0].headers["authorization"] == "Bearer sk-secret"
    assert "sk-secret" not in str(error)


@pytest.mark.slow
def test_retry_after_is_waited_for():
    with FaultEndpoint(in_order("429-retry-after"), retry_after=0.3) as endpoint:
        began = time.monotonic()
        [reply] = ask(endpoint, "hello", backoff=Backoff(first=0.001, longest_retry_after=5))
    assert reply.attempts == 2
    assert 0.3 <= time.monotonic() - began < 10


def test_retry_after_is_capped():
    with FaultEndpoint(in_order("429-retry-after"), retry_after=3600) as endpoint:
        [reply] = ask(endpoint, "hello")
    assert reply.attempts == 2


def test_every_retry_is_reported():
    told = []
    with FaultEndpoint(in_order("500", "no-choices")) as endpoint:
        ask(endpoint, "hello", on_retry=lambda reason, wait: told.append((reason, wait)))
    assert [reason for reason, _ in told] == [
        "HTTP 500: The server had an error",
        told[1][0],
    ]
    assert "it has no choices" in told[1][0]
    assert all(0 < wait <= QUICK.longest for _, wait in told)
    assert [request.headers["x-stainless-retry-count"] for request in endpoint.requests] == ["0", "1", "2"]


@pytest.mark.slow
def test_a_thousand_calls_at_30_percent_faults_lose_nothing():
    texts = [f"question {n}" for n in range(1000)]
    with FaultEndpoint(share_of(0.3)) as endpoint:
        replies = ask(endpoint, *texts)
    assert [reply for reply in replies if not isinstance(reply, ChatReply)] == []
    assert [reply.content for reply in replies] == [f"answer to {text}" for text in texts]
    assert sum(reply.attempts for reply in replies) == len(endpoint.requests)
    met = endpoint.faults
    assert met["ok"] == 1000
    assert set(met) == {"ok", *TRANSIENT}
    assert 0.25 < 1 - met["ok"] / met.total() < 0.35


@pytest.mark.slow
def test_only_calls_whose_every_attempt_failed_end_in_an_error():
    own = ("429", "429-retry-after", "500", "malformed", "no-choices")  # what looks like an outage takes no retries
    texts, choose = [f"question {n}" for n in range(200)], share_of(0.5, own, in_a_row=None)
    unlucky = {text for text in texts if all(choose(text, nth) != "ok" for nth in range(3))}
    with FaultEndpoint(choose) as endpoint:
        outcomes = dict(zip(texts, ask(endpoint, *texts, retries=2), strict=True))
    assert {text for text, outcome in outcomes.items() if isinstance(outcome, ProviderError)} == unlucky != set()
    assert all(isinstance(outcome, ChatReply) for text, outcome in outcomes.items() if text not in unlucky)


@pytest.mark.slow
def test_an_endpoint_that_bears_little_is_found_out_and_everything_still_answered():
    texts = [f"question {n}" for n in range(300)]
    with FaultEndpoint(capacity=4, latency=0.002) as endpoint:
        model = model_at(endpoint, limits=Limits(max_concurrency=64))
        replies = ask(endpoint, *texts, model=model, retries=8)
    assert all(isinstance(reply, ChatReply) for reply in replies)
    assert endpoint.faults["429"] < 300  # without adapting, nearly every round of 64 would meet 60


@pytest.mark.slow
def test_connections_are_pooled_and_concurrency_is_kept():
    with FaultEndpoint(latency=0.05) as endpoint:
        ask(endpoint, *map(str, range(200)), model=model_at(endpoint, limits=Limits(max_concurrency=20)))
    assert endpoint.peak == 20
    assert endpoint.connections < 40  # for 200 requests; turns between pools open a few more than are in flight


@pytest.mark.slow
def test_no_slot_is_held_during_back_off():
    with FaultEndpoint(lambda message, nth: "500" if message == "first" and nth == 0 else "ok") as endpoint:
        limits = Limits(max_concurrency=1)
        slow = Backoff(first=0.3, longest=0.3)
        ask(endpoint, "first", "second", "third", model=model_at(endpoint, limits=limits), backoff=slow)
    assert [request.message for request in endpoint.requests] == ["first", "second", "third", "first"]


def test_cancelled_calls_give_their_slots_back():
    with FaultEndpoint(latency=0.05) as endpoint:

        async def main() -> str | None:
            endpoints = Endpoints(backoff=QUICK, concurrency=2)
            client = endpoints.client(model_at(endpoint, api_key_env=None))
            calls = [asyncio.create_task(client.complete([{"role": "user", "content": str(n)}])) for n in range(9)]
            await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
            try:
                return (await client.complete([{"role": "user", "content": "a \ud800"}])).content
            finally:
                await endpoints.close()

        assert asyncio.run(main()) == "answer to a ?"
    assert endpoint.peak <= 4  # a cancelled request ends at the endpoint a little later


@pytest.mark.parametrize(
    ("inside", "code"),
    [
        ({"code": 402, "message": "Insufficient credits"}, "quota"),
        ({"code": 429, "message": "Slow down"}, "rate_limited"),
        ("model not loaded", "server_error"),
    ],
)
def test_an_error_in_a_reply_with_status_200(inside, code):
    body = json.dumps({"error": inside}).encode()
    model = Model(model_id="m", requested_model="m")
    with pytest.raises(RequestFailed) as failed:
        read_reply(body, "application/json", model, attempts=1, seconds=0)
    assert failed.value.code == code
    assert (inside if isinstance(inside, str) else inside["message"]) in failed.value.summary


def test_tool_parameters_are_sent_only_with_tools():
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    wanted = {"tool_choice": "auto", "parallel_tool_calls": False}
    with FaultEndpoint() as endpoint:
        ask(endpoint, "with", tools=[tool], parameters=wanted)
        ask(endpoint, "without", parameters=wanted)
    with_tools, without = (request.body for request in endpoint.requests)
    assert with_tools.keys() - without.keys() == {"tools", *wanted}
