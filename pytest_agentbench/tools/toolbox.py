"""Between a model and the tools: arguments are checked, errors become answers, answers are bounded."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from pytest_agentbench.bounded import BoundedSchema, UncheckableError, bounded_schema
from pytest_agentbench.config import suggest
from pytest_agentbench.errors import AgentbenchError, InfrastructureError
from pytest_agentbench.tools.base import Tool, ToolContext, ToolOutput
from pytest_agentbench.tools.mcp.wire_names import wire_names

OUTPUT_LIMIT = 32_000
"""How many characters of a tool's output the model gets."""

_SHOWN_ERRORS = 3
_SHOWN_RAW = 200
_SHOWN_NAMES = 30


class Toolbox:
    """The tools of one run. Raises UnavailableError where one of them cannot work here.

    A tool has an id, by which cases and traces call it, and a wire name, which providers take: `wire_names` says which.
    """

    def __init__(self, tools: Iterable[Tool], context: ToolContext) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._wire_names = wire_names(self._tools)
        self._ids = {wire_name: tool_id for tool_id, wire_name in self._wire_names.items()}
        self._context = context
        for tool in self._tools.values():
            tool.available(context)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools in order; a tool's `name` is its id."""
        return tuple(self._tools.values())

    def tool_id(self, name: str) -> str:
        """The id of the tool that has the wire name or id; an unknown name as it is."""
        return self._ids.get(name, name)

    def specs(self) -> list[dict[str, Any]]:
        """The tools as the `tools` parameter of a chat completion, by their wire names."""
        return [
            {
                "type": "function",
                "function": {
                    "name": self._wire_names[tool.name],
                    "description": tool.description,
                    "parameters": tool.parameters if tool.checks_arguments else _acceptable(tool.parameters),
                },
            }
            for tool in self._tools.values()
        ]

    async def call(self, name: str, arguments: dict[str, Any] | None, raw: str = "") -> ToolOutput:
        """Call a tool by its wire name or id. `arguments` None means that the model's text, `raw`, was no JSON object.

        Whatever goes wrong is an answer with `is_error`, for the model to read, and `broken` where the tool's own code
        did; only InfrastructureError is raised.
        """
        started = time.perf_counter()
        output = await self._call(name, arguments, raw)
        return replace(output, content=_readable(output.content), seconds=time.perf_counter() - started)

    async def _call(self, name: str, arguments: dict[str, Any] | None, raw: str) -> ToolOutput:
        tool = self._tools.get(self.tool_id(name))
        if tool is None:
            return _error(f"unknown tool {name!r}{_known(name, self._tools if ':' in name else self._ids)}")
        if arguments is None:
            return _error(f"{name}: the arguments must be one JSON object, found {raw[:_SHOWN_RAW]!r}")
        if tool.checks_arguments and (problems := _problems(tool, arguments)):
            return _error(f"{name}: {problems}")
        try:
            result: Any = tool.call(arguments, self._context)
            result = await result if inspect.isawaitable(result) else result  # plain functions are fine too
        except InfrastructureError:
            raise
        except OSError as error:
            return _error(f"{name}: {_os_error(error, arguments)}")
        except AgentbenchError as error:
            return _error(f"{name}: {type(error).__name__}: {error}")
        except Exception as error:  # noqa: BLE001 - a tool's own failure is an answer to the model
            return _error(f"{name}: {type(error).__name__}: {error}", broken=True)
        return result if isinstance(result, ToolOutput) else _output(name, result)


def _output(name: str, result: Any) -> ToolOutput:
    """What a tool returned, as the model gets it: text as it is, anything else as JSON."""
    if isinstance(result, str):
        return ToolOutput(result)
    if result is None:
        return _error(f"{name}: the tool returned nothing, expected text or JSON", broken=True)
    try:
        return ToolOutput(json.dumps(result, ensure_ascii=False, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        found = f"the tool returned {type(result).__name__}, expected text or JSON ({error})"
        return _error(f"{name}: {found}", broken=True)


def _known(name: str, names: Collection[str]) -> str:
    """What there is instead of `name`: all of it, or of much what comes near."""
    if len(names) > _SHOWN_NAMES:
        return suggest(name, names)
    return f"; the tools of this task are: {', '.join(sorted(names)) or 'none'}"


def _acceptable(schema: dict[str, Any]) -> dict[str, Any]:
    """A server's schema, as long as providers can take it: for one that they cannot, they refuse the whole request."""
    if schema.get("type", "object") != "object" or bounded_schema(schema).problem is not None:
        return {"type": "object"}
    return {"type": "object", **schema}


def _problems(tool: Tool, arguments: dict[str, Any]) -> str:
    try:
        errors = _schema(tool).first_errors(arguments, _SHOWN_ERRORS)
    except UncheckableError as error:
        return f"the arguments cannot be checked by its schema: {error}"
    return "; ".join(f"{error.json_path.removeprefix('$.')}: {error.message[:300]}" for error in errors)


@lru_cache(maxsize=1024)
def _schema(tool: Tool) -> BoundedSchema:
    return BoundedSchema(tool.parameters)


def _os_error(error: OSError, arguments: dict[str, Any]) -> str:
    """The reason without the machine's own paths."""
    path = arguments.get("path")
    reason = error.strerror or type(error).__name__
    return f"{json.dumps(path, ensure_ascii=False)}: {reason}" if isinstance(path, str) else reason


def _error(message: str, *, broken: bool = False) -> ToolOutput:
    return ToolOutput(f"error: {message}", is_error=True, broken=broken)


def _readable(content: str) -> str:
    """At most OUTPUT_LIMIT characters, all of which a request can carry."""
    if not content.isascii():
        content = content.encode("utf-8", "replace").decode("utf-8")
    if len(content) <= OUTPUT_LIMIT:
        return content
    half = OUTPUT_LIMIT // 2
    left_out = len(content) - 2 * half
    return f"{content[:half]}\n[... {left_out:,} characters left out ...]\n{content[-half:]}"
