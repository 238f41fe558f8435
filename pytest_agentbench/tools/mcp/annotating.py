"""A trace whose tool calls say whether there was such a tool, and whether their arguments satisfy its schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pytest_agentbench.bounded import UncheckableError, bounded_schema
from pytest_agentbench.records import ToolCallEvent, ToolResultEvent, TraceEvent
from pytest_agentbench.tools.mcp.wire_names import wire_names

if TYPE_CHECKING:
    from pytest_agentbench.tools.base import Tool


def annotated(
    events: Sequence[TraceEvent], tools: Iterable[Tool], warn: Callable[[str], None]
) -> tuple[TraceEvent, ...]:
    """The events, calls with `offered` and `schema_valid`. `tools` are all that the run had, at least one.

    Wire names, which an agent may report of its own calls, become ids. `warn` is told of each tool whose calls nobody
    can judge, and why.
    """
    by_id = {tool.name: tool for tool in tools}
    ids = {wire_name: tool_id for tool_id, wire_name in wire_names(by_id).items()}

    def one(event: TraceEvent) -> TraceEvent:
        if not isinstance(event, ToolCallEvent | ToolResultEvent):
            return event
        changed: dict[str, Any] = {"name": ids.get(event.name, event.name)}
        if isinstance(event, ToolCallEvent):
            tool = by_id.get(changed["name"])
            changed |= {"offered": tool is not None, "schema_valid": tool and _is_valid(event, tool, warn)}
        return event.model_copy(update=changed)

    return tuple(map(one, events))


def _is_valid(call: ToolCallEvent, tool: Tool, warn: Callable[[str], None]) -> bool | None:
    """Whether a call's arguments satisfy the tool's schema, None where that cannot be told.

    No arguments at all are `{}`; what is no JSON object satisfies no schema, but a broken one.
    """
    schema, arguments = bounded_schema(tool.parameters), call.arguments
    try:
        if arguments is None and (call.raw or "").strip() and schema.problem is None:
            return False
        return schema.accepts(arguments or {})
    except UncheckableError as error:
        warn(f"{tool.name}: its calls are not scored by its input schema: {error}")
        return None
