"""`agentbench mcp call SERVER TOOL '{...}'`: one call of a tool, as an agent would make it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_agentbench.cli.declared_servers import DeclaredServers
    from pytest_agentbench.tools.mcp import Listing, ServerTool

_USAGE = "expected SERVER TOOL or SERVER:TOOL, and then a JSON object with the arguments"


@dataclass(frozen=True, slots=True)
class _Called:
    """What came of the call: `text` as an agent would read it. `fit` says how its arguments fit the tool's schema."""

    text: str
    is_error: bool
    fit: str
    seconds: float


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command with its options."""
    from pytest_agentbench.cli.mcp_tools import add_common_options

    parser = subparsers.add_parser(
        "call",
        help="call one tool of a server",
        description="Call one tool and print its result; what else there is to say goes to stderr. The server gets the "
        "arguments as they are, whether they satisfy the tool's schema or not. Exit status 1 where the call fails.",
        usage="%(prog)s [options] SERVER TOOL [ARGUMENTS]",
    )
    parser.add_argument(
        "words",
        nargs="+",
        metavar="SERVER TOOL [ARGUMENTS]",
        help="a declared server, its tool (or both as SERVER:TOOL), and a JSON object (default: {})",
    )
    add_common_options(parser)


def run(args: argparse.Namespace) -> int:
    """Prints what the tool answers. Values of keys are never shown."""
    import asyncio

    from pytest_agentbench.cli.declared_servers import declared_servers
    from pytest_agentbench.cli.started_servers import redactor_of
    from pytest_agentbench.errors import visible

    server, tool, arguments = _asked(args.words)
    declared = declared_servers(args.profile)
    called = asyncio.run(_call(declared, server, tool, arguments, args.output))
    shown = redactor_of(declared.servers.values()).text
    print(visible(shown(called.text)))
    failed = "the call failed; " if called.is_error else ""
    print(shown(f"{failed}{called.fit}; {1000 * called.seconds:.0f} ms"), file=sys.stderr)
    return 1 if called.is_error else 0


def _asked(words: Sequence[str]) -> tuple[str, str, dict[str, Any]]:
    """Server, tool and arguments. Raises ConfigError."""
    from pytest_agentbench.errors import ConfigError

    server, colon, tool = words[0].partition(":")
    rest = list(words[1:])
    if not colon:
        tool = rest.pop(0) if rest else ""
    if not server or not tool or len(rest) > 1:
        raise ConfigError(f"found {' '.join(words)!r}, {_USAGE}")
    text = rest[0] if rest else "{}"
    try:
        arguments = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"arguments: found {text!r}, expected a JSON object: {error}") from error
    if not isinstance(arguments, dict):
        raise ConfigError(f"arguments: found {text!r}, expected a JSON object")
    return server, tool, arguments


async def _call(declared: DeclaredServers, server: str, name: str, arguments: dict[str, Any], output: Path) -> _Called:
    from pytest_agentbench.cli.started_servers import started_servers
    from pytest_agentbench.errors import McpCallError

    async with started_servers(declared, output) as servers:
        connection = servers.connect(server)
        tool = _tool(await connection.listing(), server, name)
        begun = time.perf_counter()
        try:
            result = await connection.call(name, arguments)
            text, is_error = result.text, result.is_error
        except McpCallError as error:
            text, is_error = str(error), True
        return _Called(text, is_error, _fit(tool, arguments), time.perf_counter() - begun)


def _tool(listing: Listing, server: str, name: str) -> ServerTool:
    from pytest_agentbench.config import suggest
    from pytest_agentbench.errors import ConfigError

    tools = {tool.name: tool for tool in listing.tools}
    if name not in tools:
        raise ConfigError(f"MCP server {server!r} has no tool {name!r}{suggest(name, tools)}")
    return tools[name]


def _fit(tool: ServerTool, arguments: dict[str, Any]) -> str:
    from pytest_agentbench.bounded import UncheckableError, bounded_schema

    try:
        accepted = bounded_schema(tool.input_schema).accepts(arguments)
    except UncheckableError as error:
        return f"nobody can tell whether the arguments satisfy the tool's schema: {error}"
    return f"the arguments {'satisfy' if accepted else 'do not satisfy'} the tool's schema"
