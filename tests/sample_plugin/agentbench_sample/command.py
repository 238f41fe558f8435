"""Command: `agentbench cards FILE...` prints the cards of files, and what is wrong in them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from agentbench_sample.cards import OpenedCards
from pytest_agentbench import BadRow


def add_parser(subparsers: Any) -> None:
    """Add the command with its arguments."""
    parser = subparsers.add_parser("cards", help="print the cards of files")
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="a file of cards")


def run(args: argparse.Namespace) -> int:
    """Print each card with its answer; return 1 where a line is wrong. Raises ConfigError for an unreadable file."""
    wrong = 0
    for path in args.files:
        for row in OpenedCards(path).rows():
            if isinstance(row, BadRow):
                wrong += 1
                print(row.message, file=sys.stderr)
            else:
                case = row.make()
                print(f"{case.case_id}\t{case.title}\t{case.reference}")
    return 1 if wrong else 0
