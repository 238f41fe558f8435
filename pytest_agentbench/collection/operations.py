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
from pytest_agentbench.records.run import MessageEvent, ToolCallEvent, TraceEvent
from pytest_agentbench.runners.base import RunContext
from pytest_agentbench.session import CANCELLED
from pytest_agentbench.terminal_text import shorten_text, visible

_MOST_NAMES = 5
"""How many of the last tools and messages of a run are shown."""
_MOST_TEXT = 500
"""Characters of one message."""


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
        if request["do"] == "pause":
            engine.hold()
            return {}
        if request["do"] == "resume":
            engine.go_on()
            return {}
        if request["do"] == "show":
            return self._show(request["run"], content=request["content"])
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

    def _show(self, nodeid: str, *, content: bool) -> dict[str, Any]:
        """Return the facts of a run in flight, {} if it is none of this process's. Its texts only with `content`."""
        for item, seconds in self._list_in_flight():
            if true_nodeid(item) == nodeid:
                context = self.services.in_flight.get(item.stash[JOB])
                return {
                    "seconds": round(seconds, 1),
                    **_describe_context(context, self._write_text if content else None),
                }
        return {}

    def _write_text(self, text: str) -> str:
        """Return the beginning of an agent's text without secrets and control characters."""
        return shorten_text(visible(self.services.redactor.text(text)), _MOST_TEXT)

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


def _describe_context(context: RunContext | None, write_text: Callable[[str], str] | None) -> dict[str, Any]:
    """Return the facts of a run by its trace so far. `write_text` cleans texts, None leaves them out."""
    if context is None:
        return {"phase": "before or after the agent"}
    events = context.trace.events
    calls = [event.name for event in events if isinstance(event, ToolCallEvent)]

    def is_reply(event: TraceEvent) -> bool:
        return isinstance(event, MessageEvent) and event.role == "assistant"

    facts: dict[str, Any] = {
        "phase": "agent",
        "requests": max(context.asking.asked, sum(is_reply(event) for event in events)),
        "tokens": context.trace.usage.total_tokens,
        "tool_calls": len(calls),
        "last_tools": calls[-_MOST_NAMES:],
    }
    if write_text is not None:
        texts = [(e.role, e.content) for e in events if isinstance(e, MessageEvent) and e.content]
        facts["messages"] = [{"role": role, "text": write_text(text)} for role, text in texts[-_MOST_NAMES:]]
    return facts
