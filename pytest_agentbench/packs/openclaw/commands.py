"""The command `agentbench openclaw`, with its own commands."""

from __future__ import annotations

import argparse

from pytest_agentbench.cli.commands import Parts, add_commands, run_chosen
from pytest_agentbench.seams import Command

_PACK = __name__.rpartition(".")[0]
_COMMANDS = {
    "image": Command("build the pinned image that OpenClaw runs in", f"{_PACK}.image"),
    "capture": Command("write an agent's folder from a live OpenClaw workspace", f"{_PACK}.capture"),
}
_ABOUT = "`agentbench openclaw image|capture`: the image that OpenClaw runs in, and agents from live workspaces."


def _add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("openclaw", help="the OpenClaw runner", description=_ABOUT)
    add_commands(parser, "openclaw", _COMMANDS)


def _run(args: argparse.Namespace) -> int:
    return run_chosen(_COMMANDS, args)


GROUP = Parts(_add_parser, _run)
