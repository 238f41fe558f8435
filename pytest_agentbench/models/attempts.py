"""The attempts at one request: number and time of repetitions, and the waits for rate limits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Self

from pytest_agentbench.ending import before_waiting
from pytest_agentbench.models.failures import Backoff, RequestFailed
from pytest_agentbench.models.limits import Breaker, longest_outage
from pytest_agentbench.records.case import Model

OnRetry = Callable[..., None]
"""Called with the reason of a repetition and the wait in seconds; `partial=` is the model's text so far, if any."""


class RateLimitWaits:
    """Number of the 429s of one model that requests have waited out, and the seconds in which any request waited.

    For one event loop.
    """

    def __init__(self) -> None:
        self.replies = 0
        self.seconds = 0.0
        self._waiting = 0
        self._since = 0.0

    def begin(self) -> None:
        """Note that a request begins to wait."""
        if not self._waiting:
            self._since = time.monotonic()
        self._waiting += 1

    def end(self) -> None:
        """Note that a request has stopped waiting."""
        self._waiting -= 1
        if not self._waiting:
            self.seconds += time.monotonic() - self._since


class Attempts:
    """The attempts at one request of a client. `number` counts them, `outage` is their maximum time in seconds."""

    def __init__(
        self,
        model: Model,
        backoff: Backoff,
        breaker: Breaker | None,
        waits: RateLimitWaits,
        *,
        retries: int | None,
        outage_seconds: float,
        on_retry: OnRetry | None,
    ) -> None:
        """Set up the attempts at a request to `model`. `waits` counts its rate limits."""
        self._model, self._backoff, self._breaker, self._waits = model, backoff, breaker, waits
        self._retries, self._on_retry = retries, on_retry
        self.outage = longest_outage(outage_seconds)
        self.number = 0
        self._began = time.monotonic()
        self._failing_since: float | None = None
        self._limited = 0
        self._waiting = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop_waiting()

    def stop_waiting(self) -> None:
        """Note that the wait after a 429, if there is one, is over."""
        if self._waiting:
            self._waiting = False
            self._waits.end()

    def succeed(self) -> None:
        """Note that the request is answered: the 429s before were waited out."""
        self._waits.replies += self._limited

    async def wait(self, failed: RequestFailed, *, again: bool = True) -> None:
        """Wait for the next attempt after a failed one. Raises ProviderError if there is no next attempt.

        `again` is False if part of the reply has been used, so that the request must not be repeated.
        """
        now, breaker = time.monotonic(), self._breaker
        if self._failing_since is None:
            self._failing_since = now
        left = self._failing_since + self.outage - now
        # Read after the failure was recorded, so that the request that opened the breaker counts as paused too.
        paused = failed.retryable and breaker is not None and breaker.paused
        # While requests are paused the breaker bounds the waiting, and an outage uses no retries. A rate limit uses one
        # retry of each request that is sent in the pause, which are only the probes.
        if self._retries is not None and (not paused or breaker is None or breaker.limited):
            self._retries -= 1
        spent = (left <= 0 and not paused) or (self._retries is not None and self._retries < 0)
        if not (failed.retryable and again) or spent:
            raise failed.to_error(self._model, self.number, now - self._began) from failed.__cause__
        wait = 0.0 if paused else min(self._backoff.seconds(self.number, failed.retry_after), left)
        if failed.is_rate_limit:
            self._limited += 1
            self._waiting = True
            self._waits.begin()
        if self._on_retry is not None:
            if failed.partial is None:
                self._on_retry(failed.summary, wait)
            else:
                self._on_retry(failed.summary, wait, partial=failed.partial)
        before_waiting()
        await asyncio.sleep(wait)
