"""MCP servers: started where a run's commands may run, spoken to over stdio or HTTP, their tools offered to agents."""

from pytest_agentbench.tools.mcp.base import CallResult, Listing, ServerTool
from pytest_agentbench.tools.mcp.catalogue import (
    CATALOGUES,
    CataloguedServer,
    CatalogueKey,
    Catalogues,
    argument_files,
    catalogue_key,
)
from pytest_agentbench.tools.mcp.distraction import distraction_servers
from pytest_agentbench.tools.mcp.run_servers import RunServers, ToolServer, UnavailableServer, list_servers
from pytest_agentbench.tools.mcp.server_sandboxes import ServerSandboxes, sandbox_of, server_refusal, server_spec
from pytest_agentbench.tools.mcp.session_servers import SessionServers
from pytest_agentbench.tools.mcp.taped import TapedServer, asked_server

__all__ = [
    "CATALOGUES",
    "CallResult",
    "CatalogueKey",
    "CataloguedServer",
    "Catalogues",
    "Listing",
    "RunServers",
    "ServerSandboxes",
    "ServerTool",
    "SessionServers",
    "TapedServer",
    "ToolServer",
    "UnavailableServer",
    "argument_files",
    "asked_server",
    "catalogue_key",
    "distraction_servers",
    "list_servers",
    "sandbox_of",
    "server_refusal",
    "server_spec",
]
