"""`agentbench openclaw image|capture`: the image that OpenClaw runs in, and agents from live workspaces."""

from __future__ import annotations

import argparse

from pytest_agentbench.cli.commands import Command, add_commands, run_chosen

_COMMANDS = {
    "image": Command("build the pinned image that OpenClaw runs in", "pytest_agentbench.packs.openclaw.image"),
    "capture": Command(
        "write an agent's folder from a live OpenClaw workspace", "pytest_agentbench.packs.openclaw.capture"
    ),
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its own commands."""
    parser = subparsers.add_parser("openclaw", help="the OpenClaw runner", description=__doc__)
    add_commands(parser, "openclaw", _COMMANDS)


def run(args: argparse.Namespace) -> int:
    """Run one of them."""
    return run_chosen(_COMMANDS, args)
