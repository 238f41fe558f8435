"""`agentbench merge REPORT...`: the reports of a session's shards, or of several sessions, as one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_agentbench.cli.argument_types import parse_fraction
from pytest_agentbench.cli.output import Standard, refuse_usage
from pytest_agentbench.errors import ConfigError, InfrastructureError


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "merge",
        help="join the reports of a session's shards",
        description="Join report.json files: of the shards of one session (--agentbench-shard I/N), or of sessions "
        "that have no run in common. The figures are those of one session over all their items. Exit status: that of "
        "such a session (with a gate, its verdict), as 0 or 1; also 1 if the reports do not fit together.",
    )
    parser.add_argument("reports", nargs="+", type=Path, metavar="REPORT", help="a report.json")
    parser.add_argument("-o", "--output", type=Path, metavar="PATH", help="write the joint report.json here")
    parser.add_argument("--partial", action="store_true", help="merge the existing shards if others are missing")
    parser.add_argument(
        "--fail-under",
        type=parse_fraction,
        metavar="FRACTION",
        help="gate on this pass rate (default: the sessions' own rate)",
    )
    parser.add_argument(
        "--min-completion",
        type=parse_fraction,
        metavar="FRACTION",
        help="the share of runs that must reach a verdict for the gate to pass (default: the sessions', else 0.95)",
    )


def run(args: argparse.Namespace) -> int:
    """Print the summary; write the report where asked to."""
    from pytest_agentbench.cli.merging import merge_reports, read_report
    from pytest_agentbench.reports.terminal import write_summary

    if args.output is not None and (twin := _find_same_file(args.output, args.reports)) is not None:
        return refuse_usage("merge", f"-o: found {args.output}, which is one of the reports: {twin}")
    parts = [read_report(path) for path in args.reports]
    try:
        report = merge_reports(
            parts, partial=args.partial, fail_under=args.fail_under, min_completion=args.min_completion
        )
    # Reports are strangers' files: JSON integers have any size.
    except OverflowError as error:
        raise ConfigError(f"a number in the reports is too large to add up: {error}") from error
    if args.output is not None:
        _write_merged(report, args.output)
    write_summary(Standard(), report, {} if args.output is None else {"report": args.output})
    return int(bool(report["session"]["exit_status"]))


def _find_same_file(output: Path, reports: Sequence[Path]) -> Path | None:
    # By identity and not by name: links and other spellings would overwrite a report too.
    return next((path for path in reports if output.exists() and path.exists() and path.samefile(output)), None)


def _write_merged(report: dict[str, Any], path: Path) -> None:
    from pytest_agentbench.reports.report import write_report

    try:
        write_report(report, path)
    except InfrastructureError as error:
        raise InfrastructureError(f"-o {path}: cannot be written: {error.__cause__}") from error
