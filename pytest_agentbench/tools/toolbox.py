"""The toolbox between a model and its tools: wire names, arguments checked, errors as answers, answers bounded."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from pytest_agentbench.bounded.schemas import BoundedSchema, UncheckableError, bounded_schema
from pytest_agentbench.config.base import suggest
from pytest_agentbench.errors import AgentbenchError, InfrastructureError
from pytest_agentbench.records.run import ToolCallEvent, ToolResultEvent, TraceEvent
from pytest_agentbench.tools.base import Tool, ToolContext, ToolOutput

WIRE_NAME_LENGTH = 64

_LEGAL = re.compile(rf"[A-Za-z0-9_-]{{1,{WIRE_NAME_LENGTH}}}")
_HASH_LENGTH = 8


def assign_wire_names(tool_ids: Iterable[str]) -> dict[str, str]:
    """Return for each of the tools the name that a provider sees; no two have the same.

    A legal id is its own name. `Server:tool` becomes `Server__tool`; where more than that has to be changed, or another
    tool has that name already, a hash of the id is added.
    """
    ids = dict.fromkeys(tool_ids)
    names = {tool_id: tool_id for tool_id in ids if _LEGAL.fullmatch(tool_id)}
    wished = {tool_id: tool_id.replace(":", "__", 1) for tool_id in ids if tool_id not in names}
    wanted = Counter([*names, *wished.values()])
    taken = {*names, *wished.values()}
    for tool_id, wish in wished.items():
        names[tool_id] = wish if _LEGAL.fullmatch(wish) and wanted[wish] == 1 else _name_by_hash(tool_id, wish, taken)
    return {tool_id: names[tool_id] for tool_id in ids}


def _name_by_hash(tool_id: str, wish: str, taken: set[str]) -> str:
    """Return a legal name that no other tool has; it is then taken."""
    stem = re.sub(r"[^A-Za-z0-9_-]", "_", wish)[: WIRE_NAME_LENGTH - _HASH_LENGTH - 1]
    digest = hashlib.sha256(tool_id.encode("utf-8", "surrogatepass")).hexdigest()
    found = next(
        name
        for start in range(len(digest) - _HASH_LENGTH)
        if (name := f"{stem}-{digest[start : start + _HASH_LENGTH]}") not in taken
    )
    taken.add(found)
    return found


def annotate_calls(
    events: Sequence[TraceEvent], tools: Iterable[Tool], warn: Callable[[str], None]
) -> tuple[TraceEvent, ...]:
    """Return the events with `offered` and `schema_valid` at calls. `tools` are all that the run had, at least one.

    Wire names, which an agent may report of its own calls, become ids. `warn` is told of each tool whose calls nobody
    can judge, and why.
    """
    by_id = {tool.name: tool for tool in tools}
    ids = {wire_name: tool_id for tool_id, wire_name in assign_wire_names(by_id).items()}

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
    """Return whether a call's arguments satisfy the tool's schema, None where that cannot be told.

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


OUTPUT_LIMIT = 32_000
"""How many characters of a tool's output the model gets."""

_SHOWN_ERRORS = 3
_SHOWN_RAW = 200
_SHOWN_NAMES = 30


