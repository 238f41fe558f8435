"""`agentbench export inspect|eee OUT`: write the runs of a report as files of another tool."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_agentbench.cli.report_options import add_report_options, find_report
from pytest_agentbench.terminal_text import count_text

if TYPE_CHECKING:
    from pytest_agentbench.packs.exporters.columns import Column, ExportedFile

RELATIONSHIPS = ("first_party", "third_party", "collaborative", "other")
DEPLOYMENTS = ("self_deployed", "externally_managed", "unknown")
AVAILABILITIES = ("open_weights", "closed_weights", "unknown")
_SHOWN = 10
"""Maximum notes that are printed."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command, with a command for each format."""
    parser = subparsers.add_parser(
        "export",
        help="write results as logs of Inspect or as rows of Every Eval Ever",
        description="Write the runs of a report, with their conversations, as files that other tools read.",
    )
    formats = parser.add_subparsers(dest="format", metavar="FORMAT", required=True)
    summary = "logs (.eval) for Inspect's viewer, one for each model"
    _add_common(formats.add_parser("inspect", help=summary, description=f"Write {summary}."))
    summary = "results and samples of Every Eval Ever 0.3, one pair of files for each model"
    eee = formats.add_parser("eee", help=summary, description=f"Write {summary}, below OUT/data.")
    _add_common(eee)
    eee.add_argument("--organisation", required=True, metavar="NAME", help="the organisation that ran the evaluation")
    eee.add_argument("--relationship", required=True, choices=RELATIONSHIPS, help="its relationship to the model")
    eee.add_argument("--developer", default="unknown", metavar="NAME", help="the developer of the models")
    eee.add_argument("--deployment", default="unknown", choices=DEPLOYMENTS, help="who runs the models")
    eee.add_argument("--availability", default="unknown", choices=AVAILABILITIES, help="access to the models' weights")


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", type=Path, metavar="OUT", help="the folder to write to")
    add_report_options(parser)


def run(args: argparse.Namespace) -> int:
    """Write a file, or a pair of files, for each column of the report. Return 1 if nothing can be exported."""
    from pytest_agentbench.packs.exporters.columns import read_columns

    source = find_report(args.report)
    columns = read_columns(source, args.runs)
    notes: list[str] = []
    written = 0
    for column in columns:
        file = _write(column, args, notes)
        if file is not None:
            written += 1
            print(f"{file.path}: {count_text(file.runs, 'run')} of {column.title}")
    for note in notes[:_SHOWN]:
        print(note, file=sys.stderr)
    if len(notes) > _SHOWN:
        print(f"... and {len(notes) - _SHOWN:,} more", file=sys.stderr)
    if not written:
        print(f"{source}: found no run that can be exported", file=sys.stderr)
        return 1
    return 0


def _write(column: Column, args: argparse.Namespace, notes: list[str]) -> ExportedFile | None:
    # Only the chosen format is imported.
    if args.format == "inspect":
        from pytest_agentbench.packs.exporters.inspect_logs import write_log

        return write_log(column, args.out, notes)
    from pytest_agentbench.packs.exporters.every_eval_ever import Source, write_pair

    source = Source(
        organisation=args.organisation,
        relationship=args.relationship,
        developer=args.developer,
        deployment=args.deployment,
        availability=args.availability,
    )
    return write_pair(column, source, args.out, notes)
