"""All files of a benchmark, linted together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pytest_agentbench.config.poet_config import PoetConfig, read_poet_config
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records import QueryRow, RaceCriteria, ReferenceRow, ReportRow
from pytest_agentbench.research.criteria import problems_of
from pytest_agentbench.research.linting.annotating import (
    Named,
    annotation_findings,
    lacking_findings,
    read_linted,
    unknown_findings,
)
from pytest_agentbench.research.linting.finding import Finding, findings_of
from pytest_agentbench.research.linting.joins import Join, join_findings
from pytest_agentbench.research.linting.metrics import metrics_findings
from pytest_agentbench.research.linting.outliers import read_results, result_findings
from pytest_agentbench.research.linting.tables import (
    Table,
    language_findings,
    read_table,
    row_findings,
    same_articles,
)
from pytest_agentbench.research.race import plain

R = TypeVar("R", QueryRow, RaceCriteria, ReferenceRow, ReportRow)


@dataclass(frozen=True, slots=True)
class Files:
    """What is linted; None or empty for what there is not. `annotations` is a folder.

    `domain_map` says what annotations call a topic's domain.
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
        """All of them."""
        single = (self.queries, self.criteria, self.references, self.annotations, self.config)
        return (*(path for path in single if path is not None), *self.reports, *self.results)


@dataclass(slots=True)
class Linted:
    """The findings, and how many rows were read of how many files."""

    files: int = 0
    rows: int = 0
    findings: list[Finding] = field(default_factory=list)


def lint(files: Files) -> Linted:
    """Everything that is wrong with the files, in the order of the files and of their lines."""
    linted = Linted(len(files.paths))
    queries = _table(files.queries, QueryRow, linted)
    criteria = _table(files.criteria, RaceCriteria, linted)
    references = _table(files.references, ReferenceRow, linted)
    reports = [report for path in files.reports if (report := _table(path, ReportRow, linted))]
    if criteria is not None:
        linted.findings += _criteria_findings(criteria)
    asked: list[Named] = [*([queries] if queries else []), *reports]
    for table in asked:
        linted.findings += language_findings(table)
    linted.findings += same_articles([*reports, *([references] if references else [])])
    for join in _joins(queries, criteria, references, reports):
        linted.findings += join_findings(join)
    _annotated(files, asked, reports, linted)
    for path in files.results:
        _results(path, linted)
    order = {path: number for number, path in enumerate(files.paths)}
    unique = dict.fromkeys(linted.findings)
    linted.findings = sorted(unique, key=lambda each: (order.get(each.path, len(order)), str(each.path), each.line))
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
        for problem in problems_of(row.value):
            yield Finding(table.path, row.line, "error", *problem)
        seen: dict[str, str] = {}
        for name, criteria in row.value.criterions.items():
            for each in criteria:
                first = seen.setdefault(plain(each.criterion), name)
                if first != name:
                    found = f"{each.criterion!r}, which {first} has too"
                    yield Finding(table.path, row.line, "warning", f"criterions.{name}", found, "one dimension for it")


def _joins(
    queries: Table[QueryRow] | None,
    criteria: Table[RaceCriteria] | None,
    references: Table[ReferenceRow] | None,
    reports: Sequence[Table[ReportRow]],
) -> Iterator[Join]:
    """Reports need all that is given; criteria and references are of queries, and queries want them."""
    given: dict[str, Table[Any] | None] = {"query": queries, "criteria": criteria, "reference": references}
    for table in reports:
        for what, partners in given.items():
            if partners is not None:
                yield Join(table, partners, what, "error", both_ways=what == "query")
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
    annotations = None if files.annotations is None else read_linted(files.annotations, config, linted.findings)
    if annotations is not None:
        linted.findings += annotation_findings(annotations)
        for table in named:
            linted.findings += unknown_findings(table, annotations, config, files.domain_map)
        for table in named[:1] if files.queries else named:  # queries tell it of their reports
            linted.findings += lacking_findings(table)
    for reported in reports:
        linted.findings += metrics_findings(reported, {} if annotations is None else annotations.prices)


def _results(path: Path, linted: Linted) -> None:
    try:
        rows = read_results(path)
    except ConfigError as error:
        linted.findings += findings_of(str(error), path)
    else:
        linted.rows += len(rows)
        linted.findings += result_findings(path, rows)
