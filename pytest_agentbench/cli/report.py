"""`agentbench report`: show the results of a stored session to people, in spreadsheets and in CI."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from pytest_agentbench.cli.output import Standard, refuse_usage
from pytest_agentbench.errors import ConfigError, find_chart_problem, missing
from pytest_agentbench.terminal_text import on_github

_NAMES = {
    "html": "page",
    "markdown": "Markdown",
    "csv": "CSV",
    "parquet": "Parquet",
    "chart": "chart",
    "json": "report",
}
"""The name of an option's file in the output."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "report",
        help="show a session's results, as a page, Markdown, CSV, Parquet, a chart, or for GitHub",
        description="Print the summary of a session from its report.json, or write it in other forms. A session that "
        "was killed has only its journal in the output folder, which is read instead. Exit status: 1 if something "
        "cannot be read or written, else 0, for a failed session too.",
    )
    parser.add_argument(
        "source",
        nargs="?",
        type=Path,
        default=Path("outputs"),
        metavar="REPORT",
        help="a report.json, or an output folder (default: outputs)",
    )
    parser.add_argument("--html", type=Path, metavar="PATH", help="write the report for people here, one page")
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="write a comment for a pull request here")
    parser.add_argument("--csv", type=Path, metavar="PATH", help="write a table with a row for each run here")
    parser.add_argument("--parquet", type=Path, metavar="PATH", help="the same as Parquet")
    parser.add_argument("--chart", type=Path, metavar="PATH", help="write an SVG of mean score against cost per model")
    parser.add_argument(
        "--format",
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME", "PATH"),
        help="write a file in a format that a plugin adds",
    )
    parser.add_argument("--json", type=Path, metavar="PATH", help="write report.json here, such as of a killed session")
    parser.add_argument(
        "--github",
        action="store_true",
        help="add to the job summary and print annotations, as sessions in GitHub Actions do by themselves",
    )
    parser.add_argument("--human", type=Path, metavar="PATH", help="compare judges with the labels of this file")
    parser.add_argument("--runs", type=Path, metavar="DIR", help="the runs' output folder (default: the report's)")


def run(args: argparse.Namespace) -> int:
    """Read the report. Write the files that options name, or print the summary without one."""
    if (problem := _find_problem(args)) is not None:
        return refuse_usage("report", problem)
    from pytest_agentbench.reports.sections import find_format

    for name, _ in args.format:
        find_format(name)  # before anything is read or written
    path, report = stored_report(args.source)
    if args.human is not None:
        from pytest_agentbench.reports.human_agreement import measure_agreement, read_labels

        report["human"] = measure_agreement(report, read_labels(args.human), str(args.human))
    for name, write in _list_writers(report, args.source, args.runs or _find_runs_folder(args.source)).items():
        if (target := getattr(args, name)) is not None:
            write(target)
            print(f"{_NAMES[name]}: {target}")
    for name, target in args.format:
        find_format(name).write(report, Path(target))
        print(f"{name}: {target}")
    if args.github:
        _tell_github(report, args.source)
    elif not args.format and not any(getattr(args, name) for name in _NAMES):
        from pytest_agentbench.reports.terminal import write_summary

        write_summary(Standard(), report, {"report": path})
    return 0


def stored_report(source: Path) -> tuple[Path, dict[str, Any]]:
    """Return the report of a report.json, a journal or an output folder, and its file.

    A folder gives the last session's report: its journal's if the session was killed or still runs. Figures that follow
    from the runs are computed again. Raises ConfigError.
    """
    from pytest_agentbench.reports.journal import RowsGoneError, journals, read_journal
    from pytest_agentbench.reports.reading import read_report
    from pytest_agentbench.reports.report import complete_report

    if not source.is_dir():
        if source.suffix == ".journal":
            return source, read_journal(source)
        return source, complete_report(read_report(source), source)
    path = source / "report.json"
    report = read_report(path) if path.is_file() else None
    # The newest journal: a killed session has no report.json, or the file is that of an older session.
    for journal in journals(source)[:1]:
        try:
            journal_report = read_journal(journal)
        except RowsGoneError:
            if report is None:
                raise
            break  # of two sessions that wrote to one report.json the other one ended last
        if report is None or (journal_report["session"]["started_at"] or "") > (report["session"]["started_at"] or ""):
            return journal, journal_report
    if report is None:
        raise ConfigError(
            f"{source}: holds neither report.json nor the journal of a session; run pytest first, or name the "
            "report.json or the output folder"
        )
    return path, complete_report(report, path)


