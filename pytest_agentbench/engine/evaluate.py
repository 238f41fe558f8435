"""From a finished run to its evaluation: checks, metrics, judges, verdict, stored."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from pytest_agentbench.checks import CheckContext, run_checks
from pytest_agentbench.engine.identity import measure_of, verdict_identity
from pytest_agentbench.engine.job import Job, Plan, Result
from pytest_agentbench.engine.measuring import measure_all
from pytest_agentbench.engine.outputs import output_texts
from pytest_agentbench.engine.services import Services
from pytest_agentbench.engine.taping import kept, paid
from pytest_agentbench.engine.verdict import is_judged, verdict, wants_judge
from pytest_agentbench.engine.verifying import verify_all
from pytest_agentbench.errors import AgentbenchError, JudgeError
from pytest_agentbench.judging import Judgement, NoVerdictError, judge, key_outputs, taped_judges
from pytest_agentbench.metrics import tool_use_of
from pytest_agentbench.records import (
    Case,
    CheckResult,
    Evaluation,
    MetricResult,
    ResearchScores,
    RunArtifact,
    Usage,
)
from pytest_agentbench.store import share_evaluation

if TYPE_CHECKING:
    from pytest_agentbench.models import Tape


async def evaluate(services: Services, job: Job, case: Case, result: Result) -> None:
    """Fills in `result.evaluation` and stores it. Raises AgentbenchError where there is no verdict but has to be."""
    plan, artifact, tape = job.plan, result.artifact, result.tape
    assert artifact is not None
    profile = plan.evaluation_profile
    identity = verdict_identity(services, job, case, artifact)  # first: what is run may change what it holds
    result.measure = measure_of(services, job, case)
    context = CheckContext(
        case, artifact, result.workspace, services.registry.metrics, profile.compat, services.threads.run
    )
    checks = await run_checks(context, profile.security_policy, services.registry.checks)
    checks += await verify_all(services, job, case, context)
    with kept(tape):
        metrics = await measure_all(services, job, case, artifact, tape)
    try:
        with kept(tape):
            judgement = await _judge(services, plan, case, artifact, checks, tape)
    except JudgeError as error:
        evaluation = result.evaluation = _unjudged(case, plan, artifact, checks, metrics, error)
        result.evaluation_path = plan.lane.write_evaluation(job.repetition, evaluation)
        if job.by_hand:
            return
        raise
    with kept(tape):
        scores, research = await _research(services, job, case, artifact, tape)
    metrics += scores
    judged = judgement.result if judgement else None
    if tape is not None:
        identity = verdict_identity(services, job, case, artifact)  # there may be more on it now
    evaluation = verdict(case, profile, artifact, checks, metrics, judged, identity, research)
    if tape is not None:
        evaluation = evaluation.model_copy(update={"cassette": tape.state()})
    result.evaluation = evaluation
    prompts = judgement.prompts if judgement else ()
    result.evaluation_path = plan.lane.write_evaluation(job.repetition, evaluation, prompts)
    share_evaluation(plan.lane, artifact, evaluation, made=True)
    if evaluation.outcome == "error" and not job.by_hand:
        raise AgentbenchError(evaluation.error or "the evaluation gave no verdict")


async def _judge(
    services: Services,
    plan: Plan,
    case: Case,
    artifact: RunArtifact,
    checks: tuple[CheckResult, ...],
    tape: Tape | None,
) -> Judgement | None:
    """Asks the judges, unless the run has already failed by its status: there is nothing to weigh then."""
    if not wants_judge(case, plan.evaluation_profile) or not is_judged(case, artifact):
        return None
    try:
        judgement = await judge(
            case,
            plan.lane.shown(artifact),
            [plan.lane.shown(check) for check in checks],
            plan.evaluation_profile,
            lambda config: services.client(plan.judges[config.judge_id], tape),
            backends=services.registry.judges if tape is None else taped_judges(services.registry.judges, tape),
            redactor=plan.lane.redactor,
            texts=await _key_texts(services, plan, case, artifact),
        )
    except NoVerdictError as error:
        services.on_spent("judge", paid(tape, [iteration.usage for iteration in error.iterations]))
        raise
    services.on_spent("judge", paid(tape, [iteration.usage for iteration in judgement.result.iterations]))
    return judgement


async def _research(
    services: Services, job: Job, case: Case, artifact: RunArtifact, tape: Tape | None
) -> tuple[list[MetricResult], ResearchScores | None]:
    """The scores of a research report; none of another case."""
    if case.research is None:
        return [], None
    from pytest_agentbench.engine.research.scoring import score_report

    return await score_report(services, job, case, artifact, tape)


async def _key_texts(services: Services, plan: Plan, case: Case, artifact: RunArtifact) -> dict[str, str | None]:
    """What the run's key outputs hold, by path."""
    outputs = key_outputs(case, artifact)
    return await services.threads.run(partial(output_texts, plan.lane.output, outputs)) if outputs else {}


def _unjudged(
    case: Case,
    plan: Plan,
    artifact: RunArtifact,
    checks: Sequence[CheckResult],
    metrics: Sequence[MetricResult],
    error: JudgeError,
) -> Evaluation:
    """What is known of a run whose judges gave no verdict: kept, and an error, never a score of 0."""
    return Evaluation(
        case_id=case.case_id,
        run_id=artifact.run_id,
        run_fingerprint=artifact.fingerprint,
        evaluation_profile_id=plan.evaluation_profile.evaluation_profile_id,
        checks=tuple(checks),
        metrics=tuple(metrics),
        tool_use=tool_use_of(case, artifact, metrics, None),
        judge_usage=error.usage if isinstance(error, NoVerdictError) else Usage(),
        outcome="error",
        error=str(error),
    )
