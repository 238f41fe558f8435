"""Measure the time of all turns of a program, by the clock of their run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from pytest_agentbench.models.clock import RUN_CLOCK, RunClock
from pytest_agentbench.workspaces.sandboxes.base import ExecResult, Sandbox

LONGEST_STAND = 86_400.0
"""Maximum seconds of a turn while the run's clock is paused for waiting requests."""


class TurnTime:
    """The remaining seconds of a limit for all turns. They do not decrease while the run's clock is paused."""

    def __init__(self, seconds: float) -> None:
        self.remaining = seconds
        self._clock = RUN_CLOCK.get() or RunClock()

    @asynccontextmanager
    async def limit(self) -> AsyncIterator[asyncio.Timeout]:
        """Raise TimeoutError if the block takes longer than what remains, and subtract the time that it takes."""
        began, stood = time.monotonic(), self._clock.stood
        try:
            async with self._clock.limit(max(0.0, self.remaining)) as timer:
                yield timer
        finally:
            self.remaining -= time.monotonic() - began - (self._clock.stood - stood)

    async def exec(
        self, sandbox: Sandbox, argv: Sequence[str], *, output_limit: int, environment: Mapping[str, str]
    ) -> ExecResult:
        """Execute a turn's command, and subtract the time that it takes."""
        began, timer = time.monotonic(), None
        # Two limits: the run's clock may be paused, and the sandbox knows only a limit that is fixed at the start
        most = max(0.0, self.remaining) + LONGEST_STAND
        try:
            async with self.limit() as timer:
                return await sandbox.exec(argv, seconds=most, output_limit=output_limit, environment=environment)
        except TimeoutError:
            if timer is None or not timer.expired():
                raise
            seconds = time.monotonic() - began
            return ExecResult(exit_code=None, output="", killed="time-out", truncated=False, seconds=seconds)