class Toolbox:
    """The tools of one run. Raises UnavailableError where one of them cannot work here.

    A tool has an id, by which cases and traces call it, and a wire name, which providers take: `assign_wire_names`
    says which.
    """

    def __init__(self, tools: Iterable[Tool], context: ToolContext) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._wire_names = assign_wire_names(self._tools)
        self._ids = {wire_name: tool_id for tool_id, wire_name in self._wire_names.items()}
        self._context = context
        for tool in self._tools.values():
            tool.available(context)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Return the tools in order; a tool's `name` is its id."""
        return tuple(self._tools.values())

    def tool_id(self, name: str) -> str:
        """Return the id of the tool that has the wire name or id; an unknown name as it is."""
        return self._ids.get(name, name)

    def reads_only(self, name: str) -> bool:
        """Return whether the tool of this wire name or id changes nothing; an unknown one may."""
        tool = self._tools.get(self.tool_id(name))
        return tool is not None and tool.reads_only

    def specs(self) -> list[dict[str, Any]]:
        """Return the tools as the `tools` parameter of a chat completion, by their wire names."""
        return [
            {
                "type": "function",
                "function": {
                    "name": self._wire_names[tool.name],
                    "description": tool.description,
                    "parameters": tool.parameters if tool.checks_arguments else _make_acceptable(tool.parameters),
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
        return replace(output, content=_bound_output(output.content), seconds=time.perf_counter() - started)

    async def _call(self, name: str, arguments: dict[str, Any] | None, raw: str) -> ToolOutput:
        tool = self._tools.get(self.tool_id(name))
        if tool is None:
            return _make_error(
                f"unknown tool {name!r}{_suggest_names(name, self._tools if ':' in name else self._ids)}"
            )
        if arguments is None:
            return _make_error(f"{name}: the arguments must be one JSON object, found {raw[:_SHOWN_RAW]!r}")
        if tool.checks_arguments and (problems := _describe_problems(tool, arguments)):
            return _make_error(f"{name}: {problems}")
        try:
            result: Any = tool.call(arguments, self._context)
            result = await result if inspect.isawaitable(result) else result  # plain functions are fine too
        except InfrastructureError:
            raise
        except OSError as error:
            return _make_error(f"{name}: {_describe_os_error(error, arguments)}")
        except AgentbenchError as error:
            return _make_error(f"{name}: {type(error).__name__}: {error}")
        except Exception as error:  # noqa: BLE001 - a tool's own failure is an answer to the model
            return _make_error(f"{name}: {type(error).__name__}: {error}", broken=True)
        return result if isinstance(result, ToolOutput) else _make_output(name, result)


def _make_output(name: str, result: Any) -> ToolOutput:
    """Return a tool's result as the model gets it: text as it is, anything else as JSON."""
    if isinstance(result, str):
        return ToolOutput(result)
    if result is None:
        return _make_error(f"{name}: the tool returned nothing, expected text or JSON", broken=True)
    try:
        return ToolOutput(json.dumps(result, ensure_ascii=False, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        found = f"the tool returned {type(result).__name__}, expected text or JSON ({error})"
        return _make_error(f"{name}: {found}", broken=True)


def _suggest_names(name: str, names: Collection[str]) -> str:
    """Return what there is instead of `name`: all of it, or of much what comes near."""
    if len(names) > _SHOWN_NAMES:
        return suggest(name, names)
    return f"; the tools of this task are: {', '.join(sorted(names)) or 'none'}"


def _make_acceptable(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a server's schema as providers take it: one that they do not know makes them refuse the whole request."""
    if schema.get("type", "object") != "object" or bounded_schema(schema).problem is not None:
        return {"type": "object"}
    return {"type": "object", **schema}


def _describe_problems(tool: Tool, arguments: dict[str, Any]) -> str:
    try:
        errors = _compile_schema(tool).first_errors(arguments, _SHOWN_ERRORS)
    except UncheckableError as error:
        return f"the arguments cannot be checked by its schema: {error}"
    return "; ".join(f"{error.json_path.removeprefix('$.')}: {error.message[:300]}" for error in errors)


@lru_cache(maxsize=1024)
def _compile_schema(tool: Tool) -> BoundedSchema:
    return BoundedSchema(tool.parameters)


def _describe_os_error(error: OSError, arguments: dict[str, Any]) -> str:
    """Return the reason of an OSError without the machine's own paths."""
    path = arguments.get("path")
    reason = error.strerror or type(error).__name__
    return f"{json.dumps(path, ensure_ascii=False)}: {reason}" if isinstance(path, str) else reason


def _make_error(message: str, *, broken: bool = False) -> ToolOutput:
    return ToolOutput(f"error: {message}", is_error=True, broken=broken)


def _bound_output(content: str) -> str:
    """Return at most OUTPUT_LIMIT characters, all of which a request can carry."""
    if not content.isascii():
        # Lone surrogates, as of a file name that is no UTF-8, would make the next request fail.
        content = content.encode("utf-8", "replace").decode("utf-8")
    if len(content) <= OUTPUT_LIMIT:
        return content
    # Both ends: a test run says at its end what failed, a listing at its beginning what it lists.
    half = OUTPUT_LIMIT // 2
    left_out = len(content) - 2 * half
    return f"{content[:half]}\n[... {left_out:,} characters left out ...]\n{content[-half:]}"
