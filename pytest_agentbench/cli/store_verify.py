"""`agentbench store verify`: whether everything stored can be read and is what it says it is."""

from __future__ import annotations

import argparse

from pytest_agentbench.cli.printing import printable

DESCRIPTION = """Read every run, verdict, judge's reply, vote and archived workspace; compare fingerprints with what
they cover, and files with the places where they lie. Exit status 1 where anything is wrong, a line for each."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """None beside `--output`."""


def run(args: argparse.Namespace) -> int:
    """Prints problems as it finds them, then what it has looked at."""
    from pytest_agentbench.store import Contents, Verification

    verification, problems = Verification(Contents(args.output)), 0
    for problem in verification.problems():
        print(printable(problem))
        problems += 1
    looked_at = [f"{count:,} {kind}" for kind, count in verification.counts.items() if count]
    print(f"{', '.join(looked_at) or 'nothing stored'}: {problems:,} problem{'' if problems == 1 else 's'}")
    return 1 if problems else 0
