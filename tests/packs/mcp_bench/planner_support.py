"""Shared parts of the planner's tests: plans, hand-made tools, and a run with them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from runners.runners_support import assistant, make_case, probe

from pytest_agentbench.packs.mcp_bench.planner import RUNNER
from pytest_agentbench.packs.mcp_bench.records import PlannerSettings
from pytest_agentbench.records.case import Model
from pytest_agentbench.records.run import RunnerEvent, ToolCallEvent, ToolResultEvent
from pytest_agentbench.runners.base import RunContext, RunEnd
from pytest_agentbench.tools.base import Tool, ToolContext

STOP = assistant(json.dumps({"reasoning": "All is done.", "should_continue": False, "planned_tools": []}))
OPEN = {"type": "object"}


def plan(
    *calls: tuple[str, object], go: object = True, why: str = "Next.", finish: str | None = None
) -> dict[str, Any]:
    """Return a planner's reply that calls (tool, parameters)."""
    planned = [{"tool": tool, "parameters": parameters} for tool, parameters in calls]
    return assistant(json.dumps({"reasoning": why, "should_continue": go, "planned_tools": planned}), finish=finish)


def tool(name: str, call: Callable[[dict[str, Any]], Awaitable[str]]) -> Tool:
    """Return a tool that accepts any arguments and checks them itself, like a server's."""

    async def called(arguments: dict[str, Any], _: ToolContext) -> str:
        return await call(arguments)

    return Tool(name, f"About {name}.", OPEN, called, checks_arguments=False)


def says(name: str, text: str = "fine") -> Tool:
    async def call(arguments: dict[str, Any]) -> str:
        return text.format(**arguments) if arguments else text

    return tool(name, call)


def run(model: Model, *tools: Tool, text: str = "Go.", **fields: Any) -> tuple[RunContext, RunEnd]:
    """Run a case with these tools; keywords are settings of PlannerSettings."""
    given = {name: fields.pop(name) for name in PlannerSettings.model_fields if name in fields}
    case = make_case(tools=[each.name for each in tools], text=text)
    context, end = probe(
        case,
        model,
        runner=RUNNER,
        prepared=PlannerSettings.model_validate(given),
        tools={each.name: each for each in tools},
        **fields,
    )
    assert end is not None
    return context, end


def events(context: RunContext, name: str) -> list[dict[str, Any]]:
    return [event.data for event in context.trace.events if isinstance(event, RunnerEvent) and event.name == name]


def calls_and_results(context: RunContext) -> list[str]:
    """Return `call` or `result` with the name of the tool, in the order of the trace."""
    told = {ToolCallEvent: "call", ToolResultEvent: "result"}
    return [f"{told[type(e)]} {e.name}" for e in context.trace.events if isinstance(e, ToolCallEvent | ToolResultEvent)]


def asked(request: dict[str, Any]) -> str:
    """Return the last user message of a request."""
    text = request["messages"][-1]["content"]
    assert isinstance(text, str)
    return text
