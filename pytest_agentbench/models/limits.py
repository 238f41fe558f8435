"""Keep requests within an endpoint's limits, and away from one that is down.

Adaptive concurrency, rates per minute and a breaker apply to a model at its address.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, Self

from pytest_agentbench.models.clock import Wait
from pytest_agentbench.models.failures import RequestFailed, unreachable


class AdaptiveLimit:
    """Requests in flight: additive increase, multiplicative decrease, between 1 and `ceiling`.

    It starts at the ceiling. A 429 removes a share, but only once for all requests that were sent before that
    decrease, because they report the same overload. Each success returns a share, one more in flight per full round.
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

    @property
    def is_lowered(self) -> bool:
        """Return whether a 429 has lowered the limit, and no success has raised it to the ceiling again."""
        return self.limit < self.ceiling

    async def acquire(self) -> int:
        """Wait for a free slot. Return the ticket."""
        if self._waiters or not self._has_room():
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            self._wake()  # all earlier waiters may have been cancelled
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self.release()  # the slot was assigned before the cancellation: pass it on
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
        if self.is_lowered:
            # AIMD as in TCP: a full round of successes adds one slot at any limit.
            self.limit = min(self.ceiling, self.limit + 1 / self.limit)
            self._wake()

    def throttled(self, ticket: int) -> None:
        """Note that a request which started with `ticket` met a 429."""
        # Forty requests that meet one overload must not cut the limit forty times: only the first of that round counts.
        if ticket == self._decreases:
            self._decreases += 1
            self.limit = max(1.0, self.limit * self.DECREASE)

    def move(self, ceiling: int) -> None:
        """Replace the ceiling. A limit that a 429 has lowered is not raised by this."""
        self.limit = min(self.limit, ceiling) if self.is_lowered else float(ceiling)
        self.ceiling = ceiling
        self._wake()

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
    large request waits in proportion, and `charge` can settle a request's real cost afterwards. Waiters are served in
    order. For one event loop.
    """

    def __init__(self, per_minute: float, burst: float | None = None) -> None:
        self.per_second = per_minute / 60
        # At least 1, or the first request would wait.
        self.burst = max(1.0, self.per_second) if burst is None else burst
        self._level = self.burst
        self._at = 0.0

    async def take(self, amount: float = 1) -> None:
        """Take `amount` units and wait until they are due; a cancelled wait gives them back."""
        # Charged before the wait: later requests see the debt and wait behind it, so the order needs no queue.
        level = self.charge(amount)
        if level < 0:
            try:
                await asyncio.sleep(-level / self.per_second)
            except asyncio.CancelledError:
                self.charge(-amount)
                raise

    def charge(self, amount: float) -> float:
        """Take `amount` units (negative: return them) without waiting. Return the remaining units."""
        now = asyncio.get_running_loop().time()
        self._level = min(self.burst, self._level + (now - self._at) * self.per_second) - amount
        self._at = now
        return self._level


Outcome = Literal["ok", "throttled", "failed"]
"""The end of a request: `throttled` is a 429."""


class Throttling(Protocol):
    """Limits of all requests to one model at one endpoint. Providers meter each model of a key separately."""

    async def admit(self, tokens: float) -> int:
        """Wait until a request of about `tokens` tokens may be sent. Return a ticket for `release`."""
        ...

    def release(self, ticket: int, outcome: Outcome, beyond: float) -> None:
        """End a request that used `beyond` more tokens than were estimated (negative: fewer)."""
        ...


class Throttle:
    """At most `in_flight` requests at once, and `rpm` requests and `tpm` tokens per minute. For one event loop."""

    def __init__(self, in_flight: int, rpm: int | None = None, tpm: int | None = None) -> None:
        self.concurrency = AdaptiveLimit(in_flight)
        self.requests = None if rpm is None else Rate(rpm, burst=1)
        self.tokens = None if tpm is None else Rate(tpm)

    async def admit(self, tokens: float) -> int:
        """Take a slot, the tokens, then a request of the rate: a request that is due by its rate is sent at once."""
        with Wait(OUTAGE) as wait:
            if self.concurrency.is_lowered:
                wait.begin()
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
        # Before the release, which would wake a waiter under the old limit.
        if outcome == "throttled":
            self.concurrency.throttled(ticket)
        self.concurrency.release()
        if outcome == "ok":
            self.concurrency.succeeded()
        if self.tokens is not None and beyond:
            self.tokens.charge(beyond)


class Admission:
    """One request within limits: `async with`, and set `used_tokens` to its real usage, if known."""

    def __init__(self, throttle: Throttling, tokens: float = 0) -> None:
        self.used_tokens: int | None = None
        self._throttle = throttle
        self._tokens = tokens

    async def __aenter__(self) -> Self:
        self._ticket = await self._throttle.admit(self._tokens)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        outcome: Outcome = "ok"
        if isinstance(error, RequestFailed) and error.is_rate_limit:
            outcome = "throttled"
        elif error is not None:
            outcome = "failed"
        beyond = 0.0  # a failed request, or one without usage, keeps its estimate
        if self.used_tokens is not None:
            beyond = self.used_tokens - self._tokens
        self._throttle.release(self._ticket, outcome, beyond)


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds to wait for a model that has stopped answering.

    `quiet`: seconds without a success after which requests wait for a model that still answers with errors. `never`:
    maximum seconds to wait for a model that has never answered, not even with a status. `first` and `longest` bound the
    time between two probes.
    """

    quiet: float = 10.0
    never: float = 8.0
    first: float = 1.0
    longest: float = 10.0
    failures: int = 5
    """Minimum number of failed requests in a row before requests wait."""


