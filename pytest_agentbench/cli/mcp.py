"""`agentbench mcp ...`: MCP servers and their tools, and benchmarks of how agents use them."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.cli.commands import Parts, add_commands, find_commands, run_chosen
from pytest_agentbench.cli.output import printable
from pytest_agentbench.errors import ConfigError, McpCallError
from pytest_agentbench.seams import Command
from pytest_agentbench.terminal_text import count_text, shorten_text, visible

if TYPE_CHECKING:
    from pytest_agentbench.cli.servers import DeclaredServers, ListedServer
    from pytest_agentbench.tools.mcp.servers import Listing, ServerTool


def add_tools_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "tools",
        help="list the tools of servers, or report why a server does not answer",
        description="List the tools of a server, or start every server of a file and report how each one starts. Tool "
        "lists are stored in the output folder, so that sessions start only servers whose tools are called. Exit "
        "status 1 if a server does not start.",
    )
    parser.add_argument(
        "server",
        metavar="SERVER|FILE",
        help="a declared server, or a whole servers.yaml, commands.json or file with mcpServers",
    )
    parser.add_argument("--schemas", action="store_true", help="print the schemas of the tools' arguments too")
    parser.add_argument("--json", action="store_true", help="print a JSON list of servers with all of that instead")
    parser.add_argument("--refresh", action="store_true", help="start the server even if its tools are stored")
    add_common_options(parser)


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that every command has that starts servers."""
    parser.add_argument("--profile", metavar="NAME", help="the run profile with the servers' sandbox and more servers")
    parser.add_argument(
        "--output", type=Path, default=Path("outputs"), metavar="DIR", help="the output folder (default: outputs)"
    )


def print_tools(args: argparse.Namespace) -> int:
    """Print the tools of the servers. Values of keys are never shown."""
    import asyncio

    from pytest_agentbench.cli.servers import declared_servers, is_servers_file, make_redactor, read_servers

    if is_servers_file(args.server):
        declared, name = read_servers(Path(args.server), args.profile), None
    else:
        declared, name = declared_servers(args.profile), args.server
    servers = asyncio.run(_list_tools(declared, name, args.output, args.refresh))
    redactor = make_redactor(declared.servers.values())
    for note in declared.notes:
        print(printable(note), file=sys.stderr)
    if args.json:
        print(json.dumps(redactor.value([_make_document(each) for each in servers]), indent=2, ensure_ascii=False))
    else:
        # Redacted, because a server may repeat values that it was started with.
        brief = name is None and not args.schemas
        for each in servers:
            lines = _write_state(each) if brief else _write_tools(each, args.schemas)
            print(*map(redactor.text, lines), sep="\n")
    return int(any(each.problem is not None for each in servers))


async def _list_tools(declared: DeclaredServers, name: str | None, output: Path, refresh: bool) -> list[ListedServer]:
    """Return the server of that name, or all of them for None."""
    from pytest_agentbench.cli.servers import start_servers

    async with start_servers(declared, output) as servers:
        if name is None:
            return await servers.ask_all()
        return [await servers.ask(name, refresh=refresh)]


def _write_state(server: ListedServer) -> Iterator[str]:
    if server.listing is None:
        yield from _write_failure(server)
    else:
        yield printable(f"ok      {server.name}: {_count_tools(server.listing)}, {server.seconds:.1f} s")


def _write_failure(server: ListedServer) -> Iterator[str]:
    problem, *more = (server.problem or "").splitlines()
    yield printable(f"FAILED  {server.name}: {problem}")
    yield from (printable(f"        {line}") for line in more)


def _write_tools(server: ListedServer, schemas: bool) -> Iterator[str]:
    if server.listing is None:
        yield from _write_failure(server)
        return
    about = f"{server.listing.server_name} {server.listing.server_version}".strip() or "a server without a name"
    how = "stored earlier; --refresh lists them again" if server.seconds is None else f"{server.seconds:.1f} s"
    yield printable(f"{server.name}: {_count_tools(server.listing)} of {about}, MCP {server.listing.protocol} ({how})")
    for tool in server.listing.tools:
        yield printable(f"  {tool.name}({', '.join(_list_parameters(tool))})")
        description = " ".join(tool.description.split())
        if not schemas:
            description = shorten_text(description, 100, "...")
        if description:
            yield printable(f"      {description}")
        if schemas:
            for line in json.dumps(tool.input_schema, indent=2, ensure_ascii=False).splitlines():
                yield "      " + printable(line)


def _count_tools(listing: Listing) -> str:
    return count_text(len(listing.tools), "tool")


def _list_parameters(tool: ServerTool) -> Iterator[str]:
    """Yield the names of a tool's arguments, those in brackets that may be left out."""
    properties, required = tool.input_schema.get("properties"), tool.input_schema.get("required")
    # Servers send any JSON as a schema; only an object has arguments to show.
    if isinstance(properties, dict):
        for name in properties:
            yield name if isinstance(required, list) and name in required else f"[{name}]"


