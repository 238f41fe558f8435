"""MCP servers from a run's point of view: live or from a cassette, with their tools next to the built-in ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol

from pytest_agentbench.errors import (
    ConfigError,
    McpCallError,
    McpServerDiedError,
    McpServerError,
    SandboxError,
    UnavailableError,
)
from pytest_agentbench.models.cassette_file import Answer, Refusal
from pytest_agentbench.models.tape import Form, Tape
from pytest_agentbench.records.base import Record
from pytest_agentbench.tools.base import Tool, ToolContext, ToolOutput


class ServerTool(Record):
    """A server's description of a tool. `input_schema` is the unchanged JSON Schema of its arguments.

    `reads_only` is its annotation `readOnlyHint`.
    """

    server: str
    name: str
    description: str = ""
    input_schema: dict[str, Any]
    reads_only: bool = False

    @property
    def tool_id(self) -> str:
        """Return `Server:tool`, the tool's name in cases, traces and reports."""
        return f"{self.server}:{self.name}"


class Listing(Record):
    """The tools of one server, in its order, and the server's own name and version.

    `protocol` is the version of MCP that it was asked in, "" in a listing from a cassette.
    """

    server_name: str
    server_version: str
    protocol: str = ""
    tools: tuple[ServerTool, ...]


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of a call, as text for a model to read. `is_error` is the server's own flag.

    `sent` are the server's `content` and `structuredContent` if they are more than one text, else None.
    """

    text: str
    is_error: bool = False
    sent: Mapping[str, Any] | None = None


class ToolServer(Protocol):
    """The interface of servers for a run: connections and their wrappers."""

    async def listing(self) -> Listing:
        """Return the server's tools. Raises McpServerError if that fails."""
        ...

    async def call(self, tool: str, arguments: Mapping[str, Any], seconds: float | None = None) -> CallResult:
        """Call a tool by the server's own name of it. Raises McpCallError, and McpServerError if the server cannot
        start.
        """
        ...

    async def close(self) -> None:
        """Stop the server. Never raises; may be called twice."""
        ...


class UnavailableServer:
    """A server that is unavailable. `reason` is the cause and the remedy."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    async def listing(self) -> Listing:
        """Raise UnavailableError with the reason."""
        raise UnavailableError(self.reason)

    async def call(self, tool: str, arguments: Mapping[str, Any], seconds: float | None = None) -> CallResult:
        """Raise UnavailableError with the reason."""
        raise UnavailableError(self.reason)

    async def close(self) -> None:
        """Do nothing."""


class TrimmedServer:
    """A server of which some tools are not offered."""

    def __init__(self, name: str, server: ToolServer, excluded: Collection[str]) -> None:
        self._name, self._server, self._excluded = name, server, frozenset(excluded)

    async def listing(self) -> Listing:
        """Return the tools that are not excluded. Raises ConfigError for an unknown name among the excluded ones."""
        listing = await self._server.listing()
        names = {tool.name for tool in listing.tools}
        if unknown := sorted(self._excluded - names):
            bad, good = ", ".join(map(repr, unknown)), ", ".join(sorted(names))[:500]
            place = f"MCP server {self._name!r}: exclude_tools"
            raise ConfigError(f"{place}: found {bad}, expected names of its tools: {good}")
        tools = tuple(tool for tool in listing.tools if tool.name not in self._excluded)
        return listing.model_copy(update={"tools": tools})

    async def call(self, tool: str, arguments: Mapping[str, Any], seconds: float | None = None) -> CallResult:
        """Implement `ToolServer`."""
        return await self._server.call(tool, arguments, seconds)

    async def close(self) -> None:
        """Implement `ToolServer`."""
        await self._server.close()


class RunServers:
    """The servers of one run, by name. `tools` are all their tools, in the order of the servers.

    `protocols` are the versions of MCP by the servers' names, as far as they are known. `optional` are the names of
    servers that the run can do without. `left_out` maps those that are not offered to the reasons.
    """

    def __init__(
        self,
        servers: Mapping[str, ToolServer],
        tools: tuple[ServerTool, ...],
        ended: Callable[[], Awaitable[None]],
        optional: Collection[str] = (),
        left_out: Mapping[str, str] = MappingProxyType({}),
        protocols: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Store the servers. `ended` is awaited once they have stopped."""
        self.tools, self.optional, self.left_out, self.protocols = tools, optional, left_out, protocols
        self._servers = servers
        self._ended = ended

    @property
    def names(self) -> list[str]:
        """Return the names of the servers that are offered, also of those without tools."""
        return [name for name in self._servers if name not in self.left_out]

    def as_tools(self) -> list[Tool]:
        """Return the tools in the form for agents. The server checks the arguments, and the agent reads its errors."""
        return [
            Tool(
                tool.tool_id,
                tool.description,
                tool.input_schema,
                partial(_call_tool, self._servers[tool.server], tool),
                # A server may be stricter or laxer than its own schema, so its reply decides
                checks_arguments=False,
                reads_only=tool.reads_only,
            )
            for tool in self.tools
        ]

    async def stop(self) -> None:
        """Stop all servers. Never raises; may be called twice."""
        await asyncio.gather(*(server.close() for server in self._servers.values()))
        await self._ended()


