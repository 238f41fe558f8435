"""Measure the time that a program's turns take together, by the clock of their run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from pytest_agentbench.models.clock import RUN_CLOCK, RunClock
from pytest_agentbench.workspaces.sandboxes.base import ExecResult, Sandbox

LONGEST_STAND = 86_400.0
"""Seconds that a turn may take in addition to its own time: the clock stands while its requests wait."""


class TurnTime:
    """The seconds that are left of a limit of all turns. It stands still while the run's clock does."""

    def __init__(self, seconds: float) -> None:
        self.left = seconds
        self._clock = RUN_CLOCK.get() or RunClock()

    async def exec(
        self, sandbox: Sandbox, argv: Sequence[str], *, output_limit: int, environment: Mapping[str, str]
    ) -> ExecResult:
        """Execute a turn's command, and subtract the time that it takes."""
        began, stood, timer = time.monotonic(), self._clock.stood, None
        # The sandbox knows only limits that are fixed when the command starts.
        most = max(0.0, self.left) + LONGEST_STAND
        try:
            async with self._clock.limit(max(0.0, self.left)) as timer:
                return await sandbox.exec(argv, seconds=most, output_limit=output_limit, environment=environment)
        except TimeoutError:
            if timer is None or not timer.expired():
                raise
            seconds = time.monotonic() - began
            return ExecResult(exit_code=None, output="", killed="time-out", truncated=False, seconds=seconds)
        finally:
            self.left -= time.monotonic() - began - (self._clock.stood - stood)
