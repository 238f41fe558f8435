"""Rows that say themselves what decides them, decided by what also decides runs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pytest_agentbench.checks import CheckContext, run_checks
from pytest_agentbench.config import SecurityPolicy
from pytest_agentbench.metrics import METRICS
from pytest_agentbench.records import (
    Case,
    Check,
    CheckResult,
    FinalOutputEvent,
    Message,
    MetricSpec,
    RunArtifact,
    RunnerSpec,
)
from pytest_agentbench.sources import BenchmarkItem, Dataset, deciders

_RUNNER = "predictions"


def decide(dataset: Dataset, item: BenchmarkItem) -> tuple[tuple[Check, ...], tuple[MetricSpec, ...], str | None]:
    """Checks, metrics with their arguments from the row, and the reference. Raises ValueError for what is unusable."""
    metadata = item.metadata or {}
    row = {"id": item.id, "question": item.question, "answer": item.answer, "metadata": metadata}
    return deciders(dataset, row, metadata)


async def check_output(check: Check, item: BenchmarkItem, output: str, compat: Literal["v1"] | None) -> CheckResult:
    """What the check finds in a prediction. Never raises: its own error is an outcome."""
    case = Case(
        case_id=item.id,
        title=item.id,
        path=Path(item.id),
        runner=RunnerSpec(type=_RUNNER),
        messages=(Message(role="user", content=item.question),),
        checks=(check,),
        reference=item.answer,
    )
    artifact = RunArtifact(
        run_id=item.id,
        case_id=item.id,
        runner_type=_RUNNER,
        model={},
        repetition=1,
        status="success",
        started_at=datetime.now(UTC),
        duration_seconds=0.0,
        trace=(FinalOutputEvent(sequence=0, at=0.0, content=output),),
    )
    [result] = await run_checks(CheckContext(case, artifact, None, METRICS, compat), SecurityPolicy())
    return result
