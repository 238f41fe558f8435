"""Command lint: find problems in the files of a benchmark of research reports."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum, isfinite
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_agentbench.bounded.json_files import BadItem, read_items
from pytest_agentbench.cli.output import printable, refuse_usage
from pytest_agentbench.cli.places import require_existing
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.research.annotations import TokenPrice
from pytest_agentbench.packs.research.commands import (
    ANNOTATIONS,
    CRITERIA,
    QUERIES,
    RAW_DATA,
    REFERENCES,
    add,
    add_config,
    add_tasks,
)
from pytest_agentbench.packs.research.config import PoetConfig, read_poet_config
from pytest_agentbench.packs.research.criteria import find_problems
from pytest_agentbench.packs.research.lint_rows import (
    Finding,
    Join,
    Named,
    Table,
    annotation_findings,
    findings_of,
    join_findings,
    lacking_findings,
    language_findings,
    metrics_findings,
    read_linted,
    read_table,
    row_findings,
    same_articles,
    unknown_findings,
)
from pytest_agentbench.packs.research.lint_words import swapped_findings
from pytest_agentbench.packs.research.race_judging import normalise_text
from pytest_agentbench.packs.research.records import RACE_DIMENSIONS, QueryRow, RaceCriteria, ReferenceRow, ReportRow
from pytest_agentbench.terminal_text import count_text

if TYPE_CHECKING:
    from pytest_agentbench.packs.research.lint_rows import Severity


# Scores far from the others of their file, for a person to look at (seed 003, 结果交叉验证). The modified z-score
# of Iglewicz and Hoaglin (1993): `0.6745 |x - median| / MAD`, above 3.5 an outlier. If more than half of the
# scores are equal, and MAD therefore 0, `|x - median| / (1.2533 mean absolute deviation)` replaces it.


FEWEST = 10
"""Minimum number of scores for outliers."""
LIMIT = 3.5

SHARES = (
    *RACE_DIMENSIONS,
    "overall_score",
    "overall_poet_score",
    "efficiency_score",
    "quality_score",
    "strategic_score",
    "race_score",
    "fact_accuracy",
    "automation_rate",
)
"""Scores of result files that are 0-1."""
AMOUNTS = ("cost_saving_usd", "knowledge_units_created")


@dataclass(frozen=True, slots=True)
class ResultRow:
    """A row of a result file by its line."""

    line: int
    value: dict[str, Any]


def read_results(path: Path) -> list[ResultRow]:
    """Return the rows of `raw_results.jsonl` or of `<model>_poet_summary.json`. Raises ConfigError with every
    row that has no scores.
    """
    rows, problems = [], []
    for item in read_items(path, "results"):
        if isinstance(item, BadItem):
            problems.append(f"{path}:{item.line}:{item.column}: {item.reason}")
        elif not isinstance(item.value, dict) or not {*SHARES, *AMOUNTS} & item.value.keys():
            # Failed reports have rows with the reason in place of scores.
            if not _failed(item.value):
                problems.append(f"{path}:{item.line}:1: found no scores, expected a row of results")
        else:
            rows.append(ResultRow(item.line, item.value))
    if problems:
        raise ConfigError("\n".join(problems))
    return rows


def result_findings(path: Path, rows: Sequence[ResultRow]) -> Iterator[Finding]:
    """Yield rows that repeat, scores outside of 0-1, and outliers among the others."""
    lines: dict[str, int] = {}
    for row in rows:
        # Rows of RACE have `id`, rows of a summary `task_id`.
        name = str(row.value.get("id", row.value.get("task_id", f"line {row.line}")))
        first = lines.setdefault(name, row.line)
        if first != row.line:
            yield Finding(path, row.line, "error", "id", f"{name!r} of line {first} again", "one row for each")
    for name in (*SHARES, *AMOUNTS):
        numbers: list[tuple[int, float]] = []
        for row in rows:
            score = row.value.get(name)
            if score is None:
                continue
            if not _is_number(score) or (name in SHARES and not 0 <= score <= 1):
                expected = "a number from 0 to 1, or null" if name in SHARES else "a number, or null"
                yield Finding(path, row.line, "error", name, repr(score), expected)
            else:
                numbers.append((row.line, score))
        yield from _far(path, name, numbers)


def outliers(values: Sequence[float]) -> dict[int, float]:
    """Return the indexes of values whose modified z-score is above LIMIT, with it; [] for fewer than FEWEST values."""
    if len(values) < FEWEST:
        return {}
    middle = median(values)
    distances = [abs(value - middle) for value in values]
    # 0.6745 makes MAD comparable with a standard deviation, 1.2533 (the square root of pi / 2) the mean
    # deviation, which replaces it if more than half of the scores are equal.
    unit = median(distances) / 0.6745 or 1.253314 * fsum(distances) / len(distances)
    return {at: distance / unit for at, distance in enumerate(distances) if unit and distance / unit > LIMIT}


def _far(path: Path, name: str, numbers: Sequence[tuple[int, float]]) -> Iterator[Finding]:
    values = [value for _, value in numbers]
    for at, score in outliers(values).items():
        line, value = numbers[at]
        expected = f"about {median(values):.4g}, the median of {len(values)}"
        yield Finding(path, line, "review", name, f"{value:.4g} (modified z-score {score:.1f})", expected)


def _failed(row: Any) -> bool:
    """Return whether it is the row of a report without scores, which has the reason then."""
    return isinstance(row, dict) and any(key.endswith("_error") for key in row)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


R = TypeVar("R", QueryRow, RaceCriteria, ReferenceRow, ReportRow)


@dataclass(frozen=True, slots=True)
class Files:
    """Files to lint; None or empty for missing ones. `annotations` is a folder.

    `domain_map` maps topics to domains of the annotations.
    """

    queries: Path | None = None
    criteria: Path | None = None
    references: Path | None = None
    annotations: Path | None = None
    config: Path | None = None
    reports: tuple[Path, ...] = ()
    results: tuple[Path, ...] = ()
    domain_map: Mapping[str, str] = field(default_factory=dict)

    @property
    def paths(self) -> tuple[Path, ...]:
        """Return all of them."""
        single = (self.queries, self.criteria, self.references, self.annotations, self.config)
        return (*(path for path in single if path is not None), *self.reports, *self.results)


@dataclass(slots=True)
class Linted:
    """Findings, and how many rows were read of how many files."""

    files: int = 0
    rows: int = 0
    findings: list[Finding] = field(default_factory=list)


def lint(files: Files) -> Linted:
    """Return everything that is wrong with the files, in the order of the files and of their lines."""
    linted = Linted(len(files.paths))
    queries = _table(files.queries, QueryRow, linted)
    criteria = _table(files.criteria, RaceCriteria, linted)
    references = _table(files.references, ReferenceRow, linted)
    reports = [report for path in files.reports if (report := _table(path, ReportRow, linted))]
    if criteria is not None:
        linted.findings += _criteria_findings(criteria)
        linted.findings += swapped_findings(criteria, queries)
    tables: list[Named] = [*([queries] if queries else []), *reports]
    for table in tables:
        linted.findings += language_findings(table)
    linted.findings += same_articles([*reports, *([references] if references else [])])
    for join in _joins(queries, criteria, references, reports):
        linted.findings += join_findings(join)
    _annotated(files, tables, reports, linted)
    for path in files.results:
        _results(path, linted)
    order = {path: number for number, path in enumerate(files.paths)}
    # A row of criteria may be found by itself and against its query: the same finding twice is one.
    unique = dict.fromkeys(linted.findings)
    linted.findings = sorted(unique, key=lambda item: (order.get(item.path, len(order)), str(item.path), item.line))
    return linted


def _table(path: Path | None, record: type[R], linted: Linted) -> Table[R] | None:
    if path is None:
        return None
    try:
        table = read_table(path, record)
    except ConfigError as error:
        linted.findings += findings_of(str(error), path)
        return None
    linted.rows += len(table)
    linted.findings += row_findings(table)
    return table


def _criteria_findings(table: Table[RaceCriteria]) -> Iterator[Finding]:
    for row in table.rows:
        for problem in find_problems(row.value):
            yield Finding(table.path, row.line, "error", *problem)
        dimensions: dict[str, str] = {}
        for name, criteria in row.value.criterions.items():
            for criterion in criteria:
                first = dimensions.setdefault(normalise_text(criterion.criterion), name)
                if first != name:
                    found = f"{criterion.criterion!r}, which {first} has too"
                    yield Finding(table.path, row.line, "warning", f"criterions.{name}", found, "one dimension for it")


def _joins(
    queries: Table[QueryRow] | None,
    criteria: Table[RaceCriteria] | None,
    references: Table[ReferenceRow] | None,
    reports: Sequence[Table[ReportRow]],
) -> Iterator[Join]:
    """Yield the joins of files.

    Reports need all that is given; criteria and references are of queries, and queries want them.
    """
    partners_by_name: dict[str, Table[Any] | None] = {"query": queries, "criteria": criteria, "reference": references}
    for table in reports:
        for kind, partners in partners_by_name.items():
            if partners is not None:
                # Criteria of queries without a report here are no mistake: the file serves many models.
                yield Join(table, partners, kind, "error", both_ways=kind == "query")
    if queries is not None:
        if criteria is not None:
            yield Join(criteria, queries, "query", "warning", both_ways=True)
        if references is not None:
            yield Join(references, queries, "query", "warning", both_ways=True)


def _annotated(
    files: Files,
    named: Sequence[Named],
    reports: Sequence[Table[ReportRow]],
    linted: Linted,
) -> None:
    config = PoetConfig()
    if files.config is not None:
        try:
            config = read_poet_config(files.config)
        except ConfigError as error:
            linted.findings += findings_of(str(error), files.config)
    prices: Mapping[str, TokenPrice] = {}
    if (annotations := read_linted(files.annotations, config, linted.findings)) is not None:
        prices = annotations.prices
        linted.findings += annotation_findings(annotations)
        for table in named:
            linted.findings += unknown_findings(table, annotations, config, files.domain_map)
        for table in named[:1] if files.queries else named:  # queries tell it of their reports
            linted.findings += lacking_findings(table)
    for reported in reports:
        linted.findings += metrics_findings(reported, prices)


def _results(path: Path, linted: Linted) -> None:
    try:
        rows = read_results(path)
    except ConfigError as error:
        linted.findings += findings_of(str(error), path)
    else:
        linted.rows += len(rows)
        linted.findings += result_findings(path, rows)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "lint",
        description="Check queries, criteria, references, annotations, reports and results, alone and together. Each "
        "finding is a line file:line: severity: field: found ..., expected ...; an error keeps a row from being scored "
        "or scores it wrongly, a warning is probably wrong, a review is for a person to look at. Without options it "
        "checks the existing files below data/. The exit status is 1 if there is an error.",
    )
    add_tasks(parser)
    add(parser, "--criteria_file", type=Path, metavar="FILE", help=f"(default: {CRITERIA})")
    add(parser, "--reference_file", type=Path, metavar="FILE", help=f"(default: {REFERENCES})")
    reports = parser.add_mutually_exclusive_group()
    add(reports, "--input_file", type=Path, action="append", metavar="FILE", help="reports; may be repeated")
    add(reports, "--raw_data_dir", type=Path, metavar="DIR", help=f"every file of reports (default: {RAW_DATA})")
    results = "raw_results.jsonl or <model>_poet_summary.json, to find scores far from the others; may be repeated"
    add(parser, "--results", type=Path, action="append", default=[], metavar="FILE", help=results)
    add_config(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def run(args: argparse.Namespace) -> int:
    """Print every finding and a summary."""

    files = _files(args)
    if not files.paths:
        places = ", ".join(map(str, (QUERIES, CRITERIA, REFERENCES, ANNOTATIONS, RAW_DATA)))
        return refuse_usage("research lint", f"found no file of {places}; name one, such as --query-file FILE")
    linted = lint(files)
    counts = Counter(finding.severity for finding in linted.findings)
    if args.json:
        _print_json(linted, counts)
    else:
        for finding in linted.findings:
            print(printable(str(finding)))
        totals = f"{count_text(linted.files, 'file')}, {count_text(linted.rows, 'row')}"
        problems = f"{count_text(counts['error'], 'error')}, {count_text(counts['warning'], 'warning')}"
        print(f"{totals}: {problems}, {counts['review']:,} to review")
    if counts["error"]:
        return 1
    return 0


def _files(args: argparse.Namespace) -> Files:
    """Return the files in the options, else the existing files of the seed's layout. Raises ConfigError for missing
    ones.
    """
    reports, folder = tuple(args.input_file or ()), args.raw_data_dir
    if folder is not None:
        reports = _below(folder)
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
    require_existing([*files.paths, *filter(None, [folder])])
    if folder is not None and not reports:
        raise ConfigError(f"{folder}: found no file *.jsonl, expected one for each model")
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
    if path.exists():
        return path
    return None


def _below(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted(folder.glob("*.jsonl")))


def _print_json(linted: Linted, counts: Counter[Severity]) -> None:
    import json

    findings = [
        {
            "file": str(finding.path),
            "line": finding.line,
            "severity": finding.severity,
            "field": finding.field,
            "found": finding.found,
            "expected": finding.expected,
        }
        for finding in linted.findings
    ]
    totals = {"files": linted.files, "rows": linted.rows}
    severities = {"errors": counts["error"], "warnings": counts["warning"], "review": counts["review"]}
    print(json.dumps({**totals, **severities, "findings": findings}, indent=2, ensure_ascii=False))
