"""`agentbench validate [PATH ...]`: every configuration file, case and dataset, and what they say of each other."""

from __future__ import annotations

import argparse
import re
from pathlib import Path


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command with its options."""
    parser = subparsers.add_parser(
        "validate",
        help="check configuration files, cases and datasets",
        description="Check every configuration file, case, dataset and script below the paths, and that the ids they "
        "name exist. Each problem is a line file:line:column: ...; the exit status is 1 if there is one.",
    )
    parser.add_argument("paths", nargs="*", type=Path, default=[Path()], metavar="PATH", help="default: .")
    parser.add_argument(
        "--canary",
        action="store_true",
        help="run the cases' verifiers on solutions that are known to be wrong: a case that one passes is an error",
    )
    parser.add_argument("--run-profile", metavar="NAME", help="whose sandbox --canary uses; default: auto")


def run(args: argparse.Namespace) -> int:
    """Prints every problem, every warning and a summary."""
    from pytest_agentbench.cli.checking import Checker
    from pytest_agentbench.cli.places import existing, session_roots

    paths, tried = existing(args.paths), ""
    roots = session_roots(paths)
    checker = Checker(roots)
    for path in paths:
        checker.check(path)
    if args.canary:
        from pytest_agentbench.cli.canary import try_canaries

        problems, cases = try_canaries(paths, roots, args.run_profile)
        checker.errors += problems
        tried = f"{_count(cases, 'case')} tried with wrong solutions; "
    errors, warnings = sorted(set(checker.errors), key=_place), sorted(set(checker.warnings), key=_place)
    for line in (*errors, *warnings):
        print(line)
    print(f"{tried}{_count(checker.files, 'file')} checked, {_count(checker.cases, 'case')}: ", end="")
    print(f"{_count(len(errors), 'error')}, {_count(len(warnings), 'warning')}")
    return 1 if errors else 0


def _place(problem: str) -> tuple[str, int, int, str]:
    """File, line and column, for problems in the order in which a reader meets them."""
    match = re.match(r"(.*?):(\d+):(\d+): ", problem)
    return (match[1], int(match[2]), int(match[3]), problem) if match else (problem, 0, 0, problem)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
