"""`agentbench mcp tools|call|report|ablation|synthesize`: MCP servers, and benchmarks of how agents use them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from typing import Any

_COMMANDS = {
    "tools": "list the tools of servers, or say why a server does not answer",
    "call": "call one tool of a server",
    "report": "print the tables of MCP tasks from report.json",
    "ablation": "judge the same runs with and without shuffled prompts",
    "synthesize": "make a file of MCP tasks for servers",
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command with its own commands."""
    parser = subparsers.add_parser("mcp", help="MCP servers and tasks", description=__doc__)
    commands = parser.add_subparsers(dest="mcp_command", metavar="COMMAND", required=True, parser_class=_Chosen)
    for name, summary in _COMMANDS.items():
        commands.add_parser(name, help=summary, command=name)


def run(args: argparse.Namespace) -> int:
    """Runs one of them."""
    code: int = _module(args.mcp_command).run(args)
    return code


class _Chosen(argparse.ArgumentParser):
    """Stands for a command. Its module, which has the options, is imported once it is chosen."""

    def __init__(self, *, command: str, **settings: Any) -> None:
        super().__init__(**settings)
        self._command = command

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        parser = argparse.ArgumentParser(prog="agentbench mcp")
        _module(self._command).add_parser(parser.add_subparsers(dest="mcp_command"))
        return parser.parse_known_args([self._command, *(args or ())], namespace)


def _module(command: str) -> Any:
    return import_module(f"pytest_agentbench.cli.mcp_{command}")
