"""`agentbench validate [PATH ...]`: check configuration files, cases, datasets and, with --canary, verifiers."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_agentbench.cli.output import printable
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.terminal_text import count_text

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
        help="run the cases' verifiers on solutions that are known to be wrong: a verifier that passes one is an error",
    )
    parser.add_argument("--strict", action="store_true", help="make answers that fail by their own metrics errors")
    parser.add_argument(
        "--run-profile",
        metavar="NAME",
        help="that has to run the cases, and whose sandbox runs verifiers and collects their tests",
    )
    parser.add_argument("--evaluation-profile", metavar="NAME", help="that must decide the cases; default of both: any")
    parser.add_argument("--show-request", metavar="CASE", help="print the first request of a case; send nothing")
    parser.add_argument("--model", metavar="ID", help="the model whose request --show-request prints")
    parser.add_argument("--suite", metavar="NAME", help="the suite whose model that is")
    parser.add_argument("--json", action="store_true", help="print the request as JSON")


def run(args: argparse.Namespace) -> int:
    """Print every error, every warning and a summary. Return 1 if there is an error, else 0."""
    from pytest_agentbench.cli.places import require_existing, session_roots
    from pytest_agentbench.cli.stand_ins import known_from_conftests

    paths = require_existing(args.paths)
    roots = session_roots(paths)
    with known_from_conftests(paths, roots):
        return _validate(paths, roots, args)


def _validate(paths: list[Path], roots: SessionRoots, args: argparse.Namespace) -> int:
    from pytest_agentbench.cli.checker import Checker
    from pytest_agentbench.cli.findings import sort_problems, write_lines

    if args.show_request is not None:
        return _show_request(paths, roots, args)
    for option in ("model", "suite", "json"):
        if getattr(args, option):
            raise ConfigError(f"--{option}: has no effect without --show-request CASE; leave it out, or add that")
    checker = Checker(roots, args.run_profile, args.evaluation_profile, strict=args.strict)
    for path in paths:
        checker.check(path)
    findings, canaries = checker.findings, ""
    if checker.verified:
        from pytest_agentbench.cli.verifier_trials import check_test_ids

        findings += check_test_ids(checker.verified, roots, args.run_profile)
    if args.canary:
        from pytest_agentbench.cli.verifier_trials import try_canaries

        findings += try_canaries(checker.verified, roots, args.run_profile)
        canaries = f"{count_text(len(checker.verified), 'case')} tried with wrong solutions; "
    problems = sort_problems(findings)  # paths may overlap (`validate . cases`), so problems repeat
    for line in write_lines(problems):
        print(line)
    # On standard error: scripts read the problems from standard output.
    print(printable(f"configuration root: {roots.describe()}"), file=sys.stderr)
    errors = sum(finding.is_error for finding in problems)
    print(f"{canaries}{count_text(checker.files, 'file')} checked, {count_text(checker.cases, 'case')}: ", end="")
    print(f"{count_text(errors, 'error')}, {count_text(len(problems) - errors, 'warning')}")
    return int(bool(errors))


def _show_request(paths: list[Path], roots: SessionRoots, args: argparse.Namespace) -> int:
    from pytest_agentbench.cli.first_request import RequestOptions, find_first_request

    if args.model is None:
        raise ConfigError("--show-request: found no --model, expected the one whose request is shown")
    request = find_first_request(
        paths, roots, RequestOptions(args.model, args.show_request, args.run_profile, args.suite)
    )
    if args.json:
        print(request.to_json())
    else:
        print("\n".join(map(printable, request.to_text().splitlines())))
    return 0
