"""The toolbox between a model and its tools: wire names, argument checks, errors as outputs, limits of outputs."""

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
    """Return the unique name for providers of each tool.

    A legal id is its own name. `Server:tool` becomes `Server__tool`. If more has to change, or another tool has that
    name, a hash of the id is added.
    """
    ids = dict.fromkeys(tool_ids)
    names = {tool_id: tool_id for tool_id in ids if _LEGAL.fullmatch(tool_id)}
    simple_names = {tool_id: tool_id.replace(":", "__", 1) for tool_id in ids if tool_id not in names}
    # A simple name is usable only if no other tool has it, as its id or as its own simple name
    uses = Counter([*names, *simple_names.values()])
    taken = {*names, *simple_names.values()}
    for tool_id, name in simple_names.items():
        if not _LEGAL.fullmatch(name) or uses[name] > 1:
            name = _name_by_hash(tool_id, name, taken)
        names[tool_id] = name
    return {tool_id: names[tool_id] for tool_id in ids}


def _name_by_hash(tool_id: str, simple_name: str, taken: set[str]) -> str:
    """Return a legal name that is not in `taken`, and add it there."""
    stem = re.sub(r"[^A-Za-z0-9_-]", "_", simple_name)[: WIRE_NAME_LENGTH - _HASH_LENGTH - 1]
    digest = hashlib.sha256(tool_id.encode("utf-8", "surrogatepass")).hexdigest()
    result = next(
        name
        for start in range(len(digest) - _HASH_LENGTH)
        if (name := f"{stem}-{digest[start : start + _HASH_LENGTH]}") not in taken
    )
    taken.add(result)
    return result


def annotate_calls(
    events: Sequence[TraceEvent], tools: Iterable[Tool], warn: Callable[[str], None], *, complete: bool = True
) -> tuple[TraceEvent, ...]:
    """Return the events with `offered` and `schema_valid` at calls. `tools` are the tools of the run, at least one.
    Calls of other tools were not offered if these tools are `complete`, else they stay as they are.

    Wire names, which an agent may report, become ids. `warn` is called for each tool whose calls cannot be checked,
    with the reason. A call whose `offered` is known already, from the request of an agent program, stays.
    """
    by_id = {tool.name: tool for tool in tools}
    ids = {wire_name: tool_id for tool_id, wire_name in assign_wire_names(by_id).items()}

    def one(event: TraceEvent) -> TraceEvent:
        if not isinstance(event, ToolCallEvent | ToolResultEvent):
            return event
        changed: dict[str, Any] = {"name": ids.get(event.name, event.name)}
        if isinstance(event, ToolCallEvent) and event.offered is None:
            tool = by_id.get(changed["name"])
            if tool is None and not complete:
                return event
            changed |= {"offered": tool is not None, "schema_valid": tool and _is_valid(event, tool, warn)}
        return event.model_copy(update=changed)

    return tuple(map(one, events))


def _is_valid(call: ToolCallEvent, tool: Tool, warn: Callable[[str], None]) -> bool | None:
    """Return whether a call's arguments satisfy the tool's schema, or None if that is unknown.

    Missing arguments count as `{}`. A text that is not a JSON object is invalid, unless the schema itself is broken.
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
"""Maximum characters of a tool's output for the model."""

_SHOWN_ERRORS = 3
_SHOWN_RAW = 200
_SHOWN_NAMES = 30


