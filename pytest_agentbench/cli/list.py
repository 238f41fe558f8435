"""`agentbench list [PATH ...]`: print the cases with their runners and their verdicts' sources."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.cli.output import printable
from pytest_agentbench.errors import CodeNotRun, ConfigError
from pytest_agentbench.terminal_text import count_text

if TYPE_CHECKING:
    from pytest_agentbench.config.roots import ConfigRoot
    from pytest_agentbench.records.case import Case


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "list",
        help="show the cases of a folder",
        description="Show the cases below the paths: id, tags, runner, checks and metrics, file. A table on a "
        "terminal, else one case a line, its fields separated by tabs.",
    )
    parser.add_argument("paths", nargs="*", type=Path, default=[Path()], metavar="PATH", help="default: .")
    parser.add_argument("--json", action="store_true", help="print a JSON list instead")
    parser.add_argument(
        "--check", action="store_true", help="grade each case's own answer by its metrics, and warn of those that fail"
    )
    parser.add_argument("--strict", action="store_true", help="with --check: exit status 1 if an answer fails")


def run(args: argparse.Namespace) -> int:
    """Print the cases; problems go to stderr and make the exit status 1."""
    from pytest_agentbench.cli.places import require_existing

    if args.strict and not args.check:
        raise ConfigError("--strict: has no effect without --check; leave it out, or add that")
    problems: list[str] = []
    cases = cases_below(require_existing(args.paths), problems)
    if args.check:
        cases = _check_golds(cases, problems, strict=args.strict)
    rows = map(_make_row, cases)
    if args.json:
        print(json.dumps(list(rows), indent=2, ensure_ascii=False))
    elif sys.stdout.isatty():
        _print_table(list(rows))
    else:
        for row in rows:
            texts = (",".join(value) if isinstance(value, list) else str(value) for value in row.values())
            print("\t".join(map(printable, texts)))
    for problem in problems:
        print(problem, file=sys.stderr)
    return int(bool(problems))


def _check_golds(cases: Iterator[Case], problems: list[str], *, strict: bool) -> Iterator[Case]:
    """Yield the cases, then warn of answers that fail by their own metrics; `strict`: they are problems."""
    from pytest_agentbench.cli.findings import find_problems
    from pytest_agentbench.engine.services import build_registry
    from pytest_agentbench.metrics.gold_checks import GoldTest

    golds = GoldTest(build_registry().metrics)
    for case in cases:
        golds.add(case)
        yield case
    if strict:
        problems += golds.problems()
        return
    for problem in golds.problems():
        for finding in find_problems(problem, is_error=False):
            print(finding.line, file=sys.stderr)


def cases_below(paths: list[Path], problems: list[str]) -> Iterator[Case]:
    """Yield the cases of files and folders. Errors of files that cannot be loaded are added to `problems`."""
    from pytest_agentbench.cli.places import list_case_files, session_roots
    from pytest_agentbench.cli.stand_ins import known_from_conftests

    roots = session_roots(paths)
    with known_from_conftests(paths, roots):
        for place in paths:
            try:
                for path in list_case_files(place):
                    yield from _read_cases(path, roots.of(path), problems)
            except ConfigError as error:  # of folders that cannot be read
                problems.append(str(error))


def _read_cases(path: Path, root: ConfigRoot, problems: list[str]) -> Iterator[Case]:
    from pytest_agentbench.sources.case_source import BadRow, SourceRequest
    from pytest_agentbench.sources.discovery import open_source

    try:
        opened = open_source(path, SourceRequest(root))
        if opened.is_remote:
            print(f"{path}: its rows are not listed: nothing is downloaded here", file=sys.stderr)
            return
        for row in itertools.chain(opened.problems(), opened.rows()):
            if isinstance(row, BadRow):
                problems.append(row.message)
            else:
                yield row.make()
    except CodeNotRun as error:
        print(error, file=sys.stderr)
    except ConfigError as error:
        problems.append(str(error))


def _make_row(case: Case) -> dict[str, Any]:
    here = Path.cwd()
    path = case.path.relative_to(here) if case.path.is_relative_to(here) else case.path
    return {
        "case_id": case.case_id,
        "tags": list(case.tags),
        "runner": case.runner.type,
        "decided_by": decided_by(case),
        "path": str(path),
        "line": case.line,
    }


def decided_by(case: Case) -> list[str]:
    """Return the names of the checks, metrics, graders and judges that can fail the case, with their thresholds."""
    from pytest_agentbench.cli.additions import additions_for

    if own := [name for part in case.case_parts for name in part.deciders]:
        return own
    expectations = case.expectations.hard_expectations or case.expectations.soft_expectations
    deciders = [check.kind for check in case.checks] + ["verify"] * bool(case.verify)
    deciders += [f"{metric.name}>={metric.threshold:g}" for metric in case.metrics if metric.threshold is not None]
    # Parts of ours name what decides in `deciders`: their graders need not be imported
    if any(not type(part).__module__.startswith("pytest_agentbench.") for part in case.case_parts):
        from pytest_agentbench.engine.grading import list_deciding_graders

        deciders += list_deciding_graders(case)
    if case.rubric is not None or expectations or any(part.measure for part in case.case_parts):
        deciders.append("judge")
    if deciders and case.thresholds is not None:  # over the repetitions, which something has to decide
        deciders += [f"{name}>={value:g}" for name, value in case.thresholds.model_dump(exclude_none=True).items()]
    if deciders:
        return list(dict.fromkeys(deciders))
    if case.report_only:
        return ["report only"]
    if "graders" in additions_for(case.path.parent):
        return ["nothing unless a plugin's grader"]
    return ["nothing"]


def _print_table(rows: list[dict[str, Any]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title, style in (("case", "bold"), ("tags", "cyan"), ("runner", ""), ("decided by", "green")):
        table.add_column(title, style=style, overflow="fold")
    for row in rows:
        texts = (row["case_id"], " ".join(row["tags"]), row["runner"], ", ".join(row["decided_by"]))
        # As Text: rich would read brackets in ids as its markup.
        table.add_row(*(Text(printable(text)) for text in texts))
    console = Console()
    console.print(table)
    console.print(count_text(len(rows), "case"))
