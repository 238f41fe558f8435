"""Runs that ended, handed on to OpenTelemetry where the session is asked for spans."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.reports.telemetry import is_disabled

if TYPE_CHECKING:
    from pytest_agentbench.collection.telling import Telling
    from pytest_agentbench.engine import Job, Result
    from pytest_agentbench.reports.telemetry import Telemetry
    from pytest_agentbench.store import Redactor


def send_spans(
    config: pytest.Config, session_id: str, redactor: Redactor, telling: Telling
) -> Callable[[Job, Result], None] | None:
    """What takes each job that has ended, on the engine's thread; None where OTEL_SDK_DISABLED switches spans off.

    Raises ConfigError where the SDK refuses what the OTEL_* variables say.
    """
    if is_disabled(os.environ):
        return None
    from pytest_agentbench.reports.telemetry import Telemetry

    worker = getattr(config, "workerinput", {}).get("workerid")
    where = f"OpenTelemetry, worker {worker}" if worker is not None else "OpenTelemetry"
    try:
        telemetry = Telemetry(session_id, redactor, lambda problem: telling.warn(f"{where}: {problem}"))
    except Exception as error:  # of any kind: the SDK, and what it loads by a name, read the variables
        raise ConfigError(f"the SDK refuses what OTEL_* variables say: {redactor.text(str(error))}") from error
    config.pluginmanager.register(telemetry, "agentbench-telemetry")

    def ended(job: Job, result: Result) -> None:
        try:
            _send(telemetry, job, result)
        except Exception as error:  # noqa: BLE001  # a run that is paid for never fails for its spans
            telling.warn(f"{where}: the spans of {job.case_id} cannot be made: {redactor.text(repr(error))}")

    return ended


def _send(telemetry: Telemetry, job: Job, result: Result) -> None:
    """What is new of the job: its run, or only a verdict on one that was made before."""
    artifact, evaluation = result.artifact, result.evaluation
    if artifact is None or result.not_run is not None:
        return
    if result.reused and (evaluation is None or result.evaluation_reused):
        return
    shown = job.plan.lane.shown
    telemetry.run(
        shown(artifact), evaluation and shown(evaluation), job.plan.model or job.plan.author, reused=result.reused
    )
