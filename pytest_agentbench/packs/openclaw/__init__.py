"""OpenClaw (seed 002): agents, their container, conversation and image.

Others use: nothing
"""

from __future__ import annotations

import argparse

from pytest_agentbench.cli.commands import Command, Parts, add_commands, run_chosen

# Every part of the pack imports this module first: it contains names of modules, and imports none of them.
OPENCLAW = Command("build OpenClaw's image; make an agent from a live workspace", f"{__name__}:GROUP")
_COMMANDS = {
    "image": Command("build the pinned image that OpenClaw runs in", f"{__name__}.image"),
    "capture": Command("write an agent's folder from a live OpenClaw workspace", f"{__name__}.capture"),
}
_ABOUT = "`agentbench openclaw image|capture`: the image that OpenClaw runs in, and agents from live workspaces."


def _add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("openclaw", help="the OpenClaw runner", description=_ABOUT)
    add_commands(parser, "openclaw", _COMMANDS)


def _run(args: argparse.Namespace) -> int:
    return run_chosen(_COMMANDS, args)


GROUP = Parts(_add_parser, _run)
"""The command `agentbench openclaw`, with its own commands."""
