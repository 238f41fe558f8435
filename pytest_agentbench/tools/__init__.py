"""What an agent may call: the built-in tools, and the toolbox that stands between a model and any tool."""

from pytest_agentbench.tools.base import Search, SearchResult, Tool, ToolContext, ToolOutput, needs_sandbox
from pytest_agentbench.tools.builtin import BUILTIN_TOOLS
from pytest_agentbench.tools.fetching import Fetch, Page, web_fetcher
from pytest_agentbench.tools.mcp import RunServers
from pytest_agentbench.tools.mcp.annotating import annotated
from pytest_agentbench.tools.network import (
    RefusedError,
    checked_addresses,
    checked_url,
    host_of,
    is_public,
    require_web,
    system_resolver,
)
from pytest_agentbench.tools.pages import is_html, is_text
from pytest_agentbench.tools.readers import Kind, Readers, Reading, UnreadableError, missing_libraries
from pytest_agentbench.tools.search import configured_search
from pytest_agentbench.tools.taped_fetch import WEB_FETCH, taped_fetch
from pytest_agentbench.tools.taped_search import WEB_SEARCH, taped_search
from pytest_agentbench.tools.toolbox import Toolbox
from pytest_agentbench.tools.web_client import FetchError, Hop, RedirectsError, Reply, WebClient, follow, way

__all__ = [
    "BUILTIN_TOOLS",
    "WEB_FETCH",
    "WEB_SEARCH",
    "Fetch",
    "FetchError",
    "Hop",
    "Kind",
    "Page",
    "Readers",
    "Reading",
    "RedirectsError",
    "RefusedError",
    "Reply",
    "RunServers",
    "Search",
    "SearchResult",
    "Tool",
    "ToolContext",
    "ToolOutput",
    "Toolbox",
    "UnreadableError",
    "WebClient",
    "annotated",
    "checked_addresses",
    "checked_url",
    "configured_search",
    "follow",
    "host_of",
    "is_html",
    "is_public",
    "is_text",
    "missing_libraries",
    "needs_sandbox",
    "require_web",
    "system_resolver",
    "taped_fetch",
    "taped_search",
    "way",
    "web_fetcher",
]
