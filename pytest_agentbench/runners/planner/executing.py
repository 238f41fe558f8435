"""A round's tool calls: some one by one, the others side by side."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from pytest_agentbench.config import PlannerSettings
from pytest_agentbench.models import ToolCall
from pytest_agentbench.runners.calling import call_tools
from pytest_agentbench.runners.planner.plan import PlannedCall
from pytest_agentbench.runners.recorder import Recorder
from pytest_agentbench.tools import Toolbox, ToolOutput


async def execute(
    number: int, planned: Sequence[PlannedCall], toolbox: Toolbox, trace: Recorder, settings: PlannerSettings
) -> list[ToolOutput]:
    """Make the calls of round `number`; their outputs in the plan's order. Raises InfrastructureError.

    Tools that are `sequential_only_tools` go first, each call with its result before the next. The others run side by
    side, recorded together before any of their results.
    """
    calls = [
        ToolCall(call_id(number, nth), each.tool, each.parameters, "") for nth, each in enumerate(planned, start=1)
    ]
    slots = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(settings.parallel_calls_per_server))

    async def use(call: ToolCall) -> ToolOutput:
        async with slots[server_of(toolbox.tool_id(call.name)) or ""]:
            return await _call(call, toolbox, settings.call_timeout_seconds)

    outputs: dict[str, ToolOutput] = {}
    alone = [call for call in calls if toolbox.tool_id(call.name) in settings.sequential_only_tools]
    for call in alone:
        [outputs[call.id]] = await call_tools([call], toolbox, trace, use)
    others = [call for call in calls if call not in alone]
    outputs |= zip((call.id for call in others), await call_tools(others, toolbox, trace, use), strict=True)
    return [outputs[call.id] for call in calls]


def call_id(number: int, nth: int) -> str:
    """The id of the `nth` call of round `number` in the trace, both from 1."""
    return f"r{number}-{nth}"


def server_of(tool_id: str) -> str | None:
    """The server of `Server:tool`; None for a built-in tool."""
    server, colon, _ = tool_id.partition(":")
    return server if colon else None


async def _call(call: ToolCall, toolbox: Toolbox, seconds: float) -> ToolOutput:
    try:
        async with asyncio.timeout(seconds):
            return await toolbox.call(call.name, call.arguments)
    except TimeoutError:
        message = f"error: {toolbox.tool_id(call.name)}: no result within call_timeout_seconds ({seconds:g} s)"
        return ToolOutput(message, is_error=True, seconds=seconds)
