"""Requests to one model, one at a time through what its endpoint bears."""

from __future__ import annotations

import asyncio
from typing import Literal, Protocol, Self

from pytest_agentbench.models.failures import RequestFailed
from pytest_agentbench.models.limits import AdaptiveLimit, Rate

Outcome = Literal["ok", "throttled", "failed"]
"""What became of a request: `throttled` is a 429."""


class Throttling(Protocol):
    """Limits that all requests to one model of one endpoint pass: providers meter each model of a key by itself."""

    async def admit(self, tokens: float) -> int:
        """Waits until a request of about so many tokens may be sent. Returns a ticket for `release`."""
        ...

    def release(self, ticket: int, outcome: Outcome, beyond: float) -> None:
        """The request is over; it took `beyond` more tokens than were thought (negative: fewer)."""
        ...


class Throttle:
    """At most `in_flight` requests at once, and so many requests and tokens per minute. For one event loop."""

    def __init__(self, in_flight: int, rpm: int | None = None, tpm: int | None = None) -> None:
        self.concurrency = AdaptiveLimit(in_flight)
        self.requests = None if rpm is None else Rate(rpm, burst=1)
        self.tokens = None if tpm is None else Rate(tpm)

    async def admit(self, tokens: float) -> int:
        """Slot, tokens, request, in this order: what is due by the rate of requests is sent at once."""
        await self.concurrency.acquire()
        try:
            await self._meter(tokens)
        except asyncio.CancelledError:
            self.concurrency.release()
            raise
        return self.concurrency.ticket

    async def _meter(self, tokens: float) -> None:
        if self.tokens is not None:
            await self.tokens.take(tokens)
        if self.requests is not None:
            try:
                await self.requests.take()
            except asyncio.CancelledError:
                if self.tokens is not None:
                    self.tokens.charge(-tokens)
                raise

    def release(self, ticket: int, outcome: Outcome, beyond: float) -> None:
        """Adapts the requests in flight to the outcome, and settles the tokens."""
        if outcome == "throttled":
            self.concurrency.throttled(ticket)
        self.concurrency.release()
        if outcome == "ok":
            self.concurrency.succeeded()
        if self.tokens is not None and beyond:
            self.tokens.charge(beyond)


class Admission:
    """One request within limits: `async with`, and `used_tokens` is set to what it took, if that is known."""

    def __init__(self, throttle: Throttling, tokens: float = 0) -> None:
        self.used_tokens: int | None = None
        self._throttle = throttle
        self._tokens = tokens

    async def __aenter__(self) -> Self:
        self._ticket = await self._throttle.admit(self._tokens)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        outcome: Outcome = "ok"
        if error is not None:
            limited = isinstance(error, RequestFailed) and error.code == "rate_limited"
            outcome = "throttled" if limited else "failed"
        beyond = 0.0 if self.used_tokens is None else self.used_tokens - self._tokens
        self._throttle.release(self._ticket, outcome, beyond)
