"""Execute one job from start to verdict: take what is stored here or in the shared store, make only the rest."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from pytest_agentbench.checks.hooks import require_hooks
from pytest_agentbench.engine.cassettes import (
    open_tape,
    records_run,
    records_verdict,
    replays_run,
    run_is_free,
    verdict_is_free,
)
from pytest_agentbench.engine.evaluation import asks_models, evaluate
from pytest_agentbench.engine.forecast import NOT_RUN, DryRun
from pytest_agentbench.engine.grading import graders_of
from pytest_agentbench.engine.job import Given, Job, Result
from pytest_agentbench.engine.run import make_run
from pytest_agentbench.engine.services import Services
from pytest_agentbench.engine.subject import Subject, measure_of, subject_of, verdict_identity
from pytest_agentbench.engine.user_code import RUN_LOGS, as_raised
from pytest_agentbench.engine.verdict import require_decision, wants_judge
from pytest_agentbench.engine.workspaces import restore_workspace
from pytest_agentbench.errors import ProviderError, UnreachableError, UnwritableError
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.run import RunArtifact
from pytest_agentbench.store.remote_results import pull_evaluation, pull_run, share_evaluation, share_run


async def pull(
    services: Services,
    job: Job,
    case: Case,
    subject: Subject,
    result: Result,
    counts: Callable[[RunArtifact], bool],
) -> bool:
    """Bring a run that counts, unless `result` has one, and the verdict on it into the output folder; whether any did.

    Raises UnreachableError where the store does not answer: what it may hold should not be paid for again.
    """
    lane = job.plan.lane
    if lane.remote is None or not services.rules.reuse_runs or records_run(result.tape):
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


async def execute(services: Services, job: Job, given: Given) -> Result:
    """Run the job with the fixtures' values `given` and evaluates it. Never raises but when it is cancelled.

    Everything but the verdict on the agent becomes `Result.error`: pytest raises it in the item's setup.
    """
    result = Result(runner=given)
    RUN_LOGS.set(result.logs)
    begun = time.perf_counter()
    try:
        result.case = case = job.case()
        graders = graders_of(case, services.registry.graders)
        if not job.by_hand:
            require_decision(case, job.plan.evaluation_profile, graders)
        for grader in graders:
            grader.require(services, case)
        subject = subject_of(services, job, case, given)
        result.tape = open_tape(services, job, case, given.agent, subject.servers)
        attempt = _Attempt(services, job, case, subject, result)
        if services.rules.dry_run is not None:
            await attempt.foresee(services.rules.dry_run)
        elif not await attempt.reuse():
            async with job.plan.lane.claim(subject.fingerprint):
                await attempt.complete()
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise
        result.error = RuntimeError("the agent raised CancelledError")
    except (UnwritableError, UnreachableError) as error:
        result.error = error
        services.rules.drain(str(error))  # whatever else is paid for could not be stored either, or is paid for already
    except BaseException as error:  # noqa: BLE001  # whatever it is, it is this item's
        result.error = as_raised(error)
    finally:
        if services.rules.on_ended is not None:
            services.rules.on_ended(job, result)
        if result.not_run is None and not (result.reused and result.error is None):
            services.stops.note(job, result.error)
    result.seconds = result.seconds or time.perf_counter() - begun
    result.tape = None
    return result


class _Attempt:
    """A job under way: `result` fills with what the store has of it, and with what is made."""

    def __init__(self, services: Services, job: Job, case: Case, subject: Subject, result: Result) -> None:
        self.services, self.job, self.case, self.subject, self.result = services, job, case, subject, result
        self.lane = job.plan.lane

    async def foresee(self, dry_run: DryRun) -> None:
        """Book what the job would take."""
        if not await self.reuse() and await self._pull():
            await self.reuse()
        services, job, case, result = self.services, self.job, self.case, self.result
        graders = graders_of(case, services.registry.graders)
        asks = wants_judge(case, job.plan.evaluation_profile, graders) or any(grader.asks(case) for grader in graders)
        dry_run.add(
            job,
            self.subject.model.model_id,
            result,
            asks=asks or asks_models(services, job, case),
            free_run=job.plan.predictions is not None or run_is_free(result.tape),
            free_verdict=verdict_is_free(services, job),
        )
        result.not_run = NOT_RUN

    async def complete(self) -> None:
        """Make what the store lacks. The lock is held: what another session made meanwhile is there by now."""
        if await self.reuse():
            return
        services, job, case, result = self.services, self.job, self.case, self.result
        if (
            reason := services.rules.drained() or services.stops.reason(job)
        ) is not None:  # while it waited for the lock
            result.not_run = reason
            return
        if await self._pull() and await self.reuse():
            return
        self.lane.refuse_newer(case.case_id, job.repetition)
        if not job.by_hand:
            require_hooks(case, job.plan.evaluation_profile.security_policy)
        if result.artifact is None or not await restore_workspace(services, job, case, result):
            result.reused, result.evaluation_reused, result.evaluation = False, False, None
            await make_run(services, job, case, self.subject, result)
        _raise_failure(case, result.artifact)
        await evaluate(services, job, case, result)

    async def reuse(self) -> bool:
        """Take the run and the verdict on it from the store; whether that, with what the run left where a test by hand
        may look at it, is all there is to do.
        """
        services, job, case, result = self.services, self.job, self.case, self.result
        if not self._find_run():
            return False
        artifact = result.artifact
        assert artifact is not None
        if services.reuse_evaluations and not records_verdict(services, job, result.tape):
            found = self.lane.find_evaluation(artifact, verdict_identity(services, job, case, artifact))
            result.evaluation, result.evaluation_path = found or (None, None)
            if found is not None and services.rules.dry_run is None and not job.by_hand:
                believed = await services.rechecks.believed(services.registry, job, case, artifact, found[0])
                if believed is not found[0]:  # the page shows no file that says otherwise
                    result.evaluation, result.evaluation_path = believed, None
            result.measure = measure_of(services, job, case) if result.evaluation is not None else None
        if result.evaluation is None and replays_run(result.tape, artifact):
            result.artifact, result.path, result.reused, result.seconds = None, None, False, 0.0
            return False
        result.evaluation_reused = result.evaluation is not None
        if result.evaluation is not None and result.evaluation_path is not None and services.rules.dry_run is None:
            share_evaluation(self.lane, artifact, result.evaluation, made=False)
        return result.evaluation_reused and (not job.by_hand or await restore_workspace(services, job, case, result))

    def _find_run(self) -> bool:
        if not self.services.rules.reuse_runs or records_run(self.result.tape):
            return False
        found = self.lane.find_run(self.case.case_id, self.job.repetition, self.subject.fingerprint, self._counts)
        if found is None:
            return False
        result = self.result
        result.artifact, result.path = artifact, _ = found
        result.reused, result.seconds = True, artifact.duration_seconds
        if self.services.rules.dry_run is None:
            share_run(self.lane, artifact, made=False)
        return True

    async def _pull(self) -> bool:
        return await pull(self.services, self.job, self.case, self.subject, self.result, self._counts)

    def _counts(self, artifact: RunArtifact) -> bool:
        """Return whether a stored run is a result: one that ended otherwise than it should is made again, unless asked
        for.
        """
        return (
            artifact.status == "success"
            or artifact.status in self.case.expects_status
            or self.job.plan.run_profile.reuse_unsuccessful
        )


def _raise_failure(case: Case, artifact: RunArtifact | None) -> None:
    """Raise the ProviderError that a run ended with, unless the case expects it."""
    if artifact is None or artifact.status != "provider_error" or artifact.status in case.expects_status:
        return
    assert artifact.error is not None
    raise ProviderError(artifact.error.message, code=artifact.error.code, retryable=artifact.error.retryable)
