"""Where the texts of research reports stand: read once to tell what they say, and again when a report is scored."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from pytest_agentbench.bounded import open_file
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records import ExecutionMetrics, RaceCriteria, ReferenceRow, ReportRow, ResearchTask, RowPlace
from pytest_agentbench.sources.json_items import parse_value
from pytest_agentbench.sources.research_rows import GoodRow

R = TypeVar("R", ReportRow, RaceCriteria, ReferenceRow)

_RECORDED = frozenset({"task_metadata", "interaction_metrics", "quality_metrics"})
"""Further fields of a report's row that its interaction is told by."""


@dataclass(frozen=True, slots=True)
class Material:
    """The texts of a report. `article`, `metrics` and further fields of its `row` are of a stored one."""

    article: str | None
    metrics: ExecutionMetrics
    row: Mapping[str, Any]
    criteria: RaceCriteria | None
    reference: str | None


def read_material(task: ResearchTask) -> Material:
    """The texts of a report. Raises ConfigError where a row is not what it was when it was collected."""
    report = _read(task.article, ReportRow, said_report)
    criteria = _read(task.criteria, RaceCriteria, said_criteria)
    reference = _read(task.reference, ReferenceRow, said_reference)
    return Material(
        article=report.article if report is not None else None,
        metrics=(report.execution_metrics if report is not None else None) or ExecutionMetrics(),
        row=(report.model_extra if report is not None else None) or {},
        criteria=criteria,
        reference=reference.article if reference is not None else None,
    )


def place(path: Path, row: GoodRow[Any], said: str) -> RowPlace:
    """Where a row of a file stands that says `said`."""
    digest = sha256(said.encode("utf-8", "surrogatepass")).hexdigest()
    return RowPlace(path, row.line, row.offset, row.size, digest)


def said_report(row: ReportRow) -> str:
    """What of a report can change its scores."""
    metrics = row.execution_metrics.model_dump(mode="json") if row.execution_metrics is not None else None
    further = {name: value for name, value in (row.model_extra or {}).items() if name in _RECORDED}
    return json.dumps([row.article, metrics, further], sort_keys=True)


def said_criteria(row: RaceCriteria) -> str:
    """The same of criteria."""
    criteria = {
        name: [[each.criterion, each.explanation, each.weight] for each in group]
        for name, group in row.criterions.items()
    }
    return json.dumps([row.dimension_weight, criteria], sort_keys=True)


def said_reference(row: ReferenceRow) -> str:
    """The same of a reference report."""
    return row.article


def _read(place: RowPlace | None, record: type[R], said: Callable[[R], str]) -> R | None:
    """The row at a place, None without one. Raises ConfigError where it is another one by now."""
    if place is None:
        return None
    try:
        with open_file(place.path, limit=None) as file:
            file.seek(place.offset)
            row = record.model_validate(parse_value(file.read(place.size)))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{place}: the row cannot be read any more; run again: {error}") from error
    if sha256(said(row).encode("utf-8", "surrogatepass")).hexdigest() != place.digest:
        raise ConfigError(f"{place}: the file was changed while the session ran; run again")
    return row
