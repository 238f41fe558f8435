"""The chat client: one request with retries, within its endpoint's limits."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import quote

from pytest_agentbench.ending import before_sending, counted
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.models.attempts import Attempts, OnRetry, RateLimitWaits
from pytest_agentbench.models.billing import Flight
from pytest_agentbench.models.failures import (
    Backoff,
    RequestFailed,
    proxy_page,
    redirected,
    retry_after_seconds,
    status_failed,
    timed_out,
)
from pytest_agentbench.models.learning import MOST_CHANGES, Lessons, refuses_form
from pytest_agentbench.models.limits import OUTAGE, Admission, Breaker, Passage, Patience, Paused, Throttle, Throttling
from pytest_agentbench.models.messages import ChatReply
from pytest_agentbench.models.metering import METER
from pytest_agentbench.models.replies import RawReply, read_reply
from pytest_agentbench.models.routes import CASE_HEADER, DEFAULT_BASE_URL, ROLE_HEADER
from pytest_agentbench.models.spelling import BYTES_PER_TOKEN, Spelling, compose_request, dialect_of, write_request
from pytest_agentbench.models.standing import Answered, Standing
from pytest_agentbench.records.case import Limits, Model, Streamed, header_variable
from pytest_agentbench.secrets.redaction import strip_credentials

if TYPE_CHECKING:
    from pytest_agentbench.models.batches.collector import Batcher, Batches, Collected
    from pytest_agentbench.models.passing import PassedRequest
    from pytest_agentbench.models.scripts import Scripts

_STREAMED_FROM = 60
"""`stream: auto` streams requests with a time limit of more seconds than this."""
_STALL_SECONDS = 60.0

Metered = tuple[str | None, str | None, str]
"""Key of a set of limits: endpoint, name of the key's variable, model."""

_Send = Callable[..., Awaitable[RawReply]]
"""Sends a request once, with additional `headers=`."""

Provider = Callable[[Model], "ChatClient"]
"""A plugin's way to a model that is not OpenAI-compatible: makes something that works like a ChatClient."""


class Connection(Protocol):
    """A way to one endpoint, which all requests to it share."""

    async def send(self, body: bytes, headers: Mapping[str, str], stall_seconds: float | None = None) -> RawReply:
        """Return the reply to a request with any status. Raises RequestFailed if there is none.

        With `stall_seconds` the events of a streamed reply are joined, with at most this time between two of them.
        """
        ...

    async def close(self) -> None:
        """Close open connections."""
        ...


class WireConnection(Connection, Protocol):
    """A connection over HTTP, on which agents' own requests can pass through."""

    async def forward(self, passed: PassedRequest, headers: Mapping[str, str], stall_seconds: float) -> RawReply:
        """Send a request like `send`. Its agent gets a successful reply as it comes."""
        ...


