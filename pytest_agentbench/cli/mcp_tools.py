"""`agentbench mcp tools SERVER|FILE`: what servers offer, and whether they come up."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.cli.printing import printable

if TYPE_CHECKING:
    from pytest_agentbench.cli.declared_servers import DeclaredServers
    from pytest_agentbench.cli.started_servers import Asked
    from pytest_agentbench.tools.mcp import Listing, ServerTool


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command with its options."""
    parser = subparsers.add_parser(
        "tools",
        help="list the tools of servers, or say why a server does not answer",
        description="List the tools of a server, or start every server of a file and say how that went. What servers "
        "list is kept in the output folder, so that sessions need not start those whose tools nobody calls. Exit "
        "status 1 where a server does not come up.",
    )
    parser.add_argument(
        "server", metavar="SERVER|FILE", help="a declared server, or a whole servers.yaml or commands.json"
    )
    parser.add_argument("--schemas", action="store_true", help="print the schemas of the tools' arguments too")
    parser.add_argument("--json", action="store_true", help="print a JSON list of servers with all of that instead")
    parser.add_argument("--refresh", action="store_true", help="start the server even where its tools are known")
    add_common_options(parser)


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """What every command has that starts servers."""
    parser.add_argument(
        "--profile", metavar="NAME", help="the run profile that says where servers run, and declares more of them"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("outputs"), metavar="DIR", help="the output folder (default: outputs)"
    )


def run(args: argparse.Namespace) -> int:
    """Prints what the servers offer. Values of keys are never shown."""
    import asyncio

    from pytest_agentbench.cli.declared_servers import declared_servers, is_servers_file, servers_of_file
    from pytest_agentbench.cli.started_servers import redactor_of

    whole = is_servers_file(args.server)
    declared = servers_of_file(Path(args.server), args.profile) if whole else declared_servers(args.profile)
    asked = asyncio.run(_ask(declared, None if whole else args.server, args.output, args.refresh))
    redactor = redactor_of(declared.servers.values())
    if args.json:
        print(json.dumps(redactor.value([_document(each) for each in asked]), indent=2, ensure_ascii=False))
    else:
        for each in asked:
            for line in _state(each) if whole and not args.schemas else _lines(each, args.schemas):
                print(redactor.text(line))
    return 1 if any(each.problem is not None for each in asked) else 0


async def _ask(declared: DeclaredServers, name: str | None, output: Path, refresh: bool) -> list[Asked]:
    """The server of that name; all of them where it is None."""
    from pytest_agentbench.cli.started_servers import started_servers

    async with started_servers(declared, output) as servers:
        return await servers.ask_all() if name is None else [await servers.ask(name, refresh=refresh)]


def _state(asked: Asked) -> Iterator[str]:
    if asked.listing is None:
        yield from _failed(asked)
    else:
        yield printable(f"ok      {asked.name}: {_counted(asked.listing)}, {asked.seconds:.1f} s")


def _failed(asked: Asked) -> Iterator[str]:
    said, *more = (asked.problem or "").splitlines()
    yield printable(f"FAILED  {asked.name}: {said}")
    yield from (printable(f"        {line}") for line in more)


def _lines(asked: Asked, schemas: bool) -> Iterator[str]:
    if asked.listing is None:
        yield from _failed(asked)
        return
    about = f"{asked.listing.server_name} {asked.listing.server_version}".strip()
    how = "known from before; --refresh asks again" if asked.seconds is None else f"{asked.seconds:.1f} s"
    yield printable(f"{asked.name}: {_counted(asked.listing)} of {about or 'a server without a name'} ({how})")
    for tool in asked.listing.tools:
        yield printable(f"  {tool.name}({', '.join(_parameters(tool))})")
        if description := " ".join(tool.description.split()):
            yield printable(f"      {description if schemas else _shortened(description)}")
        if schemas:
            for line in json.dumps(tool.input_schema, indent=2, ensure_ascii=False).splitlines():
                yield "      " + printable(line)


def _counted(listing: Listing) -> str:
    return f"{len(listing.tools)} tool{'' if len(listing.tools) == 1 else 's'}"


def _shortened(text: str, width: int = 100) -> str:
    return text if len(text) <= width else text[: width - 3].rstrip() + "..."


def _parameters(tool: ServerTool) -> Iterator[str]:
    """The names of its arguments, those in brackets that may be left out."""
    properties, required = tool.input_schema.get("properties"), tool.input_schema.get("required")
    for name in properties if isinstance(properties, dict) else ():
        yield name if isinstance(required, list) and name in required else f"[{name}]"


def _document(asked: Asked) -> dict[str, Any]:
    tools = asked.listing.tools if asked.listing is not None else ()
    return {
        "server": asked.name,
        "problem": asked.problem,
        "version": asked.listing.server_version if asked.listing is not None else None,
        "seconds": asked.seconds,
        "tools": [tool.model_dump(include={"name", "description", "input_schema"}) for tool in tools],
    }
