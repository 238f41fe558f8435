"""Keep requests within what an endpoint bears: adaptive concurrency and rates per minute, one at a time through."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Literal, Protocol, Self

from pytest_agentbench.models.failures import RequestFailed


class AdaptiveLimit:
    """Requests in flight: additive increase, multiplicative decrease, between 1 and `ceiling`.

    It starts at the ceiling. A 429 takes away a part, but only once for all requests that were sent before that
    decrease: they tell of the same overload. Each success gives back a share, one more in flight per full round.
    Waiters are served in order. For one event loop.
    """

    DECREASE = 0.6

    def __init__(self, ceiling: int) -> None:
        self.ceiling = ceiling
        self.limit = float(ceiling)
        self.in_flight = 0
        self._decreases = 0
        self._waiters: deque[asyncio.Future[None]] = deque()

    @property
    def ticket(self) -> int:
        """Return the number that a request sent now brings back to `throttled`."""
        return self._decreases

    async def acquire(self) -> int:
        """Wait for a free slot. Return the ticket."""
        if self._waiters or not self._has_room():
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            self._wake()  # those before may all have given up
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self.release()  # the slot was ours already: hand it on
                raise
        else:
            self.in_flight += 1
        return self.ticket

    def release(self) -> None:
        """Free the slot."""
        self.in_flight -= 1
        self._wake()

    def succeeded(self) -> None:
        """Note that a request got through: recover a little."""
        if self.limit < self.ceiling:
            # AIMD as in TCP: a full round of successes adds one slot, whatever the limit is.
            self.limit = min(self.ceiling, self.limit + 1 / self.limit)
            self._wake()

    def throttled(self, ticket: int) -> None:
        """Note that a request which started with `ticket` met a 429."""
        # Forty requests that meet one overload must not cut the limit forty times: only the first of that round counts.
        if ticket == self._decreases:
            self._decreases += 1
            self.limit = max(1.0, self.limit * self.DECREASE)

    def _has_room(self) -> bool:
        return self.in_flight < int(self.limit)

    def _wake(self) -> None:
        while self._waiters and self._has_room():
            waiter = self._waiters.popleft()
            if not waiter.done():
                self.in_flight += 1
                waiter.set_result(None)


class Rate:
    """At most `per_minute` units a minute, spread evenly, with `burst` at once (None: one second's worth, at least 1).

    A burst of 1 keeps to the rate in every stretch of time, not only over minutes. The bucket may go into debt, so a
    large request waits in proportion, and `charge` can settle afterwards what a request really cost. Those who wait
    are served in order. For one event loop.
    """

    def __init__(self, per_minute: float, burst: float | None = None) -> None:
        self.per_second = per_minute / 60
        self.burst = max(1.0, self.per_second) if burst is None else burst
        self._level = self.burst
        self._at = 0.0

    async def take(self, amount: float = 1) -> None:
        """Take `amount` units and wait until they are due; a cancelled wait gives them back."""
        # Paid before waiting: those who come later see the debt and wait behind it, so order needs no queue.
        level = self.charge(amount)
        if level < 0:
            try:
                await asyncio.sleep(-level / self.per_second)
            except asyncio.CancelledError:
                self.charge(-amount)
                raise

    def charge(self, amount: float) -> float:
        """Take `amount` units (negative: give them back) without waiting. Return what is left."""
        now = asyncio.get_running_loop().time()
        self._level = min(self.burst, self._level + (now - self._at) * self.per_second) - amount
        self._at = now
        return self._level


Outcome = Literal["ok", "throttled", "failed"]
"""What became of a request: `throttled` is a 429."""


class Throttling(Protocol):
    """Limits that all requests to one model of one endpoint pass: providers meter each model of a key by itself."""

    async def admit(self, tokens: float) -> int:
        """Wait until a request of about so many tokens may be sent. Return a ticket for `release`."""
        ...

    def release(self, ticket: int, outcome: Outcome, beyond: float) -> None:
        """End a request that took `beyond` more tokens than were estimated (negative: fewer)."""
        ...


class Throttle:
    """At most `in_flight` requests at once, and so many requests and tokens per minute. For one event loop."""

    def __init__(self, in_flight: int, rpm: int | None = None, tpm: int | None = None) -> None:
        self.concurrency = AdaptiveLimit(in_flight)
        self.requests = None if rpm is None else Rate(rpm, burst=1)
        self.tokens = None if tpm is None else Rate(tpm)

    async def admit(self, tokens: float) -> int:
        """Take a slot, tokens, then a request, in this order: what is due by the rate of requests is sent at once."""
        await self.concurrency.acquire()
        try:
            await self._wait_for_rates(tokens)
        except asyncio.CancelledError:
            self.concurrency.release()
            raise
        return self.concurrency.ticket

    async def _wait_for_rates(self, tokens: float) -> None:
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
        """Adapt the requests in flight to the outcome, and settle the tokens."""
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
