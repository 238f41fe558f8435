"""The options of commands that read a report and its stored runs."""

from __future__ import annotations

import argparse
from pathlib import Path

REPORT = Path("outputs/report.json")
"""Where sessions write their report, below the folder that they are started in."""


def add_report_options(parser: argparse.ArgumentParser) -> None:
    """Add `--report` and `--runs`: a report and the output folder of its runs."""
    parser.add_argument(
        "--report",
        type=Path,
        default=REPORT,
        metavar="REPORT.json",
        help=f"the report, or its folder (default: {REPORT})",
    )
    parser.add_argument(
        "--runs",
        type=Path,
        metavar="DIR",
        help="the runs' output folder (default: the report's folder if it has a store of runs, else outputs)",
    )


def find_report(path: Path) -> Path:
    """Return the report's file: that of the folder, or the path itself."""
    if path.is_dir():
        return path / "report.json"
    return path