class Endpoints:
    """The endpoints of one event loop: one connection, which requests share, for each (base_url, key).

    `concurrency` is the number of requests in flight for models that declare none (default: the record's 64). `shared`
    returns the limits that this process shares with others, from their key and the declared limits, if a model declares
    any. Scripted models are answered in process from `scripts`. `tell` gets a sentence after each outage;
    `tell_limited` gets, at the end, the number of 429s of each model and the seconds waited. `patience` limits how long
    requests wait for an endpoint. `learned` is the file of adaptations learned from refusals; None discards them at the
    end. `batches` opens the session's batches, if a model may have some.
    """

    def __init__(
        self,
        *,
        scripts: Scripts | None = None,
        concurrency: int | None = None,
        providers: Mapping[str, Provider] | None = None,
        backoff: Backoff | None = None,
        environ: Mapping[str, str] = os.environ,
        shared: Callable[[Metered, Limits], Throttling] | None = None,
        tell: Callable[[str], None] = lambda text: None,
        tell_limited: Callable[[str, int, float], None] = lambda model_id, replies, seconds: None,
        patience: Patience = Patience(),  # noqa: B008 - frozen
        wrap: Callable[[Connection], Connection] = lambda connection: connection,
        learned: Path | None = None,
        batches: Callable[[], Batches] | None = None,
    ) -> None:
        self._lessons = Lessons(learned)
        self.backoff = backoff or Backoff()
        self._tell, self._tell_limited, self._patience, self._wrap = tell, tell_limited, patience, wrap
        self._waits: dict[str, RateLimitWaits] = {}
        self._breakers: dict[tuple[str, str], Breaker] = {}
        self._answered = Answered()
        self._standings: dict[Hashable, Standing] = {}
        self._shared = shared
        self._scripts = scripts
        self._concurrency = concurrency
        self._providers = providers or {}
        self._environ = environ
        self._made: dict[str, tuple[Model, ChatClient]] = {}
        self._connections: dict[Hashable, Connection] = {}
        self._spellings: dict[Hashable, Spelling] = {}
        self._throttles: dict[Metered, Throttling] = {}
        self._by_default: list[Throttle] = []
        """Limits of models that declare no number of requests in flight."""
        self._open_batches = batches
        self._batches: Batches | None = None

    def keep_environ(self) -> None:
        """Read keys from the variables as they are now, independent of later changes."""
        self._environ = dict(self._environ)

    def client(self, model: Model) -> ChatClient:
        """Return a client for `model`; cheap, as connections and limits are shared by endpoint.

        Raises ConfigError if no plugin adds `model.provider`.
        """
        if model.provider is not None:
            return self._client_of_plugin(model)
        # By the variable and not the key in it: keys stay out of everything that could be logged.
        endpoint = ("scripted", None) if model.scripted else (model.base_url, model.api_key_env)
        throttle = self._throttle((*endpoint, model.requested_model), model.limits)
        way = (
            *endpoint,
            *model.headers.items(),
            *model.query.items(),
            model.api,
            model.dialect,
            model.dialect_overrides,
        )
        # Requests share a connection if everything that it puts into their heads is equal.
        connection = self._connections.get(way)
        if connection is None:
            connection = self._connections[way] = self._wrap(self._connect(model))
        breaker, batcher, lessons = None, None, None
        if not model.scripted:
            breaker, batcher, lessons = self._breaker(model), self._batcher(model), self._lessons
        spelling = self._spellings.get((way, model.requested_model))
        if spelling is None:
            spelling = self._spellings[way, model.requested_model] = Spelling(dialect_of(model), model, lessons)
        who = (model.base_url, model.api, model.requested_model, *model.variables)
        standing = self._standings.get(who)
        if standing is None:
            standing = self._standings[who] = Standing(model, self._answered)
        open_wire = self.client
        client = ChatClient(model, connection, throttle, self.backoff, breaker, spelling, batcher, open_wire, standing)
        client.waits = self._waits.setdefault(model.model_id, client.waits)
        return client

    def _batcher(self, model: Model) -> Batcher | None:
        if self._batches is None and self._open_batches is not None:
            self._batches = self._open_batches()
        if self._batches is None:
            return None
        return self._batches.batcher(model, *read_keys(model, self._environ))

    def _breaker(self, model: Model) -> Breaker:
        where = model.base_url or DEFAULT_BASE_URL
        key = where, model.requested_model
        if key not in self._breakers:
            self._breakers[key] = Breaker(strip_credentials(where), self._tell, self._patience)
        return self._breakers[key]

    def describe_pauses(self) -> str:
        """Return the endpoints that requests wait for, empty if none waits."""
        pauses = (
            (strip_credentials(where), breaker.describe_pause()) for (where, _), breaker in self._breakers.items()
        )
        return ", ".join({where: pause for where, pause in pauses if pause is not None}.values())

    def _throttle(self, metered: Metered, limits: Limits) -> Throttling:
        throttle = self._throttles.get(metered)
        if throttle is None:
            if self._shared is not None and limits.model_fields_set:
                throttle = self._shared(metered, limits)
            else:
                throttle = Throttle(self._max_in_flight(limits), limits.rpm, limits.tpm)
                if "max_concurrency" not in limits.model_fields_set:
                    self._by_default.append(throttle)
            self._throttles[metered] = throttle
        return throttle

    def retune(self, concurrency: int) -> None:
        """Let so many requests be in flight at each model that declares no number. Call on the event loop."""
        self._concurrency = concurrency
        for throttle in self._by_default:
            throttle.concurrency.move(concurrency)

    def _max_in_flight(self, limits: Limits) -> int:
        declared = "max_concurrency" in limits.model_fields_set
        if declared or self._concurrency is None:
            return limits.max_concurrency
        return self._concurrency

    def _client_of_plugin(self, model: Model) -> ChatClient:
        # Compared and not only found by id: two roots may give one id to different models.
        client = self._made.get(model.model_id)
        if client is None or client[0] != model:
            provider = self._providers.get(model.provider or "")
            if provider is None:
                known = ", ".join(sorted(self._providers)) or "none"
                raise ConfigError(
                    f"model {model.model_id!r}: unknown provider {model.provider!r}; plugins add: {known}"
                )
            client = self._made[model.model_id] = (model, provider(model))
        return client[1]

    async def close(self) -> None:
        """Close all connections."""
        # Removed first: a run that starts meanwhile gets new connections, not ones that are being closed.
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            await connection.close()
        waits, self._waits = self._waits, {}
        for model_id, waited in waits.items():
            if waited.replies:
                self._tell_limited(model_id, waited.replies, waited.seconds)
        batches, self._batches = self._batches, None
        if batches is not None:
            await batches.close()

    def _connect(self, model: Model) -> Connection:
        # Imported with the first request: OpenAI's client takes half a second of CPU, and scripts need none.
        if model.scripted:
            from pytest_agentbench.models.completions import ScriptedConnection
            from pytest_agentbench.models.scripts import Scripts

            return ScriptedConnection(self._scripts or Scripts())
        from pytest_agentbench.models.connections import HttpConnection

        return HttpConnection(model, *read_keys(model, self._environ), dialect_of(model).auth_header)


