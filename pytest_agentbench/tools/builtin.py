"""The built-in tools by name. A tool's module is imported at its first use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pytest_agentbench.extensions import LazyTable

if TYPE_CHECKING:
    from pytest_agentbench.tools.base import Tool

WEB_SEARCH, WEB_FETCH = "web_search", "web_fetch"
"""The names of web tools, also in cassettes."""

SEARCH_VARIABLES = ("AGENTBENCH_SEARXNG_URL", "BRAVE_API_KEY", "TAVILY_API_KEY")
"""Environment variables that set up a web search. The first one that is set counts."""

_HOMES = {
    **dict.fromkeys(("exec_shell", "exec_python", "shell_session"), "workspace_tools"),
    **dict.fromkeys(("write_file", "read_file", "list_files"), "workspace_tools"),
    **dict.fromkeys((WEB_SEARCH, WEB_FETCH), "web_tools"),
}

BUILTIN_TOOLS: Mapping[str, Tool] = LazyTable(
    {name: f"pytest_agentbench.tools.{module}" for name, module in _HOMES.items()},
    lambda module, name: module.TOOLS[name],
)
"""The built-in tools by name."""
