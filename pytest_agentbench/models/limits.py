"""What keeps requests within what an endpoint bears: adaptive concurrency and rates per minute."""

from __future__ import annotations

import asyncio
from collections import deque


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
        """What a request that is sent now brings back with `throttled`."""
        return self._decreases

    async def acquire(self) -> int:
        """Waits for a free slot. Returns the ticket."""
        if self._waiters or not self._free():
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
        """Gives the slot back."""
        self.in_flight -= 1
        self._wake()

    def succeeded(self) -> None:
        """A request got through: recover a little."""
        if self.limit < self.ceiling:
            self.limit = min(self.ceiling, self.limit + 1 / self.limit)
            self._wake()

    def throttled(self, ticket: int) -> None:
        """A request that started with `ticket` met a 429."""
        if ticket == self._decreases:
            self._decreases += 1
            self.limit = max(1.0, self.limit * self.DECREASE)

    def _free(self) -> bool:
        return self.in_flight < int(self.limit)

    def _wake(self) -> None:
        while self._waiters and self._free():
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
        """Takes `amount` units and waits until they are due; a cancelled wait gives them back."""
        level = self.charge(amount)
        if level < 0:
            try:
                await asyncio.sleep(-level / self.per_second)
            except asyncio.CancelledError:
                self.charge(-amount)
                raise

    def charge(self, amount: float) -> float:
        """Takes `amount` units (negative: gives them back) without waiting, and returns what is left."""
        now = asyncio.get_running_loop().time()
        self._level = min(self.burst, self._level + (now - self._at) * self.per_second) - amount
        self._at = now
        return self._level
