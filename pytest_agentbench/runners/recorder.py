"""Record what a run has done so far, and make its tool calls side by side."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_agentbench.records.case import Role
from pytest_agentbench.records.run import (
    FinalOutputEvent,
    MessageEvent,
    RunnerEvent,
    ToolCallEvent,
    ToolResultEvent,
    TraceEvent,
    Usage,
)
from pytest_agentbench.tools.base import ToolOutput
from pytest_agentbench.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from pytest_agentbench.models.replies import ToolCall


MAX_LEVELS = 64
"""How deep what an agent hands over may nest: JSON of 200 levels is written, but not read back."""


class Recorder:
    """Collects one run's trace, usage, request and provider facts. Safe to use from any thread.

    `request` and `provider` are plain dicts that a runner fills: what was asked for, and what answered.
    """

    __slots__ = ("_began", "_events", "_lock", "_usage", "provider", "request")

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._events: list[TraceEvent] = []
        self._lock = threading.Lock()
        self._usage: Usage | None = None
        self.request: dict[str, Any] = {}
        self.provider: dict[str, Any] = {}

    @property
    def events(self) -> tuple[TraceEvent, ...]:
        """Return the trace so far, in order."""
        return tuple(self._events)

    @property
    def usage(self) -> Usage:
        """Return the sum of all that was added; all unknown where nothing was."""
        return self._usage or Usage()

    @property
    def seconds(self) -> float:
        """Return the seconds since the run began."""
        return time.perf_counter() - self._began

    @property
    def output(self) -> str | None:
        """Return the last final output recorded, None where there is none."""
        return next((e.content for e in reversed(self._events) if isinstance(e, FinalOutputEvent)), None)

    def message(self, role: Role, content: str, name: str | None = None) -> None:
        """Record a message the agent was given or wrote."""
        self._add(MessageEvent, role=role, content=clean(content), name=clean(name))

    def tool_call(self, call_id: str, name: str, arguments: dict[str, Any] | None, raw: str | None = None) -> None:
        """Record that the agent called a tool. `arguments` None: its text, `raw`, was no JSON object."""
        self._add(ToolCallEvent, call_id=clean(call_id), name=clean(name), arguments=clean(arguments), raw=clean(raw))

    def tool_result(
        self,
        call_id: str,
        name: str,
        content: str,
        *,
        is_error: bool = False,
        broken: bool = False,
        duration_seconds: float | None = None,
    ) -> None:
        """Record what the tool answered; `broken`: its own code failed."""
        self._add(
            ToolResultEvent,
            call_id=clean(call_id),
            name=clean(name),
            content=clean(content),
            is_error=is_error,
            broken=broken,
            duration_seconds=duration_seconds,
        )

    def event(self, name: str, **data: Any) -> None:
        """Record something the runner did; `data` is JSON-like."""
        self._add(RunnerEvent, name=name, data=clean(data))

    def final_output(self, text: str) -> None:
        """Record the agent's answer."""
        self._add(FinalOutputEvent, content=clean(text))

    def add_usage(self, usage: Usage) -> None:
        """Add tokens and money of one more request. Unknown plus known is unknown."""
        with self._lock:
            self._usage = usage if self._usage is None else self._usage + usage

    def _add(self, event: type[TraceEvent], **fields: Any) -> None:
        at = time.perf_counter() - self._began
        with self._lock:
            self._events.append(event(sequence=len(self._events), at=at, **fields))


def clean(value: Any, levels: int = MAX_LEVELS) -> Any:
    """Return the value as it can be stored and sent: lone surrogates become `?`, and what nests too deep a note."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if not isinstance(value, dict | list | tuple):
        return value
    if not levels:
        return f"[nested deeper than {MAX_LEVELS}]"
    if isinstance(value, dict):
        return {clean(key): clean(item, levels - 1) for key, item in value.items()}
    return [clean(item, levels - 1) for item in value]


T = TypeVar("T")


async def call_tools(
    calls: Sequence[ToolCall],
    toolbox: Toolbox,
    trace: Recorder,
    use: Callable[[ToolCall], Coroutine[Any, Any, ToolOutput]] | None = None,
) -> list[ToolOutput]:
    """Run the calls side by side; their outputs in the same order.

    The trace gets all calls, then all results that there are, in order, even of what was cut off. `use` makes one call;
    by default the toolbox does as it is. Raises InfrastructureError.
    """
    for call in calls:
        raw = call.raw if call.arguments is None else None
        trace.tool_call(call.id, toolbox.tool_id(call.name), call.arguments, raw)

    async def plainly(call: ToolCall) -> ToolOutput:
        return await toolbox.call(call.name, call.arguments, call.raw)

    tasks = [asyncio.ensure_future((use or plainly)(call)) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await settled(tasks)
        for call, task in zip(calls, tasks, strict=True):
            if not task.cancelled() and task.exception() is None:
                output, name = task.result(), toolbox.tool_id(call.name)
                trace.tool_result(
                    call.id,
                    name,
                    output.content,
                    is_error=output.is_error,
                    broken=output.broken,
                    duration_seconds=output.seconds,
                )


async def together(awaitables: Iterable[Awaitable[T]]) -> list[T]:
    """Await all side by side. The first that fails cancels the others, which have ended when its error is raised."""
    tasks = [asyncio.ensure_future(each) for each in awaitables]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await settled(tasks)


async def settled(tasks: Collection[asyncio.Future[Any]]) -> None:
    """Cancel what still runs and wait until it has cleaned up."""
    pending = [task for task in tasks if not task.done()]
    for task in pending:
        task.cancel()
    if pending:
        await asyncio.wait(pending)
