"""MCP servers that a command starts for itself, in the sandboxes that runs would give them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pytest_agentbench.cli.declared_servers import DeclaredServers
from pytest_agentbench.errors import AgentbenchError, ConfigError, UnavailableError
from pytest_agentbench.records import McpServer
from pytest_agentbench.store import Redactor, refuse_links
from pytest_agentbench.tools.mcp import (
    CATALOGUES,
    Catalogues,
    Listing,
    ServerSandboxes,
    catalogue_key,
    server_refusal,
    server_spec,
)
from pytest_agentbench.tools.mcp.connection import Connection
from pytest_agentbench.tools.mcp.launching import launch, problem
from pytest_agentbench.workspaces import Process, Sandboxes, SandboxSpec, Workspaces

_AT_ONCE = 8
"""How many servers are started at the same time."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A server with its tools, or why they are not to be had. `seconds` it took; None where they were known."""

    name: str
    listing: Listing | None = None
    problem: str | None = None
    seconds: float | None = None


class StartedServers:
    """Declared servers, each started when it is needed. What they list is kept for sessions of the output folder."""

    def __init__(self, declared: DeclaredServers, output: Path, sandboxes: Sandboxes) -> None:
        refuse_links(output)
        self._declared, self._sandboxes = declared, sandboxes
        self._catalogues = Catalogues(output / CATALOGUES, redactor_of(declared.servers.values()))
        self._running = ServerSandboxes(sandboxes, cache(lambda: sandboxes.workspace(None, "mcp")))
        self._connections: list[Connection] = []

    async def ask_all(self) -> list[Asked]:
        """What every server says of itself now, in their order."""
        free = asyncio.Semaphore(_AT_ONCE)

        async def one(name: str) -> Asked:
            async with free:
                return await self.ask(name, refresh=True)

        return await asyncio.gather(*map(one, self._declared.servers))

    async def ask(self, name: str, *, refresh: bool = False) -> Asked:
        """The tools of a server, with `refresh` as it lists them now. Raises ConfigError where it is not declared."""
        server = self._declared.named(name)
        begun = time.perf_counter()
        try:
            spec = self._spec(name, server)
            key = catalogue_key(name, server, spec, os.environ)
            kept = None if refresh else self._catalogues.get(key)
            if kept is not None:
                return Asked(name, kept)
            listing = self._catalogues.put(key, await self._connection(name, server, spec).listing())
        except AgentbenchError as error:
            return Asked(name, problem=str(error).removeprefix(f"MCP server {name}: "))
        return Asked(name, listing, seconds=time.perf_counter() - begun)

    def connect(self, name: str) -> Connection:
        """The server. Raises ConfigError for its name, UnavailableError where something that it needs is missing."""
        server = self._declared.named(name)
        return self._connection(name, server, self._spec(name, server))

    async def close(self) -> None:
        """Ends what was started."""
        await asyncio.gather(*(connection.close() for connection in self._connections))
        await self._running.stop()

    def _spec(self, name: str, server: McpServer) -> SandboxSpec | None:
        return server_spec(self._sandboxes, name, server, self._declared.sandbox)

    def _connection(self, name: str, server: McpServer, spec: SandboxSpec | None) -> Connection:
        if (refused := server_refusal(name, server, self._declared.root, self._declared.profile)) is not None:
            raise ConfigError(f"MCP server {name}: {refused}")
        if (missing := problem(server, os.environ, spec.kind if spec is not None else "local")) is not None:
            raise UnavailableError(f"MCP server {name}: {missing}")

        async def launched() -> Process:
            assert spec is not None
            return await launch(server, await self._running.get(spec))

        connection = Connection(name, server, None if spec is None else launched, environ=os.environ)
        self._connections.append(connection)
        return connection


@asynccontextmanager
async def started_servers(declared: DeclaredServers, output: Path) -> AsyncIterator[StartedServers]:
    """The servers, for as long as they are needed."""
    workspaces = Workspaces()
    sandboxes = Sandboxes(workspaces)
    servers = StartedServers(declared, output, sandboxes)
    try:
        yield servers
    finally:
        await servers.close()
        await sandboxes.close()
        workspaces.close()


def redactor_of(servers: Iterable[McpServer]) -> Redactor:
    """Hides what they get from this process's environment, and their own variables that look like keys."""
    known = list(servers)
    redactor = Redactor({**{name: value for server in known for name, value in server.env.items()}, **os.environ})
    redactor.know(name for server in known for name in server.env_from)
    return redactor
