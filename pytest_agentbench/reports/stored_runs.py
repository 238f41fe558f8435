"""The stored run and verdict of a report's row. The report may be a stranger's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pytest_agentbench.bounded.folders import lies_below
from pytest_agentbench.errors import InfrastructureError
from pytest_agentbench.records.evaluation import Evaluation
from pytest_agentbench.records.run import RunArtifact
from pytest_agentbench.reports.rows import Row
from pytest_agentbench.store.documents import load_evaluation, load_run
from pytest_agentbench.store.output_folder import DATABASE

_Record = TypeVar("_Record", RunArtifact, Evaluation)


@dataclass(frozen=True)
class StoredRun:
    """A run and its verdict, None if the row names none or it cannot be read. `problems` are sentences with reasons."""

    run: RunArtifact | None
    evaluation: Evaluation | None
    problems: tuple[str, ...] = ()


def find_output(report: Path) -> Path:
    """Return the output folder of a report, which `--agentbench-json` may have put elsewhere."""
    if (report.parent / DATABASE).exists():
        return report.parent
    return Path("outputs")


def load_stored_run(row: Row, output: Path) -> StoredRun:
    """Return the run and the verdict that a row names, if they are inside of the output folder."""
    problems: list[str] = []
    return StoredRun(
        _load(output, row.get("artifact"), load_run, problems),
        _load(output, row.get("evaluation"), load_evaluation, problems),
        tuple(problems),
    )


def _load(output: Path, path: str | None, load: Callable[[Path, str], _Record], problems: list[str]) -> _Record | None:
    try:
        if path is not None and lies_below(str(output), path):
            return load(output, path)
    except (InfrastructureError, ValueError) as error:
        problems.append(str(error))
    return None
