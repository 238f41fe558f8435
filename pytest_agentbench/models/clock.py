"""Measure a run's time without the time in which its requests wait for an endpoint that fails or limits their rate."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Self


class RunClock:
    """The time limits of one run. All of them stop while any of its requests waits. For one event loop.

    `trouble` is the last failure of a request, or None after a later request of the run was answered.
    """

    def __init__(self) -> None:
        self.trouble: str | None = None
        self._trouble_began = 0.0
        self._dues: dict[asyncio.Timeout, float] = {}
        self._waiting = 0
        self._stopped_at = self._waited_until = self._went_on_at = -math.inf
        self._stood = 0.0

    @property
    def stood(self) -> float:
        """Return the seconds for which the clock has been stopped."""
        if not self._waiting:
            return self._stood
        return self._stood + time.monotonic() - self._stopped_at

    @property
    def trouble_seconds(self) -> float:
        """Return the seconds since the first failure after the last answer, 0.0 if there was none."""
        if self.trouble is None:
            return 0.0
        return time.monotonic() - self._trouble_began

    @asynccontextmanager
    async def limit(self, seconds: float | None) -> AsyncIterator[asyncio.Timeout]:
        """Raise TimeoutError if the block takes more than `seconds` of the run's time. None sets no limit."""
        async with asyncio.timeout(None if self._waiting else seconds) as timer:
            if seconds is not None:
                self._dues[timer] = asyncio.get_running_loop().time() + seconds
            try:
                yield timer
            finally:
                self._dues.pop(timer, None)

    def note(self, failure: str, since: float) -> None:
        """Note a failure of a request that was sent at `since` (monotonic)."""
        if self.trouble is None:
            self._trouble_began = since
        self.trouble = failure

    def stop(self, since: float) -> None:
        """Stop all limits. The time since `since` (monotonic) is given back to them."""
        # The time of an earlier wait is not given back twice.
        since = max(since, self._went_on_at)
        if self._waiting:
            self._stopped_at = min(self._stopped_at, since)
        else:
            self._stopped_at = self._waited_until = since
            for timer in self._dues:
                _move(timer, None)
        self._waiting += 1

    def go_on(self, until: float) -> None:
        """End a wait that lasted until `until` (monotonic). The clock runs again after the last wait has ended."""
        self._waited_until = max(self._waited_until, until)
        self._waiting -= 1
        if self._waiting:
            return
        # The attempt that was answered is part of the run's time. The clock was stopped meanwhile, because the attempt
        # might have failed.
        stood = max(0.0, self._waited_until - self._stopped_at)
        self._stood += stood
        self._went_on_at = self._waited_until
        for timer, due in self._dues.items():
            self._dues[timer] = due + stood
            _move(timer, due + stood)


def _move(timer: asyncio.Timeout, due: float | None) -> None:
    if not timer.expired():
        timer.reschedule(due)


RUN_CLOCK: ContextVar[RunClock | None] = ContextVar("RUN_CLOCK", default=None)
"""The clock of the run that a request belongs to."""


class Wait:
    """A request that may have to wait: use `with`, and call `begin` if it waits.

    `longest` bounds the wait, in seconds. A wait without a bound does not stop the run's clock, whose limit ends it.
    """

    def __init__(self, longest: float) -> None:
        self._stops = longest < math.inf
        self._began = False
        self._until: float | None = None

    def __enter__(self) -> Self:
        self._clock, self._asked_at = RUN_CLOCK.get(), time.monotonic()
        return self

    def begin(self, failure: str | None = None) -> None:
        """Stop the clock, and give back the time since the block began. `failure` is the reason of the wait."""
        if self._clock is None:
            return
        if failure is not None:
            self._clock.note(failure, self._asked_at)
        if self._stops and not self._began:
            self._began = True
            self._clock.stop(self._asked_at)

    def answered(self, seconds: float = 0.0) -> None:
        """Note the answer to the request, of which the last attempt took `seconds`."""
        self._until = time.monotonic() - seconds
        if self._clock is not None:
            self._clock.trouble = None

    def __exit__(self, *error: object) -> None:
        if self._began and self._clock is not None:
            self._clock.go_on(time.monotonic() if self._until is None else self._until)
