"""`agentbench agents ...`: command-line agents that cases may run, and their images."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_agentbench.cli.output import printable
from pytest_agentbench.errors import AgentbenchError, ConfigError
from pytest_agentbench.extensions import CONTAINERS, ordered_names
from pytest_agentbench.terminal_text import count_text

if TYPE_CHECKING:
    from pytest_agentbench.config.roots import ConfigRoot
    from pytest_agentbench.runners.agents.adapter import Adapter

_FORMS = {"agent": "by its command", "acp": "by ACP"}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its own commands."""
    parser = subparsers.add_parser(
        "agents",
        help="list, build, try and show command-line agents, and begin an adapter for another",
        description="Command-line agents that a case may run: `runner: {type: agent, agent: NAME}`.",
    )
    chosen = parser.add_subparsers(dest="chosen", metavar="COMMAND", required=True)
    listing = chosen.add_parser("list", help="show the known agents")
    listing.add_argument("--all", action="store_true", help="include agents without a verified version")
    _add_registry(listing, "show the agents of a registry file of ACP agents that you have, in place of adapters")
    image = chosen.add_parser("image", help="build an agent's image, from its lock file")
    image.add_argument("names", nargs="+", metavar="NAME", help="an agent, or all")
    image.add_argument(
        "--base",
        default=None,
        metavar="IMAGE",
        help="the base image: with Python 3, and with git and ripgrep if agents use them (default: Debian, with these)",
    )
    image.add_argument(
        "--engine",
        default=CONTAINERS,
        metavar="ENGINE",
        help="a container engine's program, such as podman, or a kind of sandbox (default: %(default)s)",
    )
    image.add_argument("--rebuild", action="store_true", help="build again, and replace a foreign image of that name")
    doctor = chosen.add_parser("doctor", help="try an agent with a scripted model, without network")
    doctor.add_argument("name", metavar="NAME", help="an agent")
    doctor.add_argument(
        "--sandbox",
        choices=ordered_names("sandbox"),
        default=CONTAINERS,
        help="where (default: %(default)s, its image)",
    )
    outdated = chosen.add_parser("outdated", help="ask npm and PyPI for newer versions of agents' packages")
    outdated.add_argument("names", nargs="*", metavar="NAME", help="an agent (default: all)")
    show = chosen.add_parser("show", help="print argv, variables and files as a run has them")
    show.add_argument("name", metavar="NAME", help="an agent")
    init = chosen.add_parser("init", help="begin an adapter in agents/NAME/agent.yaml of the root in use")
    init.add_argument("name", metavar="NAME", help="the name of the new adapter")
    _add_registry(init, "begin it for the agent of that id in a registry file of ACP agents that you have")


def _add_registry(parser: argparse.ArgumentParser, description: str) -> None:
    parser.add_argument("--acp", type=Path, metavar="FILE", help=description)


def run(args: argparse.Namespace) -> int:
    """Run the command that was chosen: 0 all is well, 1 something is not, 2 wrong usage."""
    from pytest_agentbench.cli.places import session_roots

    root = session_roots([Path.cwd()]).main
    commands = {
        "list": _list,
        "image": _build,
        "doctor": _try,
        "outdated": _compare_versions,
        "show": _show,
        "init": _begin,
    }
    return commands[args.chosen](args, root)


def _list(args: argparse.Namespace, root: ConfigRoot) -> int:
    if args.acp is not None:
        return _list_registry(args.acp)
    rows = [("agent", "version", "dialects", "licence", "image", "verified")]
    for adapter in _every_adapter(root):
        program, verified = adapter.program, "never"
        if program.verified is not None:
            verified = f"{program.verified.version} on {program.verified.on}"
        elif not args.all:
            continue
        facts = (program.name, program.install.version, " ".join(program.dialects), program.licence)
        rows.append((*facts, _look_for_image(adapter), verified))
    _print_table(rows)
    return 0


