"""`agentbench skill`: what a coding agent has to know to work with benchmarks, as a SKILL.md."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

_SKILL = Path(__file__).with_name("SKILL.md")
_NAME = "agentbench"
"""The skill's name, which its folder has too."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "skill",
        help="print a skill for coding agents: how to write, run, read and stop benchmarks",
        description="Print the SKILL.md that tells a coding agent how to write cases, run them, read results and stop "
        "a session. With --write, write it to the place where your agent looks for skills.",
    )
    parser.add_argument(
        "--write",
        type=Path,
        metavar="FOLDER",
        help=f"write FOLDER/{_NAME}/SKILL.md instead, for example to .claude/skills or .agents/skills",
    )


def run(args: argparse.Namespace) -> int:
    """Print or write the skill."""
    text = _SKILL.read_text(encoding="utf-8")
    if args.write is None:
        sys.stdout.write(text)
        return 0
    from pytest_agentbench.bounded.writing import write_text

    print(write_text(args.write / _NAME / "SKILL.md", text))
    return 0
