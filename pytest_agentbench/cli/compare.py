"""`agentbench compare A [B]`: whether B is better or worse than A, or a column of A than another, case by case."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.cli.output import Standard

if TYPE_CHECKING:
    from pytest_agentbench.reports.comparison.results import Comparison


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "compare",
        help="compare two reports, or models and variants of one, case by case",
        description="Compare the report.json B with A, its baseline: pass rates and scores of the cases that both "
        "have, regressions and improvements, and their significance. Exit status: 1 if B is significantly worse, "
        "if a case that must pass failed in B, or if too few cases could be compared; else 0. Without B, compare the "
        "variants or models of A with their reference, as its session did; the exit status is then 0.",
    )
    parser.add_argument(
        "baseline", metavar="A", help="REPORT.json, or REPORT.json#NAME for one of its models, columns or variants"
    )
    parser.add_argument(
        "current", metavar="B", nargs="?", help="the report to compare, in the same form; default: A's own columns"
    )
    parser.add_argument(
        "--max-regressions", type=_parse_count, metavar="N", help="exit status 1 also if more than N cases are worse"
    )
    parser.add_argument("--json", action="store_true", help="print the comparison as JSON instead")
    parser.add_argument("--html", type=Path, metavar="PATH", help="write B's page with the comparison here")
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="write the comparison as Markdown here")


def run(args: argparse.Namespace) -> int:
    """Print the comparison, or write it where asked to."""
    if args.current is None:
        return _compare_columns(args)
    from pytest_agentbench.reports.comparison.campaigns import read_campaign, split_report_name
    from pytest_agentbench.reports.comparison.comparing import compare
    from pytest_agentbench.reports.comparison.wording import write_comparison, write_failures

    here = Path.cwd()
    baseline, _ = read_campaign(args.baseline, here)
    current, report = read_campaign(args.current, here)
    comparison = compare(baseline, current, args.max_regressions, _find_min_completion(report))
    incomplete = comparison.incomplete if len(current.models) == 1 else []
    failures = [*comparison.failures, *incomplete, *_list_case_failures(comparison, report)]
    document = {**comparison.as_dict(), "failures": failures}
    if args.markdown is not None:
        from pytest_agentbench.bounded.writing import write_text
        from pytest_agentbench.reports.ci.document import comparison_markdown
        from pytest_agentbench.reports.ci.sections import Places

        write_text(args.markdown, comparison_markdown(document, report, Places(here)))
    if args.html is not None:
        from pytest_agentbench.reports.html.page import write_page
        from pytest_agentbench.reports.report import complete_report

        write_page(complete_report(report, split_report_name(args.current)[0]), args.html, comparison=document)
    if args.json:
        print(json.dumps(document, indent=2, allow_nan=False))
    else:
        terminal = Standard()
        write_comparison(terminal, document, full=True)
        write_failures(terminal, failures)
    return int(bool(failures))


def _compare_columns(args: argparse.Namespace) -> int:
    """Print each column of one report against its reference. Raises ConfigError if the report has one column."""
    from pytest_agentbench.errors import ConfigError
    from pytest_agentbench.reports.comparison.comparing import add_column_comparisons
    from pytest_agentbench.reports.comparison.wording import columns_title, write_compared
    from pytest_agentbench.reports.reading import read_report
    from pytest_agentbench.reports.report import complete_report
    from pytest_agentbench.terminal_text import visible_line

    for name in ("max_regressions", "html", "markdown"):
        if getattr(args, name) is not None:
            raise ConfigError(f"--{name.replace('_', '-')}: found one report, expected two: agentbench compare A B")
    path = Path(args.baseline)
    report = complete_report(read_report(path), path)
    report.pop("column_comparisons", None)  # made again, because reports of shards and older ones have none
    add_column_comparisons(report)
    compared = report.get("column_comparisons")
    if not compared:
        raise ConfigError(
            f"{args.baseline}: found no two columns with common cases, expected models or variants to compare; or name "
            "a second report"
        )
    if args.json:
        print(json.dumps(compared, indent=2, allow_nan=False))
        return 0
    terminal = Standard()
    terminal.write_line(visible_line(columns_title(report)), bold=True)
    write_compared(terminal, compared, full=True)
    return 0


def _find_min_completion(report: dict[str, Any]) -> float:
    """Return the minimum completion of the session's gate, or the default one."""
    from pytest_agentbench.reports.gate import MIN_COMPLETION

    share: float | None = report["session"]["gate"]["min_completion"]
    return MIN_COMPLETION if share is None else share


def _list_case_failures(comparison: Comparison, report: dict[str, Any]) -> list[str]:
    """Return sentences on cases of the compared models that must pass and did not, or miss their own threshold."""
    from pytest_agentbench.reports.gate import case_failures
    from pytest_agentbench.reports.report import build_report
    from pytest_agentbench.reports.table import column_of

    models = {model.model_id for model in comparison.models}
    # Only these rows: the figures of all others would be made for nothing.
    strict = [row for row in report["runs"] if column_of(row) in models and (row["must_pass"] or row["thresholds"])]
    return case_failures(build_report(strict, {})["cases"])


def _parse_count(text: str) -> int:
    from pytest_agentbench.options import parse_count

    return parse_count(text)
