"""Catalogues and tasks for the tests of synthesis."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

from pytest_agentbench.packs.mcp_bench.synthesis.base import Catalogue
from pytest_agentbench.tools.mcp.servers import ServerTool

DATA = Path(__file__).parents[5] / "shared" / "data" / "mcp"


def tool(server: str, name: str, description: str = "", **schema: object) -> ServerTool:
    return ServerTool(server=server, name=name, description=description, input_schema={"type": "object", **schema})


TIME = Catalogue(
    "Time",
    (
        tool("Time", "get_current_time", "Get current time in a specific timezone"),
        tool("Time", "convert_time", "Convert time between timezones"),
    ),
)
GIT = Catalogue("Git", (tool("Git", "git_log", "Shows the commit logs"), tool("Git", "search", "Searches commits")))


def real_tasks() -> list[tuple[str, dict[str, str]]]:
    """Return the server and the task for each of the 56 tasks of MCP-Bench."""
    document = json.loads((DATA / "mcpbench_tasks_single_runner_format.json").read_text(encoding="utf-8"))
    return [(group["server_name"], task) for group in document["server_tasks"] for task in group["tasks"]]


def real_catalogues() -> dict[str, Catalogue]:
    """Return the tool lists of 26 of their servers, and empty catalogues for the others."""
    document = json.loads((DATA / "tool_catalogue_live_252.json").read_text(encoding="utf-8"))
    tools: dict[str, list[ServerTool]] = defaultdict(list)
    for entry in document.values():
        schema = entry["input_schema"] or {}
        described = entry["description"] or ""
        name = entry["name"]
        tools[entry["server"]].append(
            ServerTool(server=entry["server"], name=name, description=described, input_schema=schema)
        )
    return {server: Catalogue(server, tuple(tools[server])) for server in {server for server, _ in real_tasks()}}
