"""`agentbench research lint`: what is wrong with the files of a benchmark of research reports."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_agentbench.cli.printing import printable
from pytest_agentbench.cli.research.options import (
    ANNOTATIONS,
    CRITERIA,
    QUERIES,
    RAW_DATA,
    REFERENCES,
    add,
    add_config,
)
from pytest_agentbench.cli.research.valued import add_tasks

if TYPE_CHECKING:
    from pytest_agentbench.research.linting.files import Files, Linted
    from pytest_agentbench.research.linting.finding import Severity

_USAGE = 2


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command with its options."""
    parser = subparsers.add_parser(
        "lint",
        help="find what is wrong with the files of a benchmark",
        description="Check queries, criteria, references, annotations, reports and results, alone and together. Each "
        "finding is a line file:line: severity: field: found ..., expected ...; an error keeps a row from being scored "
        "or scores it wrongly, a warning is probably wrong, a review is for a person to look at. Without options the "
        "files below data/ that are there. The exit status is 1 if there is an error.",
    )
    add_tasks(parser)
    add(parser, "--criteria_file", type=Path, metavar="FILE", help=f"(default: {CRITERIA})")
    add(parser, "--reference_file", type=Path, metavar="FILE", help=f"(default: {REFERENCES})")
    reports = parser.add_mutually_exclusive_group()
    add(reports, "--input_file", type=Path, action="append", metavar="FILE", help="reports; may be repeated")
    add(reports, "--raw_data_dir", type=Path, metavar="DIR", help=f"every file of reports (default: {RAW_DATA})")
    results = "raw_results.jsonl or <model>_poet_summary.json, for scores that lie far from the others; may be repeated"
    add(parser, "--results", type=Path, action="append", default=[], metavar="FILE", help=results)
    add_config(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def run(args: argparse.Namespace) -> int:
    """Prints every finding and a summary."""
    from pytest_agentbench.research.linting.files import lint

    files = _files(args)
    if not files.paths:
        print(
            f"agentbench research lint: found none of {QUERIES}, {CRITERIA}, {REFERENCES}, {ANNOTATIONS}, "
            f"{RAW_DATA}; name what is to be checked, such as --query-file FILE",
            file=sys.stderr,
        )
        return _USAGE
    linted = lint(files)
    counts = Counter(each.severity for each in linted.findings)
    if args.json:
        _print_json(linted, counts)
    else:
        for finding in linted.findings:
            print(printable(str(finding)))
        print(
            f"{linted.files:,} file{'s' * (linted.files != 1)}, {linted.rows:,} row{'s' * (linted.rows != 1)}: "
            f"{counts['error']} error{'s' * (counts['error'] != 1)}, "
            f"{counts['warning']} warning{'s' * (counts['warning'] != 1)}, {counts['review']} to review"
        )
    return 1 if counts["error"] else 0


def _files(args: argparse.Namespace) -> Files:
    """What the options name, else what is there of the seed's layout. Raises ConfigError for what does not exist."""
    from pytest_agentbench.cli.places import existing
    from pytest_agentbench.errors import ConfigError
    from pytest_agentbench.research.linting.files import Files

    reports = tuple(args.input_file or ()) if args.raw_data_dir is None else _below(args.raw_data_dir)
    files = Files(
        queries=args.query_file,
        criteria=args.criteria_file,
        references=args.reference_file,
        annotations=args.annotation_dir,
        config=args.config,
        reports=reports,
        results=tuple(args.results),
        domain_map=dict(args.domain_map or ()),
    )
    existing([*files.paths, *([] if args.raw_data_dir is None else [args.raw_data_dir])])
    if args.raw_data_dir is not None and not reports:
        raise ConfigError(f"{args.raw_data_dir}: found no file *.jsonl, expected one for each model")
    if files.paths:
        return files
    return Files(
        queries=_there(QUERIES),
        criteria=_there(CRITERIA),
        references=_there(REFERENCES),
        annotations=_there(ANNOTATIONS),
        reports=_below(RAW_DATA),
        domain_map=files.domain_map,
    )


def _there(path: Path) -> Path | None:
    return path if path.exists() else None


def _below(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted(folder.glob("*.jsonl")))


def _print_json(linted: Linted, counts: Counter[Severity]) -> None:
    import json

    findings = [
        {
            "file": str(each.path),
            "line": each.line,
            "severity": each.severity,
            "field": each.field,
            "found": each.found,
            "expected": each.expected,
        }
        for each in linted.findings
    ]
    totals = {"files": linted.files, "rows": linted.rows}
    severities = {"errors": counts["error"], "warnings": counts["warning"], "review": counts["review"]}
    print(json.dumps({**totals, **severities, "findings": findings}, indent=2, ensure_ascii=False))
