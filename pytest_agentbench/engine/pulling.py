"""What the output folder lacks of a job and the shared store has: another machine has paid for it."""

from __future__ import annotations

from collections.abc import Callable

from pytest_agentbench.engine.identity import verdict_identity
from pytest_agentbench.engine.job import Job, Result
from pytest_agentbench.engine.services import Services
from pytest_agentbench.engine.subject import Subject
from pytest_agentbench.engine.taping import records_run, records_verdict
from pytest_agentbench.records import Case, RunArtifact
from pytest_agentbench.store import pull_evaluation, pull_run


async def pull(
    services: Services,
    job: Job,
    case: Case,
    subject: Subject,
    result: Result,
    counts: Callable[[RunArtifact], bool],
) -> bool:
    """Brings a run that counts, unless `result` has one, and the verdict on it into the output folder; whether any did.

    Raises UnreachableError where the store does not answer: what it may hold should not be paid for again.
    """
    lane = job.plan.lane
    if lane.remote is None or not services.reuse_runs or records_run(result.tape):
        return False
    artifact = result.artifact
    if artifact is None:
        unsuccessful = bool(case.expects_status) or job.plan.run_profile.reuse_unsuccessful
        key = (case.case_id, job.repetition, subject.fingerprint, subject.fingerprint_input)
        artifact = await pull_run(lane, *key, counts=counts, unsuccessful=unsuccessful)
    if artifact is None:
        return False
    pulled = artifact is not result.artifact
    if services.reuse_evaluations and not records_verdict(services, job, result.tape):
        pulled |= await pull_evaluation(lane, artifact, verdict_identity(services, job, case, artifact))
    return pulled
