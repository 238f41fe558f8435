"""Requests wait while their endpoint does not answer, and end at once where it is dead."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Self

from pytest_agentbench.models.failures import RequestFailed, unreachable

RUN_LIMIT: ContextVar[asyncio.Timeout | None] = ContextVar("RUN_LIMIT", default=None)
"""The time limit of the run that a request belongs to: it stands still during a pause, which is no slow agent."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for an endpoint that has stopped answering, in seconds.

    `notice`: so long at least nothing was answered when requests begin to wait. `never`: so long for one that has not
    answered at all. `outage`: so long for one that has. `first` and `longest` bound the time between two probes.
    """

    notice: float = 2.0
    never: float = 8.0
    outage: float = 300.0
    first: float = 1.0
    longest: float = 10.0
    failures: int = 3
    """So many requests in a row have failed at least."""


class Breaker:
    """Watches the requests to one endpoint. For one event loop.

    It pauses them once several in a row met an outage (no connection, or 502, 503, 504, 529), lets one through at a
    time as a probe, and all of them when that one is answered: any other status is an answer. `tell` gets a sentence
    then. An endpoint out of patience is dead for good: each further request raises RequestFailed before it is sent.
    A reply that took too long says nothing of the endpoint.
    """

    def __init__(self, where: str, tell: Callable[[str], None], patience: Patience) -> None:
        self._where, self._tell, self._patience = where, tell, patience
        self._answered_ever = False
        self._failures = 0
        self._since = 0.0
        self._paused_at: float | None = None
        self._probing = False
        self._next_probe = self._interval = 0.0
        self._last: RequestFailed | None = None
        self._dead: str | None = None
        self._changed = asyncio.Event()

    @property
    def paused(self) -> bool:
        """Whether requests wait."""
        return self._paused_at is not None

    def describe_pause(self) -> str | None:
        """Return what the status line says while requests wait."""
        if self._paused_at is None or self._dead is not None:
            return None
        return f"{self._where} does not answer ({time.monotonic() - self._since:.0f} s)"

    async def admit(self) -> bool:
        """Wait until a request may be sent. Returns whether it is a probe; raises RequestFailed once all is lost."""
        if self._paused_at is not None:
            with _standing_still(self._patience.outage):
                while self._paused_at is not None and self._dead is None:
                    if not self._probing and time.monotonic() >= self._next_probe:
                        self._probing = True
                        return True
                    await self._wait_for_change()
        if self._dead is not None and self._last is not None:
            raise unreachable(self._dead, self._last)
        return False

    async def _wait_for_change(self) -> None:
        left = None if self._probing else max(0.0, self._next_probe - time.monotonic())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self._changed.wait()

    def answered(self, began: float) -> None:
        """Note an answer to a request that began then (monotonic). One from before a pause does not end it."""
        self._answered_ever = True
        if self._paused_at is not None:
            if began < self._paused_at:
                return
            lasted = time.monotonic() - self._since
            said = self._last.summary if self._last is not None else "no answer"
            self._tell(f"{self._where} did not answer for {lasted:.0f} s ({said}); runs waited and went on")
            self._paused_at = None
            self._wake()
        self._failures = 0

    def failed(self, failure: RequestFailed, began: float) -> None:
        """Note an outage that a request met which began then (monotonic)."""
        now, patience = time.monotonic(), self._patience
        self._since = self._since if self._failures else began
        self._failures += 1
        self._last = failure
        lasted = now - self._since
        if self._failures < patience.failures or lasted < patience.notice or self._dead is not None:
            return
        if lasted >= (patience.outage if self._answered_ever else patience.never):
            self._dead = f"nothing was answered for {lasted:.0f} s"
        if self._paused_at is None:
            self._paused_at, self._interval = now, patience.first
        elif now >= self._next_probe:
            self._interval = min(2 * self._interval, patience.longest)
        self._next_probe = now + self._interval
        self._wake()

    def end_probe(self) -> None:
        """Let the next one probe."""
        self._probing = False
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Passage:
    """One request past a breaker: `async with`, and `began` is set when it is sent."""

    def __init__(self, breaker: Breaker) -> None:
        self._breaker = breaker
        self.began: float | None = None

    async def __aenter__(self) -> Self:
        self._probe = await self._breaker.admit()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self.began is not None:
            if error is None or (isinstance(error, RequestFailed) and not error.outage and error.code != "timeout"):
                self._breaker.answered(self.began)
            elif isinstance(error, RequestFailed) and error.outage:
                self._breaker.failed(error, self.began)
        if self._probe:
            self._breaker.end_probe()


@contextlib.contextmanager
def _standing_still(longest: float) -> Iterator[None]:
    """Keep the run's time limit from passing; `longest` is how many seconds that can be."""
    timer, began = RUN_LIMIT.get(), time.monotonic()
    if timer is None or (due := timer.when()) is None or timer.expired():
        yield
        return
    timer.reschedule(due + longest + 1)
    try:
        yield
    finally:
        if (due := timer.when()) is not None and not timer.expired():
            timer.reschedule(due - longest - 1 + time.monotonic() - began)