def read_keys(model: Model, environ: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the key, "" if there is none, and the headers with their keys filled in."""
    headers = dict(model.headers)
    for name, value in model.headers.items():
        if (variable := header_variable(value)) is not None:
            headers[name] = environ.get(variable, "").strip()
    return environ.get(model.api_key_env or "", "").strip(), headers


class ChatClient:
    """A client for one model. `taped` is set if a cassette keeps its answers, `takes_alone` if `complete` accepts
    `alone`.
    """

    taped = False
    takes_alone = True

    def __init__(
        self,
        model: Model,
        connection: Connection,
        throttle: Throttling,
        backoff: Backoff,
        breaker: Breaker | None = None,
        spelling: Spelling | None = None,
        batcher: Batcher | None = None,
        open_wire: Callable[[Model], ChatClient] | None = None,
        standing: Standing | None = None,
    ) -> None:
        """Set up a client; `open_wire` opens the clients of the model's further wires."""
        self._standing = standing or Standing(model, Answered())
        self._batcher, self._open_wire = batcher, open_wire
        self.model = model
        self.spelling = spelling or Spelling(dialect_of(model), model)
        self._connection = connection
        self._throttle = throttle
        self.backoff = backoff
        self.breaker = breaker
        self.waits = RateLimitWaits()

    @counted
    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        parameters: Mapping[str, Any] | None = None,
        timeout: float = 30,  # noqa: ASYNC109 - of each request, not of the call with its retries
        retries: int | None = None,
        outage_seconds: float = OUTAGE,
        case_id: str | None = None,
        on_retry: OnRetry | None = None,
        own: Collection[str] = (),
        stream: Streamed | None = None,
        stall_seconds: float | None = None,
        alone: bool = False,
    ) -> ChatReply:
        """Return one chat completion.

        `parameters` are further fields of the request; they take precedence over the model's own, and None removes one.
        `timeout` (seconds) limits each request. After its first transient failure it is repeated for `outage_seconds`
        (0: until the run's time limit), and at most `retries` times, if set; waiting for the end of an outage does not
        count as a retry. No slot is held while waiting. `on_retry` gets the reason and the wait in seconds. `case_id`
        reaches scripted models only. A request that the endpoint refuses because of its form is adapted and sent again
        at once; the parameters in `own` are kept. `stream` requests the reply as events, with at most `stall_seconds`
        between two of them; None: as in the model's entry. `alone` means that no other request waits for the reply, so
        it may come in a batch. Raises ProviderError if there was no usable reply.
        """
        composed = compose_request(self.model, messages, tools, parameters or {})
        stall = self._choose_stall(stream, stall_seconds, timeout)
        batcher = self._batcher if alone else None
        request, adapted = self._spell(composed, own)
        native = self.spelling.write(request)
        body = self._write(native, stall)
        attempts, learned = self._attempts(retries, outage_seconds, on_retry), 0
        with attempts:
            while True:
                attempts.number += 1
                try:
                    if batcher is not None and (collected := await batcher.ask(native)) is not None:
                        reply = self._read_collected(collected, attempts.number)
                    else:
                        send = partial(self._send, body, self.spelling.api.headers(native, self.model), stall)
                        flight = Flight(self.model, body, request, METER.get())
                        reply = await self._attempt(send, flight, timeout, attempts, case_id)
                    attempts.succeed()
                    if adapted:
                        return replace(reply, adapted=adapted)
                    return reply
                except RequestFailed as failed:
                    if "response_format" in request and refuses_form(failed.status, failed.body):
                        failed.code, failed.reason, failed.retryable = "bad_request", "rejected", False
                    if (
                        failed.reason == "rejected"
                        and learned < MOST_CHANGES
                        and self.spelling.learn(failed, request, own)
                    ):
                        learned += 1
                        request, adapted = self._spell(composed, own)
                        native = self.spelling.write(request)
                        body = self._write(native, stall)
                        continue
                    batcher = None  # repetitions are sent directly: another batch may take a day
                    await attempts.wait(failed)

    @counted
    async def forward(
        self,
        passed: PassedRequest,
        *,
        timeout: float = 30,  # noqa: ASYNC109 - of each request, as for `complete`
        retries: int | None = None,
        outage_seconds: float = OUTAGE,
        on_retry: OnRetry | None = None,
        stall_seconds: float | None = None,
    ) -> ChatReply:
        """Return the reply to an agent's own request, which is sent in its own API. The agent gets the reply as it
        comes.

        The request is repeated as by `complete`, until its reply begins. Raises ProviderError as `complete` does.
        """
        wire = self.model.find_wire(passed.api)
        assert wire is not None, "requests in other APIs are translated"
        if wire is not self.model and self._open_wire is not None:
            further = {"retries": retries, "outage_seconds": outage_seconds, "stall_seconds": stall_seconds}
            return await self._open_wire(wire).forward(passed, timeout=timeout, on_retry=on_retry, **further)  # type: ignore[arg-type]
        stall = stall_seconds or self.model.stall_seconds or _STALL_SECONDS
        send = partial(cast("WireConnection", self._connection).forward, passed, stall_seconds=stall)
        attempts = self._attempts(retries, outage_seconds, on_retry)
        with attempts:
            while True:
                attempts.number += 1
                try:
                    flight = Flight(self.model, passed.body, passed.request, METER.get())
                    reply = await self._attempt(send, flight, timeout, attempts)
                    attempts.succeed()
                    return reply
                except RequestFailed as failed:
                    await attempts.wait(failed, again=not passed.begun)

    def _attempts(self, retries: int | None, outage_seconds: float, on_retry: OnRetry | None) -> Attempts:
        return Attempts(
            self.model,
            self.backoff,
            self.breaker,
            self.waits,
            retries=retries,
            outage_seconds=outage_seconds,
            on_retry=on_retry,
        )

    async def _send(
        self, body: bytes, own: Mapping[str, str], stall: float | None, headers: Mapping[str, str]
    ) -> RawReply:
        return await self._connection.send(body, {**own, **headers}, stall_seconds=stall)

    def _spell(self, composed: Mapping[str, Any], own: Collection[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return the request adapted to the endpoint, with its marks for caching, and the list of adaptations."""
        request, adapted = self.spelling.spell(composed, own)
        if self.model.prompt_cache is None:
            return request, adapted
        from pytest_agentbench.models.prompt_cache import ask_for_cache

        return ask_for_cache(request, self.model, self.spelling.dialect), adapted

    def _write(self, request: Mapping[str, Any], stall: float | None) -> bytes:
        body = write_request(request)
        if stall is None:
            return body
        from pytest_agentbench.models.streaming import ask_for_stream

        return ask_for_stream(body, self.spelling.api.stream)

    def _read_collected(self, collected: Collected, attempt: int) -> ChatReply:
        """Return the reply from a batch, at half the price. Raises RequestFailed if it is an error."""
        from pytest_agentbench.models.batches.collector import BATCH_PRICE

        status, content = collected.reply.status, collected.reply.content
        if status >= 300:
            raise status_failed(status, content, self.model)
        reply = read_reply(content, "application/json", self.model, attempts=attempt, seconds=collected.seconds)
        costs = {name: getattr(reply.usage, name) for name in ("cost_usd", "uncached_cost_usd")}
        halves = {name: cost * BATCH_PRICE for name, cost in costs.items() if cost is not None}
        usage = reply.usage.model_copy(update=halves)
        return replace(reply, usage=usage, batch={"id": collected.batch, "seconds": round(collected.seconds, 3)})

    def _choose_stall(self, stream: Streamed | None, stall_seconds: float | None, timeout: float) -> float | None:
        """Return the maximum seconds between two events of a streamed reply, or None if it is not streamed."""
        if stall_seconds is None:
            stall_seconds = self.model.stall_seconds
        if stream is None:
            stream = self.model.stream
        if stream == "auto":
            stream = timeout > _STREAMED_FROM or stall_seconds is not None
        if stream:
            return stall_seconds or _STALL_SECONDS
        return None

    async def _attempt(
        self, send: _Send, flight: Flight, limit: float, attempts: Attempts, case_id: str | None = None
    ) -> ChatReply:
        sending = self._request_past_breaker(send, flight, limit, attempts, case_id)
        if flight.meter is None or self.model.scripted:
            return await sending
        # A separate task, which continues if the caller is cancelled: the endpoint bills its output anyway.
        asking = asyncio.ensure_future(sending)
        flight.meter.watch(asking)
        try:
            await asyncio.wait((asking,))
        except asyncio.CancelledError:
            if flight.sent:
                # The meter reads the reply in the background, because its tokens are billed.
                flight.given_up = True
                flight.meter.read_on(asking, min(attempts.outage, OUTAGE))
            else:
                asking.cancel()
                await asyncio.wait((asking,))
            raise
        return asking.result()

    async def _request_past_breaker(
        self, send: _Send, flight: Flight, limit: float, attempts: Attempts, case_id: str | None
    ) -> ChatReply:
        if self.breaker is None:
            return await self._request_within_limits(send, flight, limit, attempts, case_id)
        while True:
            # Waiting for a slot may take long. If a pause begins meanwhile, the request must not be sent but wait
            # for the breaker again.
            with contextlib.suppress(Paused):
                async with Passage(self.breaker, attempts.outage) as passage:
                    return await self._request_within_limits(send, flight, limit, attempts, case_id, passage)

    async def _request_within_limits(
        self,
        send: _Send,
        flight: Flight,
        limit: float,
        attempts: Attempts,
        case_id: str | None,
        passage: Passage | None = None,
    ) -> ChatReply:
        async with Admission(self._throttle, len(flight.body) / BYTES_PER_TOKEN) as admission:
            if passage is not None:
                admission.used_tokens = 0
                passage.begin()
                admission.used_tokens = None
            attempts.stop_waiting()
            with self._standing.in_flight():
                try:
                    reply = await self._request(send, flight, limit, attempts.number, case_id)
                except RequestFailed as failed:
                    if failed.reason == "authentication" and not self.model.scripted:
                        explained = await self._standing.explain_refusal(failed, flight.body, self.model)
                        raise explained from failed.__cause__
                    raise
            admission.used_tokens = reply.usage.total_tokens
        if self.model.scripted:
            return reply
        return flight.complete(reply)

    async def _request(self, send: _Send, flight: Flight, limit: float, attempt: int, case_id: str | None) -> ChatReply:
        try:
            return await self._send_once(send, flight, limit, attempt, case_id)
        except BaseException as error:
            flight.failed(error)
            raise

    async def _send_once(
        self, send: _Send, flight: Flight, limit: float, attempt: int, case_id: str | None
    ) -> ChatReply:
        headers: dict[str, str] = {}
        if attempt > 1:  # the header in which OpenAI's client counts its retries
            headers["x-stainless-retry-count"] = str(attempt - 1)
        if self.model.scripted and case_id is not None:
            headers[CASE_HEADER] = quote(case_id)
        if self.model.scripted and flight.meter is not None and flight.meter.role is not None:
            headers[ROLE_HEADER] = flight.meter.role
        if not self.model.scripted:  # a session that ends does not wait for requests that cost nothing
            await before_sending()
        began = time.monotonic()
        flight.sent = not self.model.scripted
        try:
            async with asyncio.timeout(limit):
                reply = await send(headers=headers)
        except TimeoutError as error:
            raise timed_out(limit) from error
        if reply.redirect is not None:
            raise redirected(reply.redirect, self.model)
        content_type = reply.headers.get("content-type", "")
        if await self._standing.is_hiccup(reply):
            raise proxy_page(reply.status, content_type, reply.content)
        if reply.status >= 300:
            retry_after = retry_after_seconds(reply.headers)
            raise status_failed(reply.status, reply.content, self.model, retry_after=retry_after)
        seconds = time.monotonic() - began
        flight.content = reply.content
        chat_reply = read_reply(reply.content, content_type, self.model, attempts=attempt, seconds=seconds)
        self._standing.succeeded()
        if reply.times is None:
            return chat_reply
        return replace(chat_reply, times=reply.times)
