"""What an agent may call: the built-in tools, and the toolbox that stands between a model and any tool."""

from pytest_agentbench.tools.base import Search, SearchResult, Tool, ToolContext, ToolOutput
from pytest_agentbench.tools.builtin import BUILTIN_TOOLS
from pytest_agentbench.tools.search import configured_search
from pytest_agentbench.tools.taped_search import WEB_SEARCH, taped_search
from pytest_agentbench.tools.toolbox import Toolbox

__all__ = [
    "BUILTIN_TOOLS",
    "WEB_SEARCH",
    "Search",
    "SearchResult",
    "Tool",
    "ToolContext",
    "ToolOutput",
    "Toolbox",
    "configured_search",
    "taped_search",
]
