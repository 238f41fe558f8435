"""Evaluate a finished run: metrics, checks, judges and verdict, stored."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_agentbench.checks.base import CheckContext
from pytest_agentbench.checks.run import run_checks
from pytest_agentbench.engine.cassettes import kept, select_paid
from pytest_agentbench.engine.grading import Grade, Grader, GradeRequest, graders_of, regrade
from pytest_agentbench.engine.job import Job, Plan, Result
from pytest_agentbench.engine.services import Services
from pytest_agentbench.engine.subject import measure_of, verdict_identity, verify_all
from pytest_agentbench.engine.verdict import is_judged, metrics_of, parts_of, verdict, wants_judge
from pytest_agentbench.engine.workspaces import output_texts
from pytest_agentbench.errors import AgentbenchError, JudgeError
from pytest_agentbench.judging.panel import Judgement, NoVerdictError, judge, redaction_of, taped_judges
from pytest_agentbench.judging.prompt import key_outputs
from pytest_agentbench.metrics.registry import (
    MetricContext,
    asks_model,
    measure,
    measure_async,
    measure_trace,
    takes_long,
    takes_trace,
)
from pytest_agentbench.records.case import Case, MetricSpec
from pytest_agentbench.records.evaluation import CheckResult, Evaluation, MetricResult
from pytest_agentbench.records.run import RunArtifact, Usage
from pytest_agentbench.store.judgements import JUDGEMENTS
from pytest_agentbench.store.remote_results import share_evaluation

if TYPE_CHECKING:
    from pytest_agentbench.models.tape import Tape


async def measure_all(
    services: Services, job: Job, case: Case, artifact: RunArtifact, tape: Tape | None = None
) -> list[MetricResult]:
    """Return the result of every metric of the case, in order. Books what asking models has cost.

    A run that failed by its status is not shown to a model: such a metric is 0, as it is for an empty answer.
    """
    specs = metrics_of(case, job.plan.evaluation_profile)
    metrics = services.registry.metrics
    of_trace = {spec.name for spec in specs if takes_trace(metrics.get(spec.name))}
    reference, output = case.reference or "", artifact.final_output or ""
    asking = {spec.name for spec in specs if _asks(services, spec)}
    long = {spec.name for spec in specs if takes_long(spec.name, metrics, reference, output)}

    def plain(spec: MetricSpec) -> MetricResult:
        if spec.name in of_trace:
            return measure_trace(spec, case, artifact, metrics)
        return measure(spec, reference, output, metrics)

    if not asking and not long:
        return [plain(spec) for spec in specs]

    async def one(spec: MetricSpec) -> MetricResult:
        if spec.name in asking:
            if not is_judged(case, artifact):
                return _unasked(spec, artifact.status)
            return await measure_async(spec, reference, output, metrics, _context(services, job, case, tape))
        return await services.threads.run(partial(plain, spec)) if spec.name in long else plain(spec)

    results = await asyncio.gather(*map(one, specs))
    if used := [result.usage for result in results if result.usage is not None]:
        services.on_spent("judge", select_paid(tape, used))
    return results


def asks_models(services: Services, job: Job, case: Case) -> bool:
    """Return whether any of the case's metrics asks a model."""
    return any(_asks(services, spec) for spec in metrics_of(case, job.plan.evaluation_profile))


def _asks(services: Services, spec: MetricSpec) -> bool:
    function = services.registry.metrics.get(spec.name)
    return function is not None and asks_model(function)


def _context(services: Services, job: Job, case: Case, tape: Tape | None) -> MetricContext:
    lane = job.plan.lane
    return MetricContext(
        case_id=case.case_id,
        question=question_of(case),
        client=lambda name: services.client(job.plan.judge_model(name), tape),
        redactor=lane.redactor,
        cache=Path(lane.output, JUDGEMENTS),
        anew=None if services.reuse_evaluations else services.asked_anew,
        remote=lane.remote,
        signer=lane.signer,
    )