OUTAGE = 300.0
"""Default seconds for which a request is repeated, and waits, after its first transient failure."""


def longest_outage(seconds: float) -> float:
    """Return the maximum seconds of an outage by `outage_seconds`; 0 means until the run's time limit."""
    return seconds or math.inf


class Breaker:
    """Watches the requests to one model of an endpoint. For one event loop.

    It pauses them after several in a row met an outage (no connection, or 502, 503, 504, 529) or a rate limit (429), or
    another transient failure while nothing succeeded for some time. During a pause one request at a time is sent as a
    probe. An answer to a probe ends the pause; a refusal is an answer. `tell` gets a sentence then, unless all failures
    were 429s. After the probes have failed for the maximum time of an outage, the model is given up: each further
    request raises RequestFailed before it is sent.
    """

    def __init__(self, where: str, tell: Callable[[str], None], patience: Patience) -> None:
        self._where, self._tell, self._patience = where, tell, patience
        self._answered_ever = False
        self._failures = 0
        self._since = 0.0  # beginning of the first request that failed after the last success (monotonic)
        self._paused_at: float | None = None
        self._probing = False
        self._next_probe = self._interval = 0.0  # the time of the next probe (monotonic), and seconds between two
        self._last: RequestFailed | None = None
        self._limited = False
        """Whether a 429 began the pause, and no outage was met since."""
        self._dead: str | None = None
        self._changed = asyncio.Event()

    @property
    def _last_summary(self) -> str | None:
        return None if self._last is None else self._last.summary

    @property
    def paused(self) -> bool:
        """Return whether requests wait."""
        return self._paused_at is not None

    @property
    def limited(self) -> bool:
        """Return whether requests wait for the end of a rate limit, and of nothing worse."""
        return self.paused and self._limited

    def describe_pause(self) -> str | None:
        """Return the status line's text while requests wait."""
        if self._paused_at is None or self._dead is not None:
            return None
        state = "answers only with 429" if self._limited else "does not answer"
        return f"{self._where} {state} ({time.monotonic() - self._since:.0f} s)"

    async def admit(self, outage: float) -> bool:
        """Wait at most `outage` seconds until a request may be sent. Return whether it is a probe.

        Raises RequestFailed if the model is given up.
        """
        if self._paused_at is not None:
            with Wait(outage) as wait:
                wait.begin(self._last_summary)
                while self._paused_at is not None and self._dead is None:
                    if not self._probing and time.monotonic() >= self._next_probe:
                        self._probing = True
                        return True
                    await self._wait_for_change()
        if self._dead is not None and self._last is not None:
            raise unreachable(self._dead, self._last)
        return False

    async def _wait_for_change(self) -> None:
        # A probe in flight ends in a change; without one the next request may probe at its time.
        left = None if self._probing else max(0.0, self._next_probe - time.monotonic())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self._changed.wait()

    def answered(self, began: float) -> None:
        """Note an answer to a request that began at `began` (monotonic). One from before a pause does not end it."""
        self._answered_ever = True
        if self._paused_at is not None:
            # A slow answer to a request sent before the outage does not prove that the endpoint is up now.
            # After a rate limit it does: its slot is free again.
            if began < self._paused_at and not self._limited:
                return
            if not self._limited:
                lasted = time.monotonic() - self._since
                self._tell(
                    f"{self._where} did not answer for {lasted:.0f} s ({self._last_summary}); runs waited and went on"
                )
            self._paused_at, self._next_probe = None, 0.0
            self._wake()
        self._failures = 0

    def failed(self, failure: RequestFailed, began: float, outage: float) -> None:
        """Record a transient failure of a request that began at `began` (monotonic).

        `outage` is the maximum seconds that the request waits for the end of an outage.
        """
        now, patience = time.monotonic(), self._patience
        if not self._failures:
            self._since = began
        self._failures += 1
        self._last = failure
        # A status proves that a server runs: a model may take minutes to load, but a wrong port stays wrong.
        if failure.status is not None or not (failure.outage or failure.code == "timeout"):
            self._answered_ever = True
        lasted = now - self._since
        if self._failures < patience.failures or self._dead is not None:
            return
        # After a proxy's 502 a long wait would only send more requests to a gateway that is busy.
        at_once = failure.outage or failure.is_rate_limit
        if self._paused_at is None and not at_once and lasted < patience.quiet:
            return
        if self._paused_at is None:
            self._limited = failure.is_rate_limit
            self._paused_at, self._interval = now, patience.first
        else:
            self._limited = self._limited and not failure.outage
            if now >= self._next_probe:
                self._interval = min(2 * self._interval, patience.longest)
        longest = outage if self._answered_ever else min(patience.never, outage)
        if lasted >= longest:
            state = "answered only with 429" if self._limited else "been down"
            self._dead = f"{self._where} has {state} for {lasted:.0f} s"
        # An earlier reply may have asked for a later probe than this one.
        due = max(self._next_probe, now + max(self._interval, failure.retry_after or 0.0))
        # The last probe is due at the end of the outage: the doubled interval might take twice as long.
        self._next_probe = min(due, max(now, self._since + longest))
        self._wake()

    def end_probe(self) -> None:
        """Let the next request probe."""
        self._probing = False
        self._wake()

    def _wake(self) -> None:
        # Later waiters get a new event. If one event were set and cleared, a waiter that wakes late would miss it.
        self._changed.set()
        self._changed = asyncio.Event()


class Paused(Exception):
    """A pause began after the breaker let a request pass and before it was sent."""


class Passage:
    """The passage of one request through a breaker: use `async with`, and call `begin` when the request is sent.

    `outage` is the maximum seconds that it waits for the end of an outage; `began` is the time of `begin` (monotonic).
    """

    def __init__(self, breaker: Breaker, outage: float = OUTAGE) -> None:
        self._breaker, self._outage = breaker, outage
        self.began: float | None = None

    async def __aenter__(self) -> Self:
        self._probe = await self._breaker.admit(self._outage)
        return self

    def begin(self) -> None:
        """Record that the request is sent now. Raises Paused if it has to wait again."""
        if self._breaker.paused and not self._probe:
            raise Paused
        self.began = time.monotonic()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self.began is not None:
            if isinstance(error, RequestFailed) and error.retryable:
                self._breaker.failed(error, self.began, self._outage)
            elif error is None or isinstance(error, RequestFailed):
                self._breaker.answered(self.began)
        # Also after a cancelled probe: if no other request could probe, all of them would wait forever.
        if self._probe:
            self._breaker.end_probe()
