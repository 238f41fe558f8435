"""`agentbench mcp tools|call|report|ablation|synthesize`: MCP servers, and benchmarks of how agents use them."""

from __future__ import annotations

import argparse

from pytest_agentbench.cli.chosen import add_commands, run_chosen

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
    add_commands(parser, "mcp", _COMMANDS)


def run(args: argparse.Namespace) -> int:
    """Runs one of them."""
    return run_chosen("mcp", args)
