"""`agentbench import deepeval|inspect|promptfoo FILE`: convert case files of other tools to cases.

A question with one check or metric becomes a row of a dataset, any other case a `test.yaml`.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.terminal_text import count_text

if TYPE_CHECKING:
    from pytest_agentbench.packs.importers.drafts import FileContents

_TOOLS = {
    "deepeval": "goldens: JSON, JSONL or CSV as DeepEval's datasets are saved",
    "inspect": "samples: JSON, JSONL or CSV; or the log of an evaluation: .eval or .json",
    "promptfoo": "promptfooconfig.yaml with the prompts and tests that it names, or a .json of results",
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command, with a command for each tool."""
    parser = subparsers.add_parser(
        "import",
        help="turn case files of DeepEval, Inspect or promptfoo into cases",
        description="Write cases and datasets from a file of another tool to a new folder. Parts without a counterpart "
        "are listed as file:line:column: ...; no code of the file is run. Exit status 1 if a row became no case.",
    )
    tools = parser.add_subparsers(dest="tool", metavar="TOOL", required=True)
    for name, reads in _TOOLS.items():
        tool = tools.add_parser(name, help=reads, description=f"Reads {reads}.")
        tool.add_argument("file", type=Path, metavar="FILE", help="the file to read; it is not changed")
        tool.add_argument(
            "-o", "--output", type=Path, metavar="FOLDER", help="new or empty; default: cases/<the file's name>"
        )


def run(args: argparse.Namespace) -> int:
    """Write the cases. Parts of the file that have no counterpart are listed on stderr."""
    from pytest_agentbench.cli.places import require_existing
    from pytest_agentbench.packs.importers.folders import PREDICTIONS, make_slug, write_drafts
    from pytest_agentbench.terminal_text import visible

    (path,) = require_existing([args.file])
    # Only the chosen tool's reader is imported: each reader imports parsers.
    gathered: FileContents = import_module(f"pytest_agentbench.packs.importers.{args.tool}").read(path)
    stem = make_slug(path.name.partition(".")[0])
    folder = (args.output or Path("cases", stem)).absolute()
    written = None
    try:
        if gathered.drafts:
            written = write_drafts(gathered, folder, stem)
    finally:
        # Printed even if nothing can be written: lost rows often explain why.
        lost, notes = gathered.lost, list(dict.fromkeys(gathered.notes))
        for line in (*lost, *notes):
            print(visible(line).replace("\n", "\\n"), file=sys.stderr)
    if written is None:
        raise ConfigError(f"{path}: found no row that can become a case")
    print(_format_summary(folder, written.files, written.rows, len(lost), len(notes)))
    if written.judged:
        print(f"{count_text(written.judged, 'case')} for a judge: run with an evaluation profile that has a judge")
    if written.answers:
        command = shlex.join(["pytest", str(folder), "--agentbench-predictions", str(folder / PREDICTIONS)])
        print(f"{count_text(written.answers, 'answer')} to score: {command}")
    if lost:
        return 1
    return 0


def _format_summary(folder: Path, files: int, rows: int, lost: int, notes: int) -> str:
    written = f"{count_text(files, 'case file')}, {count_text(rows, 'dataset row')}"
    return f"{folder}: {written}; {count_text(lost, 'row')} not imported, {count_text(notes, 'note')}"
