"""MCP servers as a run sees them: live or from a cassette, their tools beside the built-in ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol

from pytest_agentbench.errors import ConfigError, McpCallError, McpServerError, SandboxError, UnavailableError
from pytest_agentbench.models.cassette_file import Answer, Refusal
from pytest_agentbench.models.tape import Form, Tape
from pytest_agentbench.records.base import Record
from pytest_agentbench.tools.base import Tool, ToolContext, ToolOutput


class ServerTool(Record):
    """A tool as its server describes it. `input_schema` is the JSON Schema of its arguments, as it came.

    `reads_only` is its annotation `readOnlyHint`.
    """

    server: str
    name: str
    description: str = ""
    input_schema: dict[str, Any]
    reads_only: bool = False

    @property
    def tool_id(self) -> str:
        """Return `Server:tool`, by which cases, traces and reports call it."""
        return f"{self.server}:{self.name}"


class Listing(Record):
    """The tools of one server, in its order, and the version that it gives of itself."""

    server_name: str
    server_version: str
    tools: tuple[ServerTool, ...]


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of a call, as text for a model to read. `is_error` is the server's own flag."""

    text: str
    is_error: bool = False


class ToolServer(Protocol):
    """A server as a run has it: a connection, or what stands before one."""

    async def listing(self) -> Listing:
        """Return the server's tools. Raises McpServerError where they are not to be had."""
        ...

    async def call(self, tool: str, arguments: Mapping[str, Any], seconds: float | None = None) -> CallResult:
        """Call a tool by the server's own name of it. Raises McpCallError, and McpServerError where it cannot start."""
        ...

    async def close(self) -> None:
        """End the server. Never raises; may be called twice."""
        ...


class UnavailableServer:
    """A server that cannot be had here. `reason` says why, and what to do."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    async def listing(self) -> Listing:
        """Raise UnavailableError with the reason."""
        raise UnavailableError(self.reason)

    async def call(self, tool: str, arguments: Mapping[str, Any], seconds: float | None = None) -> CallResult:
        """Raise UnavailableError with the reason."""
        raise UnavailableError(self.reason)

    async def close(self) -> None:
        """Do nothing: there is nothing to end."""


class TrimmedServer:
    """A server of which some tools are not offered."""

    def __init__(self, name: str, server: ToolServer, excluded: Collection[str]) -> None:
        self._name, self._server, self._excluded = name, server, frozenset(excluded)

    async def listing(self) -> Listing:
        """Return the tools that are left. Raises ConfigError for a name that is none of the server's tools."""
        listing = await self._server.listing()
        names = {tool.name for tool in listing.tools}
        if unknown := sorted(self._excluded - names):
            found, known = ", ".join(map(repr, unknown)), ", ".join(sorted(names))[:500]
            place = f"MCP server {self._name!r}: exclude_tools"
            raise ConfigError(f"{place}: found {found}, expected names of its tools: {known}")
        tools = tuple(tool for tool in listing.tools if tool.name not in self._excluded)
        return listing.model_copy(update={"tools": tools})

    async def call(self, tool: str, arguments: Mapping[str, Any], seconds: float | None = None) -> CallResult:
        """Implement `ToolServer`."""
        return await self._server.call(tool, arguments, seconds)

    async def close(self) -> None:
        """Implement `ToolServer`."""
        await self._server.close()


