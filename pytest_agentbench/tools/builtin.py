"""The built-in tools by name: what a tool is made of is imported with the first that is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pytest_agentbench.extensions import LazyTable

if TYPE_CHECKING:
    from pytest_agentbench.tools.base import Tool

WEB_SEARCH, WEB_FETCH = "web_search", "web_fetch"
"""The tools that reach the web; who is asked, in cassettes."""

SEARCH_VARIABLES = ("AGENTBENCH_SEARXNG_URL", "BRAVE_API_KEY", "TAVILY_API_KEY")
"""Variables of the environment that set up a web search, the first of them that is there."""

_HOMES = {
    **dict.fromkeys(("exec_shell", "exec_python", "shell_session"), "workspace_tools"),
    **dict.fromkeys(("write_file", "read_file", "list_files"), "workspace_tools"),
    **dict.fromkeys((WEB_SEARCH, WEB_FETCH), "web_tools"),
}

BUILTIN_TOOLS: Mapping[str, Tool] = LazyTable(
    {name: f"pytest_agentbench.tools.{module}" for name, module in _HOMES.items()},
    lambda module, name: module.TOOLS[name],
)
"""The tools every case may name."""
