"""A worker's side of limits over all of xdist's workers: it asks the controller, which keeps them (`throttling`)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from pytest_agentbench.engine.job import Job, Result
from pytest_agentbench.engine.lookahead import Work
from pytest_agentbench.engine.throttling import Limit
from pytest_agentbench.models import Admission, Metered, Outcome, Throttling
from pytest_agentbench.records import Limits


class WorkerThrottles:
    """A worker's way to limits that the controller keeps. For the engine's loop; `send` must not wait."""

    def __init__(self, send: Callable[[Sequence[Any]], None]) -> None:
        self._send = send
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[None]] = {}

    def throttle(self, of_what: Hashable, limit: Limit) -> Throttling:
        """The limit on `of_what`, which every worker calls the same."""
        return _AskingThrottle(self, of_what, limit)

    def of_model(self, concurrency: int, metered: Metered, limits: Limits) -> Throttling:
        """A model's own limits; `concurrency` is how many requests all workers make at once where it does not say."""
        in_flight = limits.max_concurrency if "max_concurrency" in limits.model_fields_set else concurrency
        return self.throttle(metered, (in_flight, limits.rpm, limits.tpm))

    async def admit(self, of_what: Hashable, limit: Limit, tokens: float) -> int:
        """Waits until the controller says so. Returns the number to `release`."""
        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        self._send(("admit", number, of_what, limit, tokens))
        try:
            await answer
        except asyncio.CancelledError:
            self.release(number, "failed", 0)
            raise
        finally:
            del self._asked[number]
        return number

    def release(self, number: int, outcome: Outcome, beyond: float) -> None:
        """What was admitted is over."""
        self._send(("release", number, outcome, beyond))

    def receive(self, message: Sequence[Any]) -> None:
        """The controller's answer. One that comes after the asker gave up is for nobody: it has been released."""
        kind, number, *reason = message
        answer = self._asked.get(number)
        if answer is None or answer.done():
            return
        if kind == "admitted":
            answer.set_result(None)
        else:
            answer.set_exception(RuntimeError(f"the limits that all workers share failed: {reason[0]}"))


class _AskingThrottle:
    def __init__(self, throttles: WorkerThrottles, of_what: Hashable, limit: Limit) -> None:
        self._throttles, self._of_what, self._limit = throttles, of_what, limit

    async def admit(self, tokens: float) -> int:
        return await self._throttles.admit(self._of_what, self._limit, tokens)

    def release(self, ticket: int, outcome: Outcome, beyond: float) -> None:
        self._throttles.release(ticket, outcome, beyond)


class RunLimits:
    """How many runs `workers` processes make at once: `total` of them, and of each run profile what `profiles` says.

    A worker gets an even share, `concurrency` of all runs. Where the shares do not come out even they are rounded up,
    and the controller lets no more begin than the limit says.
    """

    def __init__(self, total: int, profiles: Mapping[str, int], workers: int) -> None:
        self.total, self.workers = total, workers
        self.profiles = {name: limit for name, limit in profiles.items() if limit < total}
        self.concurrency = self.share(total)

    def share(self, limit: int) -> int:
        """One worker's part of a limit, at least 1."""
        return -(-limit // self.workers)

    def within(self, work: Work, throttles: WorkerThrottles) -> Work:
        """Work that begins once its limits let it."""
        total = self._uneven(throttles, "session", self.total)
        profiles = {name: self._uneven(throttles, name, limit) for name, limit in self.profiles.items()}

        async def limited(job: Job, runner: Any) -> Result:
            async with AsyncExitStack() as stack:
                for throttle in (*total, *profiles.get(job.plan.run_profile.run_profile_id, ())):
                    await stack.enter_async_context(Admission(throttle))
                return await work(job, runner)

        return limited if total or any(profiles.values()) else work

    def _uneven(self, throttles: WorkerThrottles, name: str, limit: int) -> tuple[Throttling, ...]:
        if limit % self.workers == 0:
            return ()
        return (throttles.throttle(("runs", name, limit), (limit, None, None)),)