class RunServers:
    """The servers of one run, by name. `tools` are those of all of them, in the order of the servers.

    `optional` are the names of the servers that the run can do without; `left_out` are those of them that are not
    offered, with the reasons.
    """

    def __init__(
        self,
        servers: Mapping[str, ToolServer],
        tools: tuple[ServerTool, ...],
        ended: Callable[[], Awaitable[None]],
        optional: Collection[str] = (),
        left_out: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Hold the servers; `ended` is awaited once they have ended."""
        self.tools, self.optional, self.left_out = tools, optional, left_out
        self._servers = servers
        self._ended = ended

    def as_tools(self) -> list[Tool]:
        """Return the tools as an agent calls them. The server looks at the arguments; what fails is the agent's to
        read.
        """
        return [
            Tool(
                tool.tool_id,
                tool.description,
                tool.input_schema,
                partial(_call_tool, self._servers[tool.server], tool.name),
                # A server reads its own schema more or less strictly than it says: what it takes is what counts
                checks_arguments=False,
                reads_only=tool.reads_only,
            )
            for tool in self.tools
        ]

    async def stop(self) -> None:
        """End all servers. Never raises; may be called twice."""
        await asyncio.gather(*(server.close() for server in self._servers.values()))
        await self._ended()


async def list_servers(
    servers: Mapping[str, ToolServer],
    ended: Callable[[], Awaitable[None]],
    optional: Collection[str] = (),
    left_out: Mapping[str, str] = MappingProxyType({}),
) -> RunServers:
    """Return the servers with their tools, listed side by side.

    Those of the `optional` ones that fail are left out, in addition to `left_out`. If another one fails, all are ended
    and its error is raised.
    """
    failed = dict(left_out)

    async def list_tools(name: str, server: ToolServer) -> tuple[ServerTool, ...]:
        try:
            return (await server.listing()).tools
        except (McpServerError, SandboxError, UnavailableError) as error:
            if name not in optional:
                raise
            failed[name] = str(error)
            return ()

    try:
        async with asyncio.TaskGroup() as group:
            listings = [group.create_task(list_tools(name, server)) for name, server in servers.items()]
    except BaseException as error:
        await RunServers(servers, (), ended).stop()
        # One error, as everywhere: a group would reach the report as "unhandled errors in a TaskGroup"
        if isinstance(error, BaseExceptionGroup):
            raise error.exceptions[0] from None
        raise
    tools = tuple(tool for task in listings for tool in task.result())
    return RunServers(servers, tools, ended, optional, failed)


async def _call_tool(server: ToolServer, tool: str, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
    try:
        result = await server.call(tool, arguments)
    except (McpCallError, McpServerError) as error:
        return ToolOutput(f"error: {error}", is_error=True)
    return ToolOutput(result.text, is_error=result.is_error)


def cassette_server_name(name: str) -> str:
    """Return the name of a server in cassettes."""
    return f"mcp:{name}"


class TapedServer:
    """A server through a tape: it is asked, and started, only for what the tape does not have."""

    def __init__(self, name: str, server: ToolServer, tape: Tape) -> None:
        self._asked, self._server, self._tape = cassette_server_name(name), server, tape
        self._listing = _make_listing_form(name)

    async def listing(self) -> Listing:
        """Implement `ToolServer`."""
        return await self._tape.play(self._asked, {"method": "tools/list"}, self._server.listing, self._listing)

    async def call(self, tool: str, arguments: Mapping[str, Any], seconds: float | None = None) -> CallResult:
        """Implement `ToolServer`."""
        request = {"method": "tools/call", "tool": tool, "arguments": dict(arguments)}
        return await self._tape.play(self._asked, request, partial(self._server.call, tool, arguments, seconds), _CALL)

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
                    # As a text: what a cassette keeps of an answer is flat, and a schema may hold anything
                    input_schema=json.loads(tool.get("input_schema", "{}")),
                    reads_only=tool.get("reads_only") == "true",
                )
                for tool in tools
            ),
        )

    # A server that does not come up is not kept: it may be there the next time
    return Form(_write_listing, read, lambda error: None, lambda refusal: McpServerError(refusal.message))


def _write_listing(listing: Listing) -> Answer:
    head = {"name": listing.server_name, "version": listing.server_version}
    tools = [
        {
            "name": tool.name,
            "description": tool.description,
            "input_schema": json.dumps(tool.input_schema),
            # Only where it holds: listings of other tools are kept as they were
            **({"reads_only": "true"} if tool.reads_only else {}),
        }
        for tool in listing.tools
    ]
    return Answer(results=(head, *tools))


def _write_call(result: CallResult) -> Answer:
    return Answer(results=({"text": result.text, "is_error": str(result.is_error).lower()},))


def _read_call(answer: Answer, seconds: float) -> CallResult:
    found = (answer.results or ({},))[0]
    return CallResult(found.get("text", ""), is_error=found.get("is_error") == "true")


def _keep_refusal(error: Exception) -> Refusal | None:
    """Return what fails a call and not the run, None for anything else.

    A server that cannot be started for a call is no other failure to the agent.
    """
    failed = isinstance(error, McpCallError | McpServerError)
    return Refusal(code="mcp_call_error", message=str(error)) if failed else None


_CALL: Form[CallResult] = Form(_write_call, _read_call, _keep_refusal, lambda refusal: McpCallError(refusal.message))
