"""`agentbench validate [PATH ...]`: check configuration files, cases, datasets and, with --canary, verifiers."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_agentbench.config.session_roots import SessionRoots


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
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
    parser.add_argument(
        "--strict", action="store_true", help="answers that fail by their own metrics are errors, not warnings"
    )
    parser.add_argument(
        "--run-profile",
        metavar="NAME",
        help="under which cases have to run, and in whose sandbox verifiers are tried and their tests collected",
    )
    parser.add_argument(
        "--evaluation-profile", metavar="NAME", help="by which cases have to be decided; default of both: any there is"
    )
    parser.add_argument(
        "--show-request", metavar="CASE", help="print the first request of a case's run, and ask no one"
    )
    parser.add_argument("--model", metavar="ID", help="the model whose request --show-request prints")
    parser.add_argument("--suite", metavar="NAME", help="the suite whose model that is")
    parser.add_argument("--json", action="store_true", help="print the request as JSON")


def run(args: argparse.Namespace) -> int:
    """Print every problem, every warning and a summary."""
    from pytest_agentbench.cli.checker import Checker, count_things, take_place
    from pytest_agentbench.cli.output import printable
    from pytest_agentbench.cli.places import require_existing, session_roots
    from pytest_agentbench.errors import ConfigError

    paths, tried = require_existing(args.paths), ""
    roots = session_roots(paths)
    if args.show_request is not None:
        return _show_request(paths, roots, args)
    for option in ("model", "suite", "json"):
        if getattr(args, option):
            raise ConfigError(f"--{option}: has no effect without --show-request CASE; leave it out, or add that")
    checker = Checker(roots, args.run_profile, args.evaluation_profile, strict=args.strict)
    for path in paths:
        checker.check(path)
    if checker.tested:
        from pytest_agentbench.cli.verifier_trials import check_test_ids

        errors, warnings = check_test_ids(checker.tested, roots, args.run_profile)
        checker.errors += errors
        checker.warnings += warnings
    if args.canary:
        from pytest_agentbench.cli.verifier_trials import try_canaries

        problems, cases = try_canaries(paths, roots, args.run_profile)
        checker.errors += problems
        tried = f"{count_things(cases, 'case')} tried with wrong solutions; "
    # Paths may overlap (`validate . cases`).
    errors, warnings = sorted(set(checker.errors), key=take_place), sorted(set(checker.warnings), key=take_place)
    for line in (*errors, *warnings):
        print(line)
    # Not among the problems, which scripts read.
    print(printable(f"configuration root: {roots.describe()}"), file=sys.stderr)
    print(f"{tried}{count_things(checker.files, 'file')} checked, {count_things(checker.cases, 'case')}: ", end="")
    print(f"{count_things(len(errors), 'error')}, {count_things(len(warnings), 'warning')}")
    return 1 if errors else 0


def _show_request(paths: list[Path], roots: SessionRoots, args: argparse.Namespace) -> int:
    from pytest_agentbench.cli.first_request import Asked, find_first_request
    from pytest_agentbench.cli.output import printable
    from pytest_agentbench.errors import ConfigError

    if args.model is None:
        raise ConfigError("--show-request: found no --model, expected the one whose request is shown")
    request = find_first_request(paths, roots, Asked(args.model, args.show_request, args.run_profile, args.suite))
    if args.json:
        print(request.to_json())
    else:
        print("\n".join(map(printable, request.to_text().splitlines())))
    return 0