def _find_runs_folder(source: Path) -> Path:
    """Return the output folder that a report belongs to."""
    if source.is_dir():
        return source
    if source.suffix == ".journal":
        return source.parent.parent
    return source.parent


def _find_problem(args: argparse.Namespace) -> str | None:
    """Return why this cannot be done, as far as that is known before anything is read."""
    if args.parquet is not None and (lacking := missing("pyarrow", "parquet")) is not None:
        return f"--parquet: {lacking}"
    if args.chart is not None and (problem := find_chart_problem(args.chart.name)) is not None:
        return f"--chart: {problem}"
    # By resolved path: two options, or a link, could overwrite each other.
    given: dict[Path, str] = {args.source.resolve(): "the report itself"}
    stored = (args.source / "report.json").resolve()
    if args.json is None or args.json.resolve() != stored:  # in a folder it may replace itself
        given[stored] = "the report itself"
    for name in _NAMES:
        path: Path | None = getattr(args, name)
        if path is not None and (taken := given.setdefault(path.resolve(), f"--{name}")) != f"--{name}":
            return f"--{name}: found {path}, which is {taken} too"
    if args.github and not (on_github() and os.environ.get("GITHUB_STEP_SUMMARY")):
        return "--github: found no GITHUB_STEP_SUMMARY in the environment, expected a job of GitHub Actions"
    return None


def _list_writers(report: dict[str, Any], source: Path, runs: Path) -> Mapping[str, Callable[[Path], object]]:
    """Return the writers of the report's formats, by their options."""
    from pytest_agentbench.bounded.writing import write_text
    from pytest_agentbench.reports import export
    from pytest_agentbench.reports.charts import write_chart
    from pytest_agentbench.reports.ci.document import report_markdown
    from pytest_agentbench.reports.ci.sections import Places
    from pytest_agentbench.reports.html.page import write_page
    from pytest_agentbench.reports.report import write_report

    return {
        "html": lambda path: write_page(report, path, output=runs),
        "markdown": lambda path: write_text(path, report_markdown(report, Places(_find_root(source, report)))),
        "csv": lambda path: export.write_csv(report, path),
        "parquet": lambda path: export.write_parquet(report, path),
        "chart": lambda path: write_chart(report, path),
        "json": lambda path: write_report(report, path),
    }


def _tell_github(report: dict[str, Any], source: Path) -> None:
    from pytest_agentbench.reports.ci.document import write_annotations, write_job_summary
    from pytest_agentbench.reports.ci.sections import Places

    root = _find_root(source, report)
    write_job_summary(report, Places(root), Path(os.environ["GITHUB_STEP_SUMMARY"]))
    with redirect_stdout(getattr(sys.stdout, "heeded", sys.stdout)):  # these are commands, and ours
        write_annotations(Standard(), report, root)


def _find_root(source: Path, report: Mapping[str, Any]) -> Path:
    """Return pytest's root directory as far as it shows: the first from here or above the report with its cases."""
    here = Path.cwd()
    # Node ids are relative to rootdir, which report.json omits because it may be read on another machine.
    first = next((row["nodeid"].partition("::")[0] for row in report["runs"]), None)
    folders = [here, *here.parents, *source.resolve().parents]
    if first is None:
        return here
    return next((folder for folder in folders if (folder / first).is_file()), here)
