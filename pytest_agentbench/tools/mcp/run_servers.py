"""The servers of one run: what they offer, as tools that stand beside the built-in ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol

from pytest_agentbench.errors import McpCallError, McpServerError, UnavailableError
from pytest_agentbench.tools.base import Tool, ToolContext, ToolOutput
from pytest_agentbench.tools.mcp.base import CallResult, Listing, ServerTool


class ToolServer(Protocol):
    """A server as a run has it: a connection, or what stands before one."""

    async def listing(self) -> Listing:
        """Its tools. Raises McpServerError where they are not to be had."""
        ...

    async def call(self, tool: str, arguments: Mapping[str, Any], seconds: float | None = None) -> CallResult:
        """Call a tool by the server's own name of it. Raises McpCallError, and McpServerError where it cannot start."""
        ...

    async def close(self) -> None:
        """End it. Never raises; may be called twice."""
        ...


class UnavailableServer:
    """A server that cannot be had here. `reason` says why, and what to do."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    async def listing(self) -> Listing:
        """Raises UnavailableError."""
        raise UnavailableError(self.reason)

    async def call(self, tool: str, arguments: Mapping[str, Any], seconds: float | None = None) -> CallResult:
        """Raises UnavailableError."""
        raise UnavailableError(self.reason)

    async def close(self) -> None:
        """There is nothing to end."""


class RunServers:
    """The servers of one run, by name. `tools` are those of all of them, in the order of the servers."""

    def __init__(
        self,
        servers: Mapping[str, ToolServer],
        tools: tuple[ServerTool, ...],
        ended: Callable[[], Awaitable[None]],
    ) -> None:
        """`ended` is awaited once the servers have ended."""
        self.tools = tools
        self._servers = servers
        self._ended = ended

    def as_tools(self) -> list[Tool]:
        """The tools as an agent calls them. The server looks at the arguments; what fails is the agent's to read."""
        return [
            Tool(
                tool.tool_id,
                tool.description,
                tool.input_schema,
                partial(_call, self._servers[tool.server], tool.name),
                checks_arguments=False,
            )
            for tool in self.tools
        ]

    async def stop(self) -> None:
        """End them all. Never raises; may be called twice."""
        await asyncio.gather(*(server.close() for server in self._servers.values()))
        await self._ended()


async def list_servers(servers: Mapping[str, ToolServer], ended: Callable[[], Awaitable[None]]) -> RunServers:
    """The servers with their tools, listed side by side. Raises what the first one raises that fails, all ended."""
    try:
        async with asyncio.TaskGroup() as group:
            listings = [group.create_task(server.listing()) for server in servers.values()]
    except BaseException as error:
        await RunServers(servers, (), ended).stop()
        if isinstance(error, BaseExceptionGroup):
            raise error.exceptions[0] from None
        raise
    return RunServers(servers, tuple(tool for task in listings for tool in task.result().tools), ended)


async def _call(server: ToolServer, tool: str, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
    try:
        result = await server.call(tool, arguments)
    except (McpCallError, McpServerError) as error:
        return ToolOutput(f"error: {error}", is_error=True)
    return ToolOutput(result.text, is_error=result.is_error)
