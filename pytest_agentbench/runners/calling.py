"""Tool calls side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_agentbench.runners.recorder import Recorder
from pytest_agentbench.tools import Toolbox, ToolOutput

if TYPE_CHECKING:
    from pytest_agentbench.models import ToolCall

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
    """All of them side by side. The first that fails cancels the others, which have ended when its error is raised."""
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
