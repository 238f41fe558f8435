"""Operate the runs of this process while the session runs: see those in flight, cancel one, change limits.

`distributed.live_session` describes the requests. They come from the thread of the session's socket, or with
pytest-xdist from the controller, in execnet's thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from pytest_agentbench.collection.preconditions import bound_by_open_files
from pytest_agentbench.engine.driver import JOB, RunAhead, true_nodeid
from pytest_agentbench.engine.job import Job
from pytest_agentbench.engine.services import Services
from pytest_agentbench.session import CANCELLED


@dataclass(frozen=True)
class Operations:
    """Answers to requests about the runs of this process. `limit_cost` sets the session's limit in USD here."""

    ahead: RunAhead
    services: Services
    jobs: Sequence[Job]
    limit_cost: Callable[[float], None]

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a request."""
        if request["do"] == "cancel":
            self._cancel(request["run"])
            return {}
        if request["do"] == "retune":
            return {"warnings": self._retune(request["concurrency"], request["max_cost"])}
        engine, limits = self.ahead.engine, self.ahead.limits
        return {
            "ended": engine.ended,
            "concurrency": min(limits.total, limits.concurrency * limits.workers),
            "runs": [
                {"nodeid": true_nodeid(item), "seconds": round(seconds, 1)} for item, seconds in self._list_in_flight()
            ],
        }

    def _list_in_flight(self) -> list[tuple[pytest.Item, float]]:
        """Return the items of the runs in flight, and for how many seconds they have been."""
        now = time.perf_counter()
        running = {job: now - flight.began for job, flight in [*self.ahead.engine.running.items()]}
        if not running:
            return []
        jobs = [(item, item.stash.get(JOB, None)) for item in self.ahead.session.items]
        return [(item, running[job]) for item, job in jobs if job in running]

    def _cancel(self, nodeid: str) -> None:
        engine = self.ahead.engine
        for item, _ in self._list_in_flight():
            if true_nodeid(item) == nodeid:
                engine.post(engine.cancel, item.stash[JOB], CANCELLED)

    def _retune(self, concurrency: int | None, max_cost: float | None) -> list[str]:
        """Change the limits that are not None. Return warnings."""
        if max_cost is not None:
            self.limit_cost(max_cost)
        if concurrency is None:
            return []
        limits = self.ahead.limits
        limits.retune(concurrency)
        warnings = bound_by_open_files(limits, [*self.jobs])
        self.ahead.retune()
        self.ahead.engine.post(self.services.retune, limits.concurrency)
        return warnings
