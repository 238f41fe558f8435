"""The MCP servers of a run, made ready before anything is paid."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pytest_agentbench.engine.job import Job
from pytest_agentbench.engine.services import Services
from pytest_agentbench.errors import UnavailableError
from pytest_agentbench.records import McpServer
from pytest_agentbench.runners import RunContext
from pytest_agentbench.tools.mcp import (
    CataloguedServer,
    RunServers,
    ServerSandboxes,
    TapedServer,
    ToolServer,
    UnavailableServer,
    asked_server,
    catalogue_key,
    list_servers,
    server_spec,
)
from pytest_agentbench.tools.mcp.connection import Connection
from pytest_agentbench.tools.mcp.launching import headers_of, launch, problem, variables_of
from pytest_agentbench.workspaces import Process

if TYPE_CHECKING:
    from pytest_agentbench.models import Tape


async def start_servers(
    services: Services, job: Job, servers: Mapping[str, McpServer], context: RunContext, tape: Tape | None
) -> RunServers | None:
    """The run's servers, all of whose tools are known: of most from the catalogue, the others are started and asked.

    Raises UnavailableError for what is missing here, McpServerError for a server that does not come up, ConfigError for
    one that cannot be run as it is declared.
    """
    if not servers:
        return None
    sandboxes = ServerSandboxes(services.sandboxes, lambda: context.workspace)
    ready: dict[str, ToolServer] = {}
    missing = []
    for name, server in servers.items():
        services.redactor.know(variables_of(server))
        services.redactor.know_values({**server.env, **headers_of(server, os.environ)})
        made = _server(services, job, name, server, sandboxes)
        if tape is not None and tape.mode(asked_server(name)) != "off":
            ready[name] = TapedServer(name, made, tape)
        elif isinstance(made, UnavailableServer):
            missing.append(made.reason)
        else:
            ready[name] = made
    if missing:
        raise UnavailableError("\n".join(missing))
    return await list_servers(ready, sandboxes.stop)


def _server(services: Services, job: Job, name: str, server: McpServer, sandboxes: ServerSandboxes) -> ToolServer:
    """The server of one run, not started yet, or as the runs of the session share it."""
    try:
        spec = server_spec(services.sandboxes, name, server, job.plan.run_profile.sandbox_settings)
    except UnavailableError as error:
        return UnavailableServer(f"MCP server {name!r}: {error}")
    key = catalogue_key(name, server, spec, os.environ)
    kind = "local" if spec is None else spec.kind
    missing = problem(server, os.environ, kind) if services.catalogues.get(key) is None else None
    if missing is not None:
        return UnavailableServer(f"MCP server {name!r}: {missing}")

    shared = services.session_servers if server.scope == "session" else None
    if shared is not None:
        sandboxes = shared.sandboxes

    async def launched() -> Process:
        assert spec is not None
        sandbox = await sandboxes.get(spec)
        await services.turns.next()
        return await launch(server, sandbox)

    start = None if spec is None else launched
    lives = None if shared is None else shared.lives(key)
    connection = Connection(name, server, start, environ=os.environ, shared=lives)
    return CataloguedServer(connection, services.catalogues, key)
