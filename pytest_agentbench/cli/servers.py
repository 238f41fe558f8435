"""The MCP servers that commands are given, and how commands start them in the sandboxes of runs."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from pytest_agentbench.cli.places import enclosing_root, find_run_profile, require_existing
from pytest_agentbench.config.base import COMMANDS_FILE, load, suggest
from pytest_agentbench.config.client_servers import ServerDeclarations
from pytest_agentbench.config.commands_file import read_commands
from pytest_agentbench.config.profiles import RunProfile
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.sections import ServersFile
from pytest_agentbench.errors import AgentbenchError, ConfigError, UnavailableError
from pytest_agentbench.records.base import AUTO
from pytest_agentbench.records.case import McpServer, SandboxSettings
from pytest_agentbench.secrets.redaction import Redactor
from pytest_agentbench.store.output_folder import refuse_links
from pytest_agentbench.tools.mcp.catalogue import CATALOGUES, Catalogues, make_catalogue_key
from pytest_agentbench.tools.mcp.connection import Connection
from pytest_agentbench.tools.mcp.launching import (
    ServerSandboxes,
    find_problem,
    lacks_network,
    launch_server,
    server_refusal,
    server_spec,
)
from pytest_agentbench.tools.mcp.servers import Listing
from pytest_agentbench.workspaces.sandboxes.base import Process, SandboxSpec
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces

_FILES = ("servers.yaml", "servers.yml", COMMANDS_FILE)
_BELOW = ("*/", "*/*/")


@dataclass(frozen=True, slots=True)
class DeclaredServers:
    """Declared servers by name, with the sandbox of servers that declare none.

    `refused` and `notes`: see `config.client_servers`.
    """

    servers: Mapping[str, McpServer]
    sandbox: SandboxSettings
    root: ConfigRoot
    profile: RunProfile
    refused: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def named(self, name: str) -> McpServer:
        """Return the server of this name. Raises ConfigError if no server of this name is declared."""
        if name not in self.servers:
            raise ConfigError(
                f"found {name!r}, expected a server that is declared in a servers.yaml or commands.json, or in the run "
                f"profile that --profile names{suggest(name, self.servers)}"
            )
        return self.servers[name]


def is_servers_file(given: str) -> bool:
    """Return whether this is a file of servers, not the name of one."""
    return given.endswith((".yaml", ".yml", ".json"))


def read_servers(path: Path, profile: str | None) -> DeclaredServers:
    """Return all servers of a servers.yaml, a commands.json or a client's file.

    Raises ConfigError if the file cannot be read or has no server.
    """
    (path,) = require_existing([path])
    file = read_commands(path) if path.suffix == ".json" else ServerDeclarations(load(path, ServersFile).servers)
    if not file.servers and not file.refused:
        left_out = "".join(f"\n{note}" for note in file.notes)
        expected = "expected a servers.yaml, a commands.json or a file with mcpServers"
        raise ConfigError(f"{path}:1:1: found no servers, {expected}{left_out}")
    root = enclosing_root(path)
    if root.guest is not None:
        raise ConfigError(f"{path}:1:1: found servers of a folder that is not trusted; {root.guest.remedy}")
    declared = _make_declared(file.servers, root, find_run_profile(root, profile))
    return replace(declared, refused=file.refused, notes=file.notes)


def declared_servers(profile: str | None) -> DeclaredServers:
    """Return the servers of the current folder's files, of the files above it, and of a run profile.

    If there are none, return those of the only config root just below the folder.

    :raises ConfigError: one of the files is wrong, or there are several roots.
    """
    here = Path.cwd()
    root = enclosing_root(here)
    servers = root.mcp_servers(here / "any")
    if not servers:
        root, servers = _find_below(here, root)
    settings = find_run_profile(root, profile)
    # The profile last: where both have a name, its server counts.
    return _make_declared({**servers, **settings.mcp_servers}, root, settings)


def _make_declared(servers: Mapping[str, McpServer], root: ConfigRoot, profile: RunProfile) -> DeclaredServers:
    return DeclaredServers(servers, profile.sandbox_settings, root, profile)


def _find_below(here: Path, around: ConfigRoot) -> tuple[ConfigRoot, Mapping[str, McpServer]]:
    files = [file for depth in _BELOW for name in _FILES for file in sorted(here.glob(f"{depth}{name}"))]
    # By root: names of two projects must not be mixed.
    found: dict[ConfigRoot, dict[str, McpServer]] = {}
    for file in files:
        root = enclosing_root(file)
        if servers := root.mcp_servers(file):
            found.setdefault(root, {}).update(servers)
    # Of two projects neither is meant more than the other.
    if len(found) > 1:
        places = " and ".join(str(root.path) for root in found)
        raise ConfigError(f"servers are declared in {places}: run this in one of these folders, or name a file")
    return next(iter(found.items()), (around, {}))


_AT_ONCE = 8
"""The most servers that are started at the same time."""


@dataclass(frozen=True, slots=True)
class ListedServer:
    """A server with its tools, or a problem. `seconds` is the time of listing them, None from the cache."""

    name: str
    listing: Listing | None = None
    problem: str | None = None
    seconds: float | None = None


class StartedServers:
    """Declared servers, each started at first use. Their tool lists are stored for sessions of the output folder."""

    def __init__(self, declared: DeclaredServers, output: Path, sandboxes: Sandboxes) -> None:
        # A folder that a repository brings could lead elsewhere.
        refuse_links(output)
        self._declared, self._sandboxes = declared, sandboxes
        self._catalogues = Catalogues(output / CATALOGUES, make_redactor(declared.servers.values()))
        self._running = ServerSandboxes(sandboxes, cache(lambda: sandboxes.workspace(None, "mcp")))
        self._connections: list[Connection] = []

    async def ask_all(self) -> list[ListedServer]:
        """Return the current tools of every server, in order."""
        free = asyncio.Semaphore(_AT_ONCE)

        async def one(name: str) -> ListedServer:
            async with free:
                return await self.ask(name, refresh=True)

        refused = [ListedServer(name, problem=reason) for name, reason in self._declared.refused.items()]
        return [*await asyncio.gather(*map(one, self._declared.servers)), *refused]

    async def ask(self, name: str, *, refresh: bool = False) -> ListedServer:
        """Return the tools of a server, from the cache unless `refresh`.

        Raises ConfigError if the server is not declared.
        """
        server = self._declared.named(name)
        begun = time.perf_counter()
        try:
            spec = self._find_spec(name, server)
            key = make_catalogue_key(name, server, spec, os.environ)
            if not refresh and (listing := self._catalogues.get(key)) is not None:
                return ListedServer(name, listing)
            # Sessions find it there and start no server whose tools nobody calls.
            listing = self._catalogues.put(key, await self._make_connection(name, server, spec).listing())
        except AgentbenchError as error:
            return ListedServer(name, problem=str(error).removeprefix(f"MCP server {name}: "))
        return ListedServer(name, listing, seconds=time.perf_counter() - begun)

    def connect(self, name: str) -> Connection:
        """Connect to the server.

        Raises ConfigError for its name, UnavailableError where something that it needs is missing.
        """
        server = self._declared.named(name)
        return self._make_connection(name, server, self._find_spec(name, server))

    async def close(self) -> None:
        """Stop all started servers."""
        await asyncio.gather(*(connection.close() for connection in self._connections))
        await self._running.stop()

    def _find_spec(self, name: str, server: McpServer) -> SandboxSpec | None:
        return server_spec(self._sandboxes, name, server, self._declared.sandbox)

    def _make_connection(self, name: str, server: McpServer, spec: SandboxSpec | None) -> Connection:
        if (refused := server_refusal(name, server, self._declared.root, self._declared.profile)) is not None:
            raise ConfigError(f"MCP server {name}: {refused}")
        if (missing := find_problem(server, os.environ, AUTO if spec is None else spec.kind)) is not None:
            raise UnavailableError(f"MCP server {name}: {missing}")

        async def launched() -> Process:
            assert spec is not None
            return await launch_server(server, await self._running.get(spec), offline=lacks_network(spec))

        # Stored before its first request, so that `close` stops it even if that fails.
        start = None if spec is None else launched
        connection = Connection(name, server, start, environ=os.environ, offline=lacks_network(spec))
        self._connections.append(connection)
        return connection


@asynccontextmanager
async def start_servers(declared: DeclaredServers, output: Path) -> AsyncIterator[StartedServers]:
    """Start the servers, for as long as they are needed."""
    workspaces = Workspaces()
    sandboxes = Sandboxes(workspaces)
    servers = StartedServers(declared, output, sandboxes)
    try:
        yield servers
    finally:
        await servers.close()
        await sandboxes.close()
        workspaces.close()


def make_redactor(servers: Iterable[McpServer]) -> Redactor:
    """Return a redactor of the variables that servers get from this process, and of declared keys."""
    known = list(servers)
    redactor = Redactor({**{name: value for server in known for name, value in server.env.items()}, **os.environ})
    # Variables that a file asks for by name are secrets under any name.
    redactor.know(name for server in known for name in server.env_from)
    return redactor