async def list_servers(
    servers: Mapping[str, ToolServer],
    ended: Callable[[], Awaitable[None]],
    optional: Collection[str] = (),
    left_out: Mapping[str, str] = MappingProxyType({}),
) -> RunServers:
    """Return the servers with their tools, listed concurrently.

    Failing `optional` servers are left out, in addition to `left_out`. If another one fails, all are stopped and its
    error is raised.
    """
    failed = dict(left_out)
    protocols: dict[str, str] = {}

    async def list_tools(name: str, server: ToolServer) -> tuple[ServerTool, ...]:
        try:
            listing = await server.listing()
        except (McpServerError, SandboxError, UnavailableError) as error:
            if name not in optional:
                raise
            failed[name] = str(error)
            return ()
        if listing.protocol:
            protocols[name] = listing.protocol
        return listing.tools

    try:
        async with asyncio.TaskGroup() as group:
            listings = [group.create_task(list_tools(name, server)) for name, server in servers.items()]
    except BaseException as error:
        await RunServers(servers, (), ended).stop()
        # A single error, because the report would show a group as "unhandled errors in a TaskGroup"
        if isinstance(error, BaseExceptionGroup):
            raise error.exceptions[0] from None
        raise
    tools = tuple(tool for task in listings for tool in task.result())
    return RunServers(servers, tools, ended, optional, failed, protocols)


async def _call_tool(
    server: ToolServer, tool: ServerTool, arguments: dict[str, Any], context: ToolContext
) -> ToolOutput:
    try:
        result = await server.call(tool.name, arguments)
    except (McpCallError, McpServerError) as error:
        if isinstance(error, McpServerDiedError):
            context.note("mcp_server_died", server=tool.server, tool=tool.name, reason=str(error))
        return ToolOutput(f"error: {error}", is_error=True)
    return ToolOutput(result.text, is_error=result.is_error, sent=result.sent)


def cassette_server_name(name: str) -> str:
    """Return the name of a server in cassettes."""
    return f"mcp:{name}"


class TapedServer:
    """A server with a tape. It is called, and started, only for requests that the tape does not have."""

    def __init__(self, name: str, server: ToolServer, tape: Tape) -> None:
        self._taped_name, self._server, self._tape = cassette_server_name(name), server, tape
        self._listing = _make_listing_form(name)

    async def listing(self) -> Listing:
        """Implement `ToolServer`."""
        return await self._tape.play(self._taped_name, {"method": "tools/list"}, self._server.listing, self._listing)

    async def call(self, tool: str, arguments: Mapping[str, Any], seconds: float | None = None) -> CallResult:
        """Implement `ToolServer`."""
        request = {"method": "tools/call", "tool": tool, "arguments": dict(arguments)}
        return await self._tape.play(
            self._taped_name, request, partial(self._server.call, tool, arguments, seconds), _CALL
        )

    async def close(self) -> None:
        """Implement `ToolServer`."""
        await self._server.close()


def _make_listing_form(name: str) -> Form[Listing]:
    def read(answer: Answer, seconds: float) -> Listing:
        head, *tools = answer.results or ({},)
        return Listing(
            server_name=head.get("name", ""),
            server_version=head.get("version", ""),
            tools=tuple(
                ServerTool(
                    server=name,
                    name=tool.get("name", ""),
                    description=tool.get("description", ""),
                    # As text, because a cassette's answers are flat, and a schema may be nested
                    input_schema=json.loads(tool.get("input_schema", "{}")),
                    reads_only=tool.get("reads_only") == "true",
                )
                for tool in tools
            ),
        )

    # A failed start is not recorded, because the server may start the next time
    return Form(_write_listing, read, lambda error: None, lambda refusal: McpServerError(refusal.message))


def _write_listing(listing: Listing) -> Answer:
    head = {"name": listing.server_name, "version": listing.server_version}
    tools = [
        {
            "name": tool.name,
            "description": tool.description,
            "input_schema": json.dumps(tool.input_schema),
            # Only if it is true, so that other recorded listings stay unchanged
            **({"reads_only": "true"} if tool.reads_only else {}),
        }
        for tool in listing.tools
    ]
    return Answer(results=(head, *tools))


def _write_call(result: CallResult) -> Answer:
    sent = {} if result.sent is None else {"sent": json.dumps(result.sent)}
    return Answer(results=({"text": result.text, "is_error": str(result.is_error).lower(), **sent},))


def _read_call(answer: Answer, seconds: float) -> CallResult:
    result = (answer.results or ({},))[0]
    sent = json.loads(result["sent"]) if "sent" in result else None
    return CallResult(result.get("text", ""), is_error=result.get("is_error") == "true", sent=sent)


def _keep_refusal(error: Exception) -> Refusal | None:
    """Return the record of an error that fails a call and not the run, None for another error.

    For the agent a server that cannot be started for a call is such an error, too.
    """
    if not isinstance(error, McpCallError | McpServerError):
        return None
    return Refusal(code="mcp_call_error", message=str(error))


_CALL: Form[CallResult] = Form(_write_call, _read_call, _keep_refusal, lambda refusal: McpCallError(refusal.message))