def question_of(case: Case) -> str:
    """Return what the answer answers: the user messages at the end of the conversation."""
    said: list[str] = []
    for message in reversed((*case.messages, *case.turns)):
        if message.role == "user":
            said.append(message.content)
        elif said:
            break
    return "\n\n".join(reversed(said))


def _unasked(spec: MetricSpec, status: str) -> MetricResult:
    return MetricResult(
        name=spec.name,
        score=0.0,
        threshold=spec.threshold,
        passed=None if spec.threshold is None else spec.threshold <= 0,
        details={"reason": f"the run ended {status}, so no model was asked"},
    )


async def evaluate(services: Services, job: Job, case: Case, result: Result) -> None:
    """Fill in `result.evaluation` and stores it. Raises AgentbenchError where there is no verdict but has to be."""
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
    graders = graders_of(case, services.registry.graders)
    try:
        with kept(tape):
            judgement = await _judge(services, plan, case, artifact, checks, tape, graders)
    except JudgeError as error:
        regraded = regrade(graders, case, artifact, metrics, None)
        evaluation = result.evaluation = _unjudged(case, plan, artifact, checks, metrics, error, regraded)
        result.evaluation_path = plan.lane.write_evaluation(job.repetition, evaluation)
        if job.by_hand:
            return
        raise
    judged = judgement.result if judgement else None
    grades: dict[Grader, Grade] = {}
    with kept(tape):
        for grader in graders:
            request = GradeRequest(services, job, case, artifact, tuple(metrics), judged, tape)
            grades[grader] = grade = await grader.grade(request)
            metrics += grade.metrics
    if tape is not None:
        identity = verdict_identity(services, job, case, artifact)  # there may be more on it now
    evaluation = verdict(case, profile, artifact, checks, metrics, judged, identity, grades)
    if tape is not None:
        evaluation = evaluation.model_copy(update={"cassette": tape.take_state()})
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
    graders: Sequence[Grader],
) -> Judgement | None:
    """Ask the judges, unless the run has already failed by its status: there is nothing to weigh then."""
    profile = plan.evaluation_profile
    if not wants_judge(case, profile, graders) or not is_judged(case, artifact):
        return None
    shown, redact = plan.lane.redact_record(artifact), redaction_of(profile, plan.lane.redactor)
    own = (grader.assessment(case, shown, profile, redact) for grader in graders)
    try:
        judgement = await judge(
            case,
            shown,
            [plan.lane.redact_record(check) for check in checks],
            profile,
            lambda config: services.client(plan.judges[config.judge_id], tape),
            backends=services.registry.judges if tape is None else taped_judges(services.registry.judges, tape),
            redactor=plan.lane.redactor,
            texts=await _key_texts(services, plan, case, artifact),
            asked=next((each for each in own if each is not None), None),
        )
    except NoVerdictError as error:
        services.on_spent("judge", select_paid(tape, [iteration.usage for iteration in error.iterations]))
        raise
    services.on_spent("judge", select_paid(tape, [iteration.usage for iteration in judgement.result.iterations]))
    return judgement


async def _key_texts(services: Services, plan: Plan, case: Case, artifact: RunArtifact) -> dict[str, str | None]:
    """Return what the run's key outputs hold, by path."""
    outputs = key_outputs(case, artifact)
    return await services.threads.run(partial(output_texts, plan.lane.output, outputs)) if outputs else {}


def _unjudged(
    case: Case,
    plan: Plan,
    artifact: RunArtifact,
    checks: Sequence[CheckResult],
    metrics: Sequence[MetricResult],
    error: JudgeError,
    grades: Mapping[Grader, Grade],
) -> Evaluation:
    """Return what is known of a run whose judges gave no verdict: kept, and an error, never a score of 0."""
    return Evaluation(
        case_id=case.case_id,
        run_id=artifact.run_id,
        run_fingerprint=artifact.fingerprint,
        evaluation_profile_id=plan.evaluation_profile.evaluation_profile_id,
        checks=tuple(checks),
        metrics=tuple(metrics),
        parts=parts_of(grades),
        judge_usage=error.usage if isinstance(error, NoVerdictError) else Usage(),
        outcome="error",
        error=str(error),
    )
