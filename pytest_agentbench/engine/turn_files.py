"""Decide the checks of files at the end of each turn, and keep their verdicts with the run."""

from __future__ import annotations

from datetime import UTC, datetime

from pytest_agentbench.checks.base import CheckContext
from pytest_agentbench.checks.run import decide_own
from pytest_agentbench.checks.turns import list_file_checks, name_file_check
from pytest_agentbench.engine.attempt import Attempt
from pytest_agentbench.records.run import RunArtifact
from pytest_agentbench.runners.base import RunContext


async def decide_turn_files(attempt: Attempt, context: RunContext, number: int) -> None:
    """Add the verdicts of the case's checks of files after this turn to the run's. Raises SandboxError."""
    assert context.turn_files is not None
    await context.bring_back()
    seen = CheckContext(
        attempt.case,
        _describe_run(attempt, context),
        context.made_workspace,
        attempt.services.registry.metrics,
        in_thread=attempt.services.threads.run,
    )
    context.turn_files[str(number)] = {
        name_file_check(check): (await decide_own(check, seen))._asdict()
        for check in list_file_checks(attempt.case, number)
    }


def _describe_run(attempt: Attempt, context: RunContext) -> RunArtifact:
    """Return what is known of the run before its end."""
    return RunArtifact(
        run_id="unfinished",
        case_id=attempt.case.case_id,
        runner_type=attempt.run_plan.runner_type,
        model={},
        repetition=attempt.job.repetition,
        status="success",
        started_at=datetime.now(UTC),
        duration_seconds=context.trace.seconds,
    )
