"""`agentbench mcp synthesize`: makes a file of MCP tasks for servers (seed 004, 4.2)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

_USAGE, _INTERRUPTED = 2, 130


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command with its options."""
    from pytest_agentbench.options import parse_money, parse_positive

    parser = subparsers.add_parser(
        "synthesize",
        help="make a file of MCP tasks for servers",
        description="Let a model make tasks for MCP servers: dependencies between their tools and a detailed task, a "
        "fuzzy request for it, mechanical checks, and an assessment that only good tasks pass. The same command goes "
        "on where it was interrupted; nothing is paid for twice. Exit status 0: the file has all tasks; 1: fewer; "
        "2: wrong usage.",
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--servers", metavar="NAMES", help='the servers that each task uses, such as "Time,Git"')
    which.add_argument(
        "--combinations", type=Path, metavar="FILE", help="a file of combinations of servers, as MCP-Bench has them"
    )
    parser.add_argument(
        "--count", type=parse_positive, default=1, metavar="N", help="tasks of each combination (default: %(default)s)"
    )
    parser.add_argument("--model", required=True, metavar="ID", help="the model that makes and assesses the tasks")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("tasks.json"),
        metavar="FILE",
        help="the task file, to which tasks are added; FILE.drafts.jsonl keeps every draft (default: %(default)s)",
    )
    parser.add_argument("--language", choices=("en", "zh"), default="en", help="of the tasks (default: %(default)s)")
    parser.add_argument(
        "--max-cost", type=parse_money, metavar="USD", help="ask nothing more once this call has cost this much"
    )
    parser.add_argument("--profile", metavar="NAME", help="the run profile that says where servers run")


def run(args: argparse.Namespace) -> int:
    """Makes the tasks; says how each draft ended, what became of the tasks, and what that cost."""
    import asyncio

    from pytest_agentbench.cli.synthesizing import Call

    if args.output.suffix != ".json":
        print(f"agentbench mcp synthesize: --output: found {args.output}, expected a .json file", file=sys.stderr)
        return _USAGE
    call = Call(args)
    try:
        asyncio.run(call.make())
    except KeyboardInterrupt:
        call.tell_end()
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return _INTERRUPTED
    call.tell_end()
    return 0 if call.is_complete else 1
