"""The built-in tools. Those for files and commands work in the run's own workspace and sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pytest_agentbench.tools.base import Tool
from pytest_agentbench.tools.commands import COMMAND_TOOLS
from pytest_agentbench.tools.file_tools import FILE_TOOLS
from pytest_agentbench.tools.shell_session import SHELL_SESSION
from pytest_agentbench.tools.web_tools import WEB_TOOLS

BUILTIN_TOOLS: Mapping[str, Tool] = MappingProxyType(
    {tool.name: tool for tool in (*COMMAND_TOOLS, SHELL_SESSION, *FILE_TOOLS, *WEB_TOOLS)}
)
"""The tools every case may name."""