class Toolbox:
    """The tools of one run. Raises UnavailableError if one of them cannot work here.

    A tool has an id for cases and traces, and a wire name for providers, assigned by `assign_wire_names`.
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
        """Return the id of the tool with the wire name or id; an unknown name unchanged."""
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
                    "parameters": _make_acceptable(tool),
                },
            }
            for tool in self._tools.values()
        ]

    async def call(self, name: str, arguments: dict[str, Any] | None, raw: str = "") -> ToolOutput:
        """Call a tool by its wire name or id. `arguments` None: the model's text `raw` is not a JSON object.

        All errors become outputs with `is_error` for the model, with `broken` if the tool's own code failed, with
        `refused` if it was not called. Only InfrastructureError is raised.
        """
        started = time.perf_counter()
        output = await self._call(name, arguments, raw)
        return replace(output, content=_bound_output(output.content), seconds=time.perf_counter() - started)

    async def _call(self, name: str, arguments: dict[str, Any] | None, raw: str) -> ToolOutput:
        tool = self._tools.get(self.tool_id(name))
        if tool is None:
            names = self._tools if ":" in name else self._ids
            return _make_error(f"unknown tool {name!r}{_suggest_names(name, names)}", refused=True)
        if arguments is None:
            problem = f"the arguments must be one JSON object, found {raw[:_SHOWN_RAW]!r}"
            return _make_error(f"{name}: {problem}", refused=True)
        if tool.checks_arguments and (problems := _describe_problems(tool, arguments)):
            return _make_error(f"{name}: {problems}", refused=True)
        try:
            result: Any = tool.call(arguments, self._context)
            if inspect.isawaitable(result):  # plain functions are allowed, too
                result = await result
        except InfrastructureError:
            raise
        except OSError as error:
            return _make_error(f"{name}: {_describe_os_error(error, arguments)}")
        except AgentbenchError as error:
            return _make_error(f"{name}: {type(error).__name__}: {error}")
        except Exception as error:  # noqa: BLE001 - the model gets a tool's own failure as output
            return _make_error(f"{name}: {type(error).__name__}: {error}", broken=True)
        if isinstance(result, ToolOutput):
            return result
        return _make_output(name, result)


def _make_output(name: str, result: Any) -> ToolOutput:
    """Return a tool's result as output for the model: text unchanged, anything else as JSON."""
    if isinstance(result, str):
        return ToolOutput(result)
    if result is None:
        return _make_error(f"{name}: the tool returned nothing, expected text or JSON", broken=True)
    try:
        return ToolOutput(json.dumps(result, ensure_ascii=False, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        problem = f"the tool returned {type(result).__name__}, expected text or JSON ({error})"
        return _make_error(f"{name}: {problem}", broken=True)


def _suggest_names(name: str, names: Collection[str]) -> str:
    """Return a hint with all names, or with similar ones if there are many."""
    if len(names) > _SHOWN_NAMES:
        return suggest(name, names)
    return f"; the tools of this task are: {', '.join(sorted(names)) or 'none'}"


def _make_acceptable(tool: Tool) -> dict[str, Any]:
    """Return a tool's schema in a form that providers accept. An invalid one would make them refuse the request."""
    schema = tool.parameters
    if tool.checks_arguments:  # not a server's, so its author has tested it
        return schema
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
    """Return the reason of an OSError without paths of this machine."""
    path = arguments.get("path")
    reason = error.strerror or type(error).__name__
    if not isinstance(path, str):
        return reason
    return f"{json.dumps(path, ensure_ascii=False)}: {reason}"


def _make_error(message: str, *, broken: bool = False, refused: bool = False) -> ToolOutput:
    return ToolOutput(f"error: {message}", is_error=True, broken=broken, refused=refused)


def _bound_output(content: str) -> str:
    """Return at most OUTPUT_LIMIT characters, without any that a request cannot contain."""
    if not content.isascii():
        # Lone surrogates, for example of a file name that is not UTF-8, would make the next request fail
        content = content.encode("utf-8", "replace").decode("utf-8")
    if len(content) <= OUTPUT_LIMIT:
        return content
    # Both ends are kept: a test run has its failures at the end, a listing its subject at the beginning
    half = OUTPUT_LIMIT // 2
    left_out = len(content) - 2 * half
    return f"{content[:half]}\n[... {left_out:,} characters left out ...]\n{content[-half:]}"