def _list_registry(path: Path) -> int:
    from pytest_agentbench.runners.acp.registry import read_registry

    agents = read_registry(path)
    _print_table(
        [
            ("agent", "version", "licence", "kind"),
            *((each.id, each.version, each.license, each.kinds) for each in agents),
        ]
    )
    return 0


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print(printable("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()))


def _every_adapter(root: ConfigRoot) -> Iterator[Adapter]:
    from pytest_agentbench.runners.agents.adapter import find_adapter, list_adapters

    yield from (find_adapter(name, root) for name in list_adapters(root))


def _look_for_image(adapter: Adapter) -> str:
    from pytest_agentbench.runners.agents.image import describe_image
    from pytest_agentbench.workspaces.sandboxes.choice import open_images

    try:
        with closing(open_images(CONTAINERS)) as images:
            found = images.find(adapter.image)
    except AgentbenchError:
        return "-"  # no engine, no image
    if found is None:
        return "no"
    return describe_image(found.labels, adapter)


def _build(args: argparse.Namespace, root: ConfigRoot) -> int:
    from pytest_agentbench.config.agent_file import PROPRIETARY
    from pytest_agentbench.runners.agents.adapter import find_adapter
    from pytest_agentbench.runners.agents.image import BASE, build_image
    from pytest_agentbench.workspaces.sandboxes.choice import open_images

    if args.names == ["all"]:
        # Agents without a verified version, and those whose terms the user must accept, are built only by
        # name.
        adapters = [
            adapter
            for adapter in _every_adapter(root)
            if adapter.program.verified is not None and adapter.program.licence != PROPRIETARY
        ]
    else:
        adapters = [find_adapter(name, root) for name in args.names]
    with closing(open_images(args.engine)) as images:
        for adapter in adapters:
            build_image(images, adapter, args.base or BASE, _tell, rebuild=args.rebuild)
    return 0


def _try(args: argparse.Namespace, root: ConfigRoot) -> int:
    from pytest_agentbench.runners.agents.adapter import find_adapter
    from pytest_agentbench.runners.agents.doctor import list_forms, try_agent

    adapter = find_adapter(args.name, root)
    name, problems = f"{adapter.program.title} {adapter.program.install.version}", 0
    for form in list_forms(adapter.program):
        found = try_agent(adapter, form, root, args.sandbox)
        print(printable(f"{name} {_FORMS[form]} in {args.sandbox}:"))
        for line in found.lines:
            print(printable(f"  {line}"))
        if not found.problems:
            print("no problem found")
            continue
        problems += len(found.problems)
        print(f"{count_text(len(found.problems), 'problem')}:")
        for number, problem in enumerate(found.problems, start=1):
            print(printable(f"  {number}. {problem}"))
    return 1 if problems else 0


def _compare_versions(args: argparse.Namespace, root: ConfigRoot) -> int:
    import asyncio

    from pytest_agentbench.runners.agents.adapter import find_adapter
    from pytest_agentbench.runners.agents.registries import find_newest, find_package, is_older, list_hosts

    adapters = [find_adapter(name, root) for name in args.names] or [*_every_adapter(root)]
    packages = [find_package(adapter.program.install) for adapter in adapters]
    _tell(f"asking {' and '.join(list_hosts(packages))} for the versions of {count_text(len(packages), 'package')}")
    newest = asyncio.run(find_newest(packages))
    rows: list[tuple[str, ...]] = [("agent", "package", "pinned", "newest", "")]
    for adapter, package, found in zip(adapters, packages, newest, strict=True):
        state = found.problem or ""
        if found.version is not None and is_older(package.pinned, found.version):
            state = "outdated"
        rows.append((adapter.program.name, package.name, package.pinned, found.version or "-", state))
    _print_table(rows)
    return int(any(row[-1] for row in rows))


def _show(args: argparse.Namespace, root: ConfigRoot) -> int:
    from pytest_agentbench.config.agent_file import fill, fill_text
    from pytest_agentbench.runners.agents.adapter import find_adapter
    from pytest_agentbench.runners.agents.places import show_values

    program, values = find_adapter(args.name, root).program, show_values()
    install = program.install
    print(printable(f"{program.title} {install.version} ({install.npm or install.pypi})"))
    commands = [("first turn", program.argv), ("next turns", program.resume_argv)] if program.argv else []
    if program.acp is not None:
        commands.append(("by ACP", program.acp.argv))
    for title, argv in commands:
        _show_part(title, [str(fill(text, values)) for text in argv or ()])
    variables = [f"{name}={fill_text(value, values)}" for name, value in program.env.items()]
    _show_part("variables, in addition to the gateway's", variables)
    for path, content in program.files.items():
        print(f"\n{printable(fill_text(path, values))}:")
        text = content if isinstance(content, str) else json.dumps(content, indent=2, ensure_ascii=False)
        for line in fill_text(text, values).splitlines():
            print(f"  {printable(line)}")
    for what, how in (("own retries", program.retries_off), ("telemetry", program.telemetry_off)):
        print()
        print(printable(f"{what} off by: {how or 'no way is known'}"))
    return 0


def _show_part(title: str, lines: Sequence[str]) -> None:
    if lines:
        print(f"\n{title}:", *map(printable, lines), sep="\n  ")
    else:
        print(f"\n{title}: none")


def _begin(args: argparse.Namespace, root: ConfigRoot) -> int:
    from importlib.resources import files

    from pytest_agentbench.cli.schema import schema_line
    from pytest_agentbench.config.agent_file import AgentProgram
    from pytest_agentbench.config.base import load
    from pytest_agentbench.runners.agents.adapter import FILE, FOLDER

    path = root.path / FOLDER / args.name / FILE
    if os.path.lexists(path):  # a link that leads nowhere too
        raise ConfigError(f"{path}: is there already")
    if args.acp is None:
        text = files("pytest_agentbench.runners.agents").joinpath("new_agent.yaml").read_text(encoding="utf-8")
        text = text.replace("NAME", args.name)
    else:
        from pytest_agentbench.runners.acp.registry import find_agent, read_registry, write_adapter

        text = write_adapter(find_agent(read_registry(args.acp), args.name, args.acp), args.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(schema_line("agent_program", path) + text, encoding="utf-8")
    try:
        load(path, AgentProgram)  # a name that is no slug
    except ConfigError:
        path.unlink()
        raise
    print(
        printable(
            f"{path}: fill in how the agent is installed, started and read, then: agentbench agents show {args.name}"
        )
    )
    return 0


def _tell(line: str) -> None:
    print(printable(line), flush=True)
