"""`agentbench store why|prune|verify|export`: the runs and verdicts that sessions have stored."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

_COMMANDS = {
    "why": "show what differs between two runs, and so why they are two",
    "prune": "remove what no session needs any more",
    "verify": "check that everything stored can be read and is what it says it is",
    "export": "print all runs with their verdicts, a JSON object each",
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command with its own commands."""
    parser = subparsers.add_parser("store", help="look into the store of runs", description=__doc__)
    commands = parser.add_subparsers(dest="store_command", metavar="COMMAND", required=True)
    for name, summary in _COMMANDS.items():
        module = import_module(f"pytest_agentbench.cli.store_{name}")
        command = commands.add_parser(name, help=summary, description=module.DESCRIPTION)
        module.add_options(command)
        command.add_argument(
            "--output", type=Path, default=Path("outputs"), metavar="DIR", help="the output folder (default: outputs)"
        )


def run(args: argparse.Namespace) -> int:
    """Runs one of them: 0 all is well, 1 something is wrong with the store."""
    code: int = import_module(f"pytest_agentbench.cli.store_{args.store_command}").run(args)
    return code