def _make_document(server: ListedServer) -> dict[str, Any]:
    listing = server.listing
    tools = () if listing is None else listing.tools
    return {
        "server": server.name,
        "problem": server.problem,
        "version": None if listing is None else listing.server_version,
        "protocol": None if listing is None else listing.protocol,
        "seconds": server.seconds,
        "tools": [tool.model_dump(include={"name", "description", "input_schema"}) for tool in tools],
    }


_USAGE = "expected SERVER TOOL or SERVER:TOOL, and then a JSON object with the arguments"


@dataclass(frozen=True, slots=True)
class _CallResult:
    """Result of a call: `text` as an agent reads it. `fit` reports whether its arguments match the tool's schema."""

    text: str
    is_error: bool
    fit: str
    seconds: float


def add_call_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""

    parser = subparsers.add_parser(
        "call",
        help="call one tool of a server",
        description="Call one tool and print its result; all other output goes to stderr. The server gets the "
        "arguments as they are, whether they satisfy the tool's schema or not. Exit status 1 if the call fails.",
        usage="%(prog)s [options] SERVER TOOL [ARGUMENTS]",
    )
    parser.add_argument(
        "words",
        nargs="+",
        metavar="SERVER TOOL [ARGUMENTS]",
        help="a declared server, its tool (or both as SERVER:TOOL), and a JSON object (default: {})",
    )
    add_common_options(parser)


def call_tool(args: argparse.Namespace) -> int:
    """Print the tool's answer. Values of keys are never shown."""
    import asyncio

    from pytest_agentbench.cli.servers import declared_servers, make_redactor

    server, tool, arguments = _read_call(args.words)
    declared = declared_servers(args.profile)
    called = asyncio.run(_time_call(declared, server, tool, arguments, args.output))
    redact = make_redactor(declared.servers.values()).text
    # The result alone on stdout, for pipes.
    print(visible(redact(called.text)), flush=True)  # keeps the order if stdout and stderr are one file
    failed = "the call failed; " if called.is_error else ""
    print(redact(f"{failed}{called.fit}; {1000 * called.seconds:.0f} ms"), file=sys.stderr)
    return int(called.is_error)


def _read_call(words: Sequence[str]) -> tuple[str, str, dict[str, Any]]:
    """Return server, tool and arguments. Raises ConfigError."""
    server, colon, tool = words[0].partition(":")
    rest = list(words[1:])
    if rest and not colon:
        tool = rest.pop(0)
    if not server or not tool or len(rest) > 1:
        raise ConfigError(f"found {' '.join(words)!r}, {_USAGE}")
    [text] = rest or ["{}"]
    try:
        arguments = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"arguments: found {text!r}, expected a JSON object: {error}") from error
    if not isinstance(arguments, dict):
        raise ConfigError(f"arguments: found {text!r}, expected a JSON object")
    return server, tool, arguments


async def _time_call(
    declared: DeclaredServers, server: str, name: str, arguments: dict[str, Any], output: Path
) -> _CallResult:
    from pytest_agentbench.cli.servers import start_servers

    async with start_servers(declared, output) as servers:
        connection = servers.connect(server)
        tool = _find_tool(await connection.listing(), server, name)
        begun = time.perf_counter()
        try:
            result = await connection.call(name, arguments)
            text, is_error = result.text, result.is_error
        except McpCallError as error:
            text, is_error = str(error), True
        # Reported and not enforced: somebody who debugs a server wants to see its reaction to wrong
        # arguments.
        return _CallResult(text, is_error, _describe_fit(tool, arguments), time.perf_counter() - begun)


def _find_tool(listing: Listing, server: str, name: str) -> ServerTool:
    from pytest_agentbench.config.base import suggest

    tools = {tool.name: tool for tool in listing.tools}
    if name not in tools:
        raise ConfigError(f"MCP server {server!r} has no tool {name!r}{suggest(name, tools)}")
    return tools[name]


def _describe_fit(tool: ServerTool, arguments: dict[str, Any]) -> str:
    from pytest_agentbench.bounded.schemas import UncheckableError, bounded_schema

    try:
        accepted = bounded_schema(tool.input_schema).accepts(arguments)
    except UncheckableError as error:
        return f"cannot check the arguments by the tool's schema: {error}"
    return f"the arguments {'satisfy' if accepted else 'do not satisfy'} the tool's schema"


TOOLS = Parts(add_tools_parser, print_tools)
CALL = Parts(add_call_parser, call_tool)
_COMMANDS = {
    "tools": Command("list the tools of servers, or report why a server does not answer", f"{__name__}:TOOLS"),
    "call": Command("call one tool of a server", f"{__name__}:CALL"),
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its own commands."""
    parser = subparsers.add_parser("mcp", help="MCP servers and tasks", description=__doc__)
    add_commands(parser, "mcp", find_commands(_COMMANDS, "mcp"))


def run(args: argparse.Namespace) -> int:
    """Run the command that was chosen."""
    return run_chosen(find_commands(_COMMANDS, "mcp"), args)
