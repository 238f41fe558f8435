"""One job from start to verdict: what the store has of it is taken from there, and only the rest is made."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from pytest_agentbench.engine.evaluate import evaluate
from pytest_agentbench.engine.identity import verdict_identity
from pytest_agentbench.engine.job import Job, Result
from pytest_agentbench.engine.logs import RUN_LOGS
from pytest_agentbench.engine.raised import as_raised
from pytest_agentbench.engine.run import make_run
from pytest_agentbench.engine.services import Services
from pytest_agentbench.engine.subject import Subject, subject_of
from pytest_agentbench.engine.verdict import require_decision
from pytest_agentbench.errors import ProviderError
from pytest_agentbench.records import Case, RunArtifact


async def execute(services: Services, job: Job, agent: Any) -> Result:
    """Runs the job with the fixture's value `agent` and evaluates it. Never raises but when it is cancelled.

    Everything but the verdict on the agent becomes `Result.error`: pytest raises it in the item's setup.
    """
    result = Result(runner=agent)
    RUN_LOGS.set(result.logs)
    begun = time.perf_counter()
    try:
        result.case = case = job.case()
        if not job.by_hand:
            require_decision(case, job.plan.evaluation_profile)
        subject = subject_of(services, job, case, agent)
        if not _reuse(services, job, case, subject, result):
            async with job.plan.lane.claim(subject.fingerprint):
                await _complete(services, job, case, subject, result)
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise
        result.error = RuntimeError("the agent raised CancelledError")
    except BaseException as error:  # noqa: BLE001  # whatever it is, it is this item's
        result.error = as_raised(error)
    result.seconds = result.seconds or time.perf_counter() - begun
    return result


async def _complete(services: Services, job: Job, case: Case, subject: Subject, result: Result) -> None:
    """Makes what the store lacks. The lock is held: what another session made meanwhile is there by now."""
    if _reuse(services, job, case, subject, result):
        return
    if result.artifact is None:
        await make_run(services, job, case, subject, result)
    _raise_failure(case, result.artifact)
    await evaluate(services, job, case, result)


def _reuse(services: Services, job: Job, case: Case, subject: Subject, result: Result) -> bool:
    """Fills in the stored run and the stored verdict on it; whether both are there."""
    if not services.reuse_runs:
        return False
    lane = job.plan.lane
    found = lane.find_run(case.case_id, job.repetition, subject.fingerprint)
    if found is None or not _counts(job, case, found[0]):
        return False
    result.artifact, result.path = artifact, _ = found
    result.reused, result.seconds = True, artifact.duration_seconds
    if services.reuse_evaluations:
        result.evaluation = lane.find_evaluation(artifact, verdict_identity(services, job, case, artifact))
    result.evaluation_reused = result.evaluation is not None
    return result.evaluation_reused


def _counts(job: Job, case: Case, artifact: RunArtifact) -> bool:
    """Whether a stored run is a result: one that ended otherwise than it should is made again, unless asked for."""
    return (
        artifact.status == "success"
        or artifact.status in case.expects_status
        or job.plan.run_profile.reuse_unsuccessful
    )


def _raise_failure(case: Case, artifact: RunArtifact | None) -> None:
    """Raises the ProviderError that a run ended with, unless the case expects it."""
    if artifact is None or artifact.status != "provider_error" or artifact.status in case.expects_status:
        return
    assert artifact.error is not None
    raise ProviderError(artifact.error.message, code=artifact.error.code, retryable=artifact.error.retryable)
