"""What an agent may call: the built-in tools, and the toolbox that stands between a model and any tool."""

from pytest_agentbench.tools.base import Search, SearchResult, Tool, ToolContext, ToolOutput, needs_sandbox
from pytest_agentbench.tools.builtin import BUILTIN_TOOLS
from pytest_agentbench.tools.fetching import Fetch, FetchError, Hop, Page, web_fetcher
from pytest_agentbench.tools.mcp import RunServers
from pytest_agentbench.tools.mcp.annotating import annotated
from pytest_agentbench.tools.search import configured_search
from pytest_agentbench.tools.taped_fetch import WEB_FETCH, taped_fetch
from pytest_agentbench.tools.taped_search import WEB_SEARCH, taped_search
from pytest_agentbench.tools.toolbox import Toolbox

__all__ = [
    "BUILTIN_TOOLS",
    "WEB_FETCH",
    "WEB_SEARCH",
    "Fetch",
    "FetchError",
    "Hop",
    "Page",
    "RunServers",
    "Search",
    "SearchResult",
    "Tool",
    "ToolContext",
    "ToolOutput",
    "Toolbox",
    "annotated",
    "configured_search",
    "needs_sandbox",
    "taped_fetch",
    "taped_search",
    "web_fetcher",
]
