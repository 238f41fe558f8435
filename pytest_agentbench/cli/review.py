"""`agentbench review [REPORT.json]`: people label judged runs as passed or failed, without seeing judges' verdicts."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_agentbench.cli.output import Standard
from pytest_agentbench.cli.report_options import REPORT, find_report
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.terminal_text import count_text, visible

if TYPE_CHECKING:
    from pytest_agentbench.cli.reviewing import Reviewable
    from pytest_agentbench.records.case import Case
    from pytest_agentbench.reports.human_agreement import Label


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "review",
        help="label judged runs as passed or failed, to compare judges with people",
        description="Show one judged run after the other, without its model and its verdict, and ask whether it "
        "passed. Each answer is appended to a file at once. A labelled run is shown again only if the judge or the "
        "rubric has changed. Sessions, and agentbench report --human, compare judges with the file.",
    )
    parser.add_argument(
        "report",
        nargs="?",
        type=Path,
        default=REPORT,
        metavar="REPORT.json",
        help=f"the report, or its folder (default: {REPORT})",
    )
    parser.add_argument("--annotator", type=_parse_name, metavar="NAME", help="who answers (default: the user's name)")
    parser.add_argument("--sample", type=_parse_positive, metavar="N", help="only N of the runs, drawn at random")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="another order, another sample (default: 0)")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        dest="human",
        metavar="PATH",
        help="the file of labels (default: human.jsonl, where sessions that are started here look for it)",
    )
    parser.add_argument("--runs", type=Path, metavar="DIR", help="the runs' output folder (default: the report's)")
    parser.add_argument(
        "--cases", type=Path, action="append", metavar="PATH", help="a folder of cases (default: .; repeatable)"
    )


def run(args: argparse.Namespace) -> int:
    """Ask for labels until no run is unlabelled, the input ends or the annotator quits."""
    from pytest_agentbench.cli.labels import find_user_name, require_plain
    from pytest_agentbench.cli.reviewing import Reviewer, select_runs
    from pytest_agentbench.reports.human_agreement import read_labels
    from pytest_agentbench.reports.reading import read_report
    from pytest_agentbench.reports.rows import HUMAN_FILE

    path = args.human or Path(HUMAN_FILE)
    annotator = args.annotator or find_user_name()
    if annotator is None:
        raise ConfigError("this user has no name; name the person who answers: --annotator NAME")
    source = find_report(args.report)
    report = read_report(source)
    require_plain(path)
    labels = read_labels(path) if path.exists() else []
    found = select_runs(report, _read_cases(args.cases or [Path()]), sample=args.sample, seed=args.seed)
    labels_by_run = _group_labels(annotator, labels)
    todo = [each for each in found.runs if not _has_said(each, labels_by_run)]
    terminal = Standard()
    terminal.write_line(_describe_begin(found.runs, todo, annotator))
    if found.without_case:
        runs = count_text(found.without_case, "run")
        why = "whose case is missing or has changed (run it again)"
        terminal.write_line(f"left out: {runs} {why}", yellow=True)
    count = Reviewer(path, annotator, args.runs or source.parent, terminal).ask(todo)
    if count:
        terminal.write_line(f"{count_text(count, 'label')} added to {path}")
    return 0


def _describe_begin(runs: list[Reviewable], todo: list[Reviewable], annotator: str) -> str:
    if not runs:
        return "no run to review: a model must have judged it, and its case must be unchanged"
    text = f"{count_text(len(todo), 'run')} to review"
    if done := len(runs) - len(todo):
        text += f"; {annotator} has labelled {done} before"
    return text


def _group_labels(annotator: str, labels: list[Label]) -> dict[str, list[Label]]:
    """Return an annotator's labels by run."""
    labels_by_run: dict[str, list[Label]] = defaultdict(list)
    for label in labels:
        if label.annotator == annotator:
            labels_by_run[label.run_id].append(label)
    return labels_by_run


def _has_said(run: Reviewable, labels_by_run: Mapping[str, list[Label]]) -> bool:
    mine = labels_by_run.get(run.row["run_id"], ())
    # A label belongs to the judges and the rubric of its time: after a change of either the run is shown
    # again.
    return all(any(label.is_of(judged) for label in mine) for judged in run.row["judged"])


def _parse_name(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a name")
    return text.strip()


def _read_cases(paths: list[Path]) -> Iterator[Case]:
    """Yield the cases below the paths.

    Errors are printed on stderr: runs of the other cases can be reviewed.
    """
    from pytest_agentbench.cli.list import cases_below
    from pytest_agentbench.cli.places import require_existing

    problems: list[str] = []
    yield from cases_below(require_existing(paths), problems)
    for problem in problems:
        print(visible(problem), file=sys.stderr)


def _parse_positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a whole number from 1")
    return int(text)
