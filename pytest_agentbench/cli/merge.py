"""`agentbench merge REPORT...`: the reports of a session's shards, or of several sessions, as one."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_agentbench.cli.merging import Part

_CHECKED = ("schema_version", "session", "totals", "runs")
"""What of a report is taken over; the rest is worked out anew."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command with its options."""
    parser = subparsers.add_parser(
        "merge",
        help="join the reports of a session's shards",
        description="Join report.json files: of the shards of one session (--agentbench-shard I/N), or of sessions "
        "that have no run in common. The figures are those of one session over all their items. Exit status: that of "
        "such a session (with a gate, its verdict), as 0 or 1; 1 too where the reports do not go together.",
    )
    parser.add_argument("reports", nargs="+", type=Path, metavar="REPORT", help="a report.json")
    parser.add_argument("-o", "--output", type=Path, metavar="PATH", help="write the joint report.json here")
    parser.add_argument("--partial", action="store_true", help="merge what there is where shards are missing")
    parser.add_argument(
        "--fail-under",
        type=_fraction,
        metavar="FRACTION",
        help="gate on this pass rate (default: what the sessions were gated on)",
    )
    parser.add_argument(
        "--min-completion",
        type=_fraction,
        metavar="FRACTION",
        help="the share of runs that must reach a verdict for the gate to pass (default: the sessions', else 0.95)",
    )


def run(args: argparse.Namespace) -> int:
    """Prints the summary, writes the report where asked to."""
    from pytest_agentbench.cli.merging import merge_reports
    from pytest_agentbench.cli.terminal import Standard
    from pytest_agentbench.errors import ConfigError
    from pytest_agentbench.reports import write_summary

    if args.output is not None and (twin := _same_file(args.output, args.reports)) is not None:
        print(f"agentbench merge: -o: found {args.output}, which is one of the reports: {twin}", file=sys.stderr)
        return 2
    parts = [read_report(path) for path in args.reports]
    try:
        report = merge_reports(
            parts, partial=args.partial, fail_under=args.fail_under, min_completion=args.min_completion
        )
    except OverflowError as error:
        raise ConfigError(f"a number in the reports is too large to add up: {error}") from error
    if args.output is not None:
        _write(report, args.output)
    write_summary(Standard(), report, None if args.output is None else str(args.output))
    return 1 if report["session"]["exit_status"] else 0


def _same_file(output: Path, reports: Sequence[Path]) -> Path | None:
    return next((path for path in reports if output.exists() and path.exists() and path.samefile(output)), None)


def read_report(path: Path) -> Part:
    """A report.json. Raises ConfigError for a file that is none of this version."""
    from pytest_agentbench.cli.merging import Part
    from pytest_agentbench.errors import ConfigError

    try:
        found = json.loads(path.read_bytes(), parse_constant=_no_number)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: is no JSON: {error}") from error
    if (problem := _problem(found)) is not None:
        raise ConfigError(f"{path}: {problem}")
    return Part(str(path), found)


def _problem(found: Any) -> str | None:
    """What keeps a document from being a report, None where it is one."""
    from jsonschema import Draft202012Validator

    from pytest_agentbench.reports import report_schema

    if not isinstance(found, dict) or "runs" not in found:
        return "is no report.json"
    schema = report_schema()
    if (version := found.get("schema_version")) != schema["properties"]["schema_version"]["const"]:
        return f"schema_version: found {version!r}, expected 1; merge it with the version that wrote it"
    schema["required"] = list(_CHECKED)
    schema["properties"] = {name: schema["properties"][name] for name in _CHECKED}
    checked = {name: found[name] for name in _CHECKED if name in found}
    error = next(Draft202012Validator(schema).iter_errors(checked), None)
    if error is None:
        return None
    place = error.json_path.removeprefix("$").removeprefix(".")
    return f"{place or 'report'}: {error.message[:300]}"


def _no_number(name: str) -> Any:
    raise ValueError(f"found {name}, expected a number")


def _write(report: dict[str, Any], path: Path) -> None:
    from pytest_agentbench.errors import InfrastructureError
    from pytest_agentbench.reports import write_report

    try:
        write_report(report, path)
    except InfrastructureError as error:
        raise InfrastructureError(f"-o {path}: cannot be written: {error.__cause__}") from error


def _fraction(text: str) -> float:
    from pytest_agentbench.options import parse_fraction

    return parse_fraction(text)
