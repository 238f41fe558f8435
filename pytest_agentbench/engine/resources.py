"""The MCP servers and the web that one run has."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pytest_agentbench.config.profiles import NetworkSettings
from pytest_agentbench.engine.attempt import Attempt
from pytest_agentbench.engine.servers import list_optional_servers
from pytest_agentbench.errors import UnavailableError
from pytest_agentbench.records.base import AUTO
from pytest_agentbench.records.case import Case, McpServer, Model
from pytest_agentbench.runners.base import RunContext
from pytest_agentbench.tools.base import Fetch, Hop, Page, Search, SearchResult
from pytest_agentbench.tools.builtin import WEB_FETCH, WEB_SEARCH
from pytest_agentbench.tools.fetching import make_taped_fetch, make_web_fetch
from pytest_agentbench.tools.mcp.catalogue import CataloguedServer, make_catalogue_key
from pytest_agentbench.tools.mcp.connection import Connection
from pytest_agentbench.tools.mcp.launching import (
    ServerSandboxes,
    expand_headers,
    find_problem,
    lacks_network,
    launch_server,
    list_variables,
    server_spec,
)
from pytest_agentbench.tools.mcp.servers import (
    RunServers,
    TapedServer,
    ToolServer,
    TrimmedServer,
    UnavailableServer,
    cassette_server_name,
    list_servers,
)
from pytest_agentbench.tools.web_tools import make_taped_search
from pytest_agentbench.workspaces.sandboxes.base import Process

if TYPE_CHECKING:
    from pytest_agentbench.models.scripts import Scripts


async def start_servers(attempt: Attempt, servers: Mapping[str, McpServer], context: RunContext) -> RunServers | None:
    """Return the run's servers, all of whose tools are known: of most from the catalogue, the others are started and
    asked.

    A server that the case can do without is left out, with its reason, if it is missing here or does not come up.
    Raises UnavailableError for any other that is missing here, McpServerError for one that does not come up,
    ConfigError for one that cannot be run as it is declared.
    """
    services = attempt.services
    if not servers:
        return None
    sandboxes = ServerSandboxes(services.sandboxes, lambda: context.workspace, attempt.case)
    ready: dict[str, ToolServer] = {}
    optional = list_optional_servers(attempt.job, attempt.case, servers)
    missing, left_out = [], {}
    for name, server in servers.items():
        services.redactor.know(list_variables(server))
        # Before anything starts, because a server's first error may contain these values
        services.redactor.know_values({**server.env, **expand_headers(server, os.environ)})
        made = _server(attempt, name, server, sandboxes)
        # First, for a replay needs no server: one that cannot be had here is no problem then
        if attempt.tape is not None and attempt.tape.mode(cassette_server_name(name)) != "off":
            ready[name] = TapedServer(name, made, attempt.tape)
        elif isinstance(made, UnavailableServer) and name in optional:
            left_out[name] = made.reason
        elif isinstance(made, UnavailableServer):
            missing.append(made.reason)
        else:
            ready[name] = made
        if server.exclude_tools and name in ready:
            ready[name] = TrimmedServer(name, ready[name], server.exclude_tools)
    if missing:
        raise UnavailableError("\n".join(missing))
    return await list_servers(ready, sandboxes.stop, optional, left_out)


def _server(attempt: Attempt, name: str, server: McpServer, sandboxes: ServerSandboxes) -> ToolServer:
    """Return the server of one run, not started yet, or as the runs of the session share it."""
    services = attempt.services
    try:
        spec = server_spec(services.sandboxes, name, server, attempt.plan.run_profile.sandbox_settings)
    except UnavailableError as error:
        return UnavailableServer(f"MCP server {name!r}: {error}")
    key = make_catalogue_key(name, server, spec, os.environ)
    kind = AUTO if spec is None else spec.kind
    # A server whose tools are known from an earlier session is started by its first call only, if there is any
    if services.servers.catalogues.get(key) is None and (missing := find_problem(server, os.environ, kind)) is not None:
        return UnavailableServer(f"MCP server {name!r}: {missing}")

    lives = None
    if server.scope == "session":
        lives, sandboxes = services.servers.running.lives(key), services.servers.running.sandboxes

    offline = lacks_network(spec)

    async def launched() -> Process:
        assert spec is not None
        sandbox = await sandboxes.get(spec)
        await services.servers.turns.next()
        return await launch_server(server, sandbox, offline=offline)

    start = None if spec is None else launched
    connection = Connection(name, server, start, environ=os.environ, shared=lives, offline=offline)
    return CataloguedServer(connection, services.servers.catalogues, key)


def web_search(attempt: Attempt, model: Model) -> Search | None:
    """Return the backend of the web search, None if nothing is set up."""
    services = attempt.services
    if model.scripted:
        return _scripted_search(services.scripts, attempt.case)
    if attempt.tape is None or attempt.tape.mode(WEB_SEARCH) == "off":
        return services.registry.search
    return make_taped_search(services.registry.search, attempt.tape)


def web_fetch(attempt: Attempt, model: Model, network: NetworkSettings) -> Fetch | None:
    """Return the backend of the web fetch tool, None if its library is not installed."""
    if WEB_FETCH not in attempt.case.tools:
        return None
    if model.scripted:
        return _scripted_fetch(attempt.services.scripts, attempt.case)
    fetch = make_web_fetch(network, attempt.services.threads.run)
    if attempt.tape is None or attempt.tape.mode(WEB_FETCH) == "off":
        return fetch
    return make_taped_fetch(fetch, attempt.tape)


def _scripted_search(scripts: Scripts, case: Case) -> Search:
    """Return the web as the case's script has it."""

    async def search(query: str) -> list[SearchResult]:
        return [SearchResult(hit.title, hit.url, hit.snippet) for hit in scripts.search(case.case_id, query)]

    return search


def _scripted_fetch(scripts: Scripts, case: Case) -> Fetch:
    async def fetch(url: str) -> Page:
        text = scripts.page(case.case_id, url)
        # Digest and size as of a real page, so that a trace of a scripted run reads like any other
        body = text.encode()
        return Page((Hop(url, None, 200),), "text/plain", len(body), hashlib.sha256(body).hexdigest(), text)

    return fetch
