"""`agentbench store prune`: removes what no session needs any more."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from pytest_agentbench.cli.printing import printable

DESCRIPTION = """Remove runs and verdicts whose place others have taken (a session with the earlier prompt or
rubric would still find them) unless a session has come back to them since, verdicts on runs that are gone, and what
sessions that were killed left half done. Nothing is removed while a session is making runs there."""

_AT_WORK = "a session is making runs there; prune when it has ended"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Beside `--output`."""
    parser.add_argument("--dry-run", action="store_true", help="name every file that would go, and remove none")
    parser.add_argument(
        "--unreadable",
        action="store_true",
        help="remove runs and verdicts that cannot be read too, and those kept aside",
    )


def run(args: argparse.Namespace) -> int:
    """Prints a line for each reason to remove something, and the sum."""
    from pytest_agentbench.store import Contents, is_at_work, remove, waste

    contents = Contents(args.output)
    found: Counter[str] = Counter()
    code = files = size = 0
    for each in waste(contents, unreadable=args.unreadable):
        if not args.dry_run and is_at_work(args.output):  # one may begin at any time
            print(f"{args.output}: {_AT_WORK}", file=sys.stderr)
            code = 1
            break
        found[each.reason] += 1
        files += len(each.paths)
        size += sum(_size(args.output / path) for path in each.paths)
        if args.dry_run:
            for path in each.paths:
                print(printable(path))
        else:
            remove(args.output, each)
    for reason, count in found.items():
        print(f"{count:>8,} {reason}")
    print(f"{'would remove' if args.dry_run else 'removed'} {files:,} files, {_readable(size)}")
    return code


def _readable(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 1e5 else f"{size / 1e3:,.1f} kB"


def _size(path: Path) -> int:
    """Bytes; 0 for what is gone meanwhile."""
    try:
        return path.lstat().st_size
    except OSError:
        return 0
