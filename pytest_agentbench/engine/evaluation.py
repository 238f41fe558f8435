"""Evaluate a finished run by metrics, checks, judges and graders, and store the verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from pytest_agentbench.checks.base import CheckContext
from pytest_agentbench.checks.run import run_checks
from pytest_agentbench.config.profiles import EvaluationProfile
from pytest_agentbench.engine.attempt import Attempt
from pytest_agentbench.engine.cassettes import kept
from pytest_agentbench.engine.grading import (
    AskingGrader,
    Grade,
    Grader,
    GradeRequest,
    JudgePromptGrader,
    MeasuredRun,
    accepts_status,
    add_turn_grades,
    find_live_grade,
    find_stored_grades,
    graders_of,
    regrade,
)
from pytest_agentbench.engine.run_plan import measure_of, verdict_identity, verdict_inputs, verify_all
from pytest_agentbench.engine.services import Services
from pytest_agentbench.errors import AgentbenchError, ConfigError, JudgeError
from pytest_agentbench.metrics.registry import (
    MetricContext,
    asks_model,
    measure,
    measure_async,
    measure_trace,
    metrics_of,
    takes_long,
    takes_trace,
)
from pytest_agentbench.records.base import Record
from pytest_agentbench.records.case import Case, MetricSpec
from pytest_agentbench.records.evaluation import (
    UNMET_HARD,
    CheckResult,
    Evaluation,
    JudgeResult,
    MetricResult,
    Outcome,
)
from pytest_agentbench.records.run import RunArtifact, Usage
from pytest_agentbench.store.output_folder import JUDGEMENTS

if TYPE_CHECKING:
    from pytest_agentbench.engine.grading import GradingServices
    from pytest_agentbench.engine.job import Plan
    from pytest_agentbench.judging.asking import Judgement
    from pytest_agentbench.models.tape import Tape


def wants_judge(case: Case, profile: EvaluationProfile, graders: Sequence[Grader] | None = None) -> bool:
    """Return whether a judge is asked: the profile has one, and the case has criteria for it or nothing else decides.

    It is not if a grader asks models itself. `graders` are the case's graders, by default the graders of its parts.
    """
    if not profile.judge_runs:
        return False
    if graders is None:
        graders = graders_of(case)
    if any(isinstance(grader, AskingGrader) for grader in graders):
        return False
    expectations = case.expectations
    measured = case.rubric or expectations.hard_expectations or expectations.soft_expectations
    is_measured = bool(measured) or any(part.measure for part in case.case_parts)
    return is_measured or not (case.checks or case.verify or _gating_metrics(case, profile))


def verdict_asks(case: Case, profile: EvaluationProfile, graders: Sequence[Grader]) -> bool:
    """Return whether a judge is asked, or a grader asks models itself."""
    asking = (grader for grader in graders if isinstance(grader, AskingGrader))
    return wants_judge(case, profile, graders) or any(grader.asks(case) for grader in asking)


def is_judged(case: Case, artifact: RunArtifact) -> bool:
    """Return whether a model may judge the run: it succeeded, or ended with an answer as the case expects."""
    return artifact.status == "success" or (artifact.status in case.expects_status and bool(artifact.final_output))


def require_decision(case: Case, profile: EvaluationProfile, graders: Sequence[Grader] | None = None) -> None:
    """Raise ConfigError for a case that nothing can fail, before anything is paid for it."""
    if case.report_only or case.verify:
        return
    if graders is None:
        graders = graders_of(case)
    if any(grader.decides for grader in graders):
        return
    if wants_judge(case, profile, graders) or _gating_metrics(case, profile):
        return
    hooks_run = profile.security_policy.allow_local_python_hooks
    if any(check.declarative is not None or hooks_run for check in case.checks):
        return
    if case.checks:
        raise ConfigError(
            f"{case.path}:{case.line}:1: nothing decides this case: its only checks are Python hooks, which are off; "
            "set security_policy.allow_local_python_hooks: true in an evaluation profile that you trust them with"
        )
    for grader in graders:
        if isinstance(grader, JudgePromptGrader) and grader.undecided is not None:
            raise ConfigError(f"{case.path}:{case.line}:1: {grader.undecided}")
    if case.dataset is not None and not case.reference:
        raise ConfigError(
            f"{case.path}:{case.line}:1: there is nothing to score against: the row has neither an answer nor an "
            "evaluator that is a check or metric; give it one, decide it by a metric of your own "
            "(--agentbench-metric), or name an evaluation profile with a judge"
        )
    raise ConfigError(
        f"{case.path}:{case.line}:1: nothing decides this case; give it a check, a verifier, an answer, a metric with "
        "a threshold, expectations and an evaluation profile with a judge, or report_only: true"
    )


def _gating_metrics(case: Case, profile: EvaluationProfile) -> bool:
    return any(metric.threshold is not None for metric in metrics_of(case, profile))


class Decision(NamedTuple):
    """The outcome of a run, its score, the reasons why it failed, and errors of its evaluation."""

    outcome: Outcome
    final_score: float | None
    failures: list[str]
    errors: list[str]


def decide(
    case: Case,
    artifact: RunArtifact,
    checks: Sequence[CheckResult],
    metrics: Sequence[MetricResult],
    judged: JudgeResult | None,
    grades: Mapping[Grader, Grade] = MappingProxyType({}),
) -> Decision:
    """Return the common result of checks, metrics, judges and graders.

    Failures take precedence over errors; both are reported. A status other than success fails a case unless a
    `status_is` check names it. The judge's score decides with its threshold, unless a grade is final.
    """
    final = next((grade for grade in grades.values() if grade.is_final), None)
    failures = [*_run_failures(case, artifact, grades), *_failures(checks, metrics)]
    failures += [line for grade in grades.values() for line in grade.failures]
    if judged is not None:
        failures += _judge_failures(case, judged, final)
    errors = [f"check {c.check_id}: {c.message}" for c in checks if c.outcome == "error"]
    errors += [f"metric {m.name}: {m.error}" for m in metrics if m.error is not None]
    errors += [line for grade in grades.values() for line in grade.errors]
    if not case.report_only and _none_ran(checks, metrics, judged, grades):
        errors.append(f"no check has run: {checks[0].message}")
    outcome: Outcome = "passed"
    if failures and not case.report_only:
        outcome = "failed"
    elif errors:
        outcome = "error"
    score = None
    if final is not None:
        score = final.final_score
    elif judged is not None:
        score = judged.overall
    return Decision(outcome, score, failures, errors)


def _none_ran(
    checks: Sequence[CheckResult],
    metrics: Sequence[MetricResult],
    judged: JudgeResult | None,
    grades: Mapping[Grader, Grade],
) -> bool:
    """Return whether only checks decide the run, and all of them were skipped."""
    if judged is not None or grades or any(metric.threshold is not None for metric in metrics):
        return False
    return bool(checks) and all(check.outcome == "skipped" for check in checks)


def verdict(
    case: Case,
    profile: EvaluationProfile,
    artifact: RunArtifact,
    checks: Sequence[CheckResult],
    metrics: Sequence[MetricResult],
    judged: JudgeResult | None,
    fingerprint: str | None = None,
    grades: Mapping[Grader, Grade] = MappingProxyType({}),
) -> Evaluation:
    """Return the record of the verdict, with the outcome from `decide`."""
    decided = decide(case, artifact, checks, metrics, judged, grades)
    return Evaluation(
        case_id=artifact.case_id,
        run_id=artifact.run_id,
        fingerprint=fingerprint,
        run_fingerprint=artifact.fingerprint,
        evaluation_profile_id=profile.evaluation_profile_id,
        checks=tuple(checks),
        metrics=tuple(metrics),
        judge=judged,
        parts=parts_of(grades),
        grades=find_stored_grades(grades),
        final_score=decided.final_score,
        outcome=decided.outcome,
        accepts_status=artifact.status != "success" and accepts_status(case, artifact, grades),
        reasons=tuple(decided.failures),
        error="; ".join(decided.errors) or None,
    )


def parts_of(grades: Mapping[Grader, Grade]) -> dict[str, Record]:
    """Return the parts of an evaluation that graders have made."""
    made = ((grader.part_name, grade.record) for grader, grade in grades.items())
    return {name: record for name, record in made if name is not None and record is not None}


def _run_failures(case: Case, artifact: RunArtifact, graders: Collection[Grader]) -> Sequence[str]:
    if accepts_status(case, artifact, graders):
        return []
    why = f": {artifact.error.message}" if artifact.error else ""
    return [f"the run ended {artifact.status}{why}"]


def _failures(checks: Sequence[CheckResult], metrics: Sequence[MetricResult]) -> list[str]:
    failed = [f"check {check.check_id}: {check.message}" for check in checks if check.outcome == "failed"]
    below = [m for m in metrics if m.passed is False and m.error is None and m.threshold is not None]
    return failed + [f"metric {m.name}: {_score(m)}, expected at least {m.threshold:.3g}" for m in below]


def _score(metric: MetricResult) -> str:
    if metric.score is None:
        return "nothing to measure"
    return f"{metric.score:.3g}"


def _judge_failures(case: Case, judged: JudgeResult, final: Grade | None) -> list[str]:
    from pytest_agentbench.judging.verdicts import bar_of

    failures = []
    bar = bar_of(judged.pass_threshold)
    if final is None and not judged.passed:
        failures.append(f"judge: overall {judged.overall:.2f} of 10, expected at least {bar:.2f} ({judged.method})")
    if case.require_hard:
        failures += [f"{UNMET_HARD}{text}" for text in judged.unmet_hard]
    return failures


async def measure_all(attempt: Attempt, artifact: RunArtifact) -> list[MetricResult]:
    """Return the result of every metric of the case, in order. Book the cost of metrics that ask models.

    No model sees a run that failed by its status: such a metric is 0, like the metric of an empty answer.
    """
    services, case = attempt.services, attempt.case
    specs = metrics_of(case, attempt.plan.evaluation_profile)
    metrics = services.registry.metrics
    reference, output = case.gold, artifact.final_output or ""
    asking = {spec.name for spec in specs if _asks(services, spec)}
    long = {spec.name for spec in specs if takes_long(spec.name, metrics, reference, output)}

    def plain(spec: MetricSpec) -> MetricResult:
        if takes_trace(metrics.get(spec.name)):
            return measure_trace(spec, case, artifact, metrics)
        return measure(spec, reference, output, metrics)

    # The usual case: no tasks and no threads for metrics that take microseconds
    if not asking and not long:
        return [plain(spec) for spec in specs]

    async def one(spec: MetricSpec) -> MetricResult:
        if spec.name in asking:
            if not is_judged(case, artifact):
                return _unasked(spec, artifact.status)
            context = make_metric_context(services, attempt.plan, case, attempt.tape)
            return await measure_async(spec, reference, output, metrics, context)
        if spec.name in long:
            return await services.threads.run(partial(plain, spec))
        return plain(spec)

    results = await asyncio.gather(*map(one, specs))
    if used := [result.usage for result in results if result.usage is not None]:
        services.spend("judge", used, attempt.tape)
    return results


def asks_models(attempt: Attempt) -> bool:
    """Return whether any of the case's metrics asks a model."""
    return any(_asks(attempt.services, spec) for spec in metrics_of(attempt.case, attempt.plan.evaluation_profile))


def _asks(services: Services, spec: MetricSpec) -> bool:
    function = services.registry.metrics.get(spec.name)
    return function is not None and asks_model(function)


def make_metric_context(services: GradingServices, plan: Plan, case: Case, tape: Tape | None) -> MetricContext:
    """Return the resources of a metric, or a grader, that asks a model for votes on a run of the case."""
    model_store = plan.model_store
    return MetricContext(
        case_id=case.case_id,
        question=question_of(case),
        client=lambda name: services.client(plan.judge_model(name), tape),
        redactor=model_store.redactor,
        cache=Path(model_store.output, JUDGEMENTS),
        anew=None if services.reuse_evaluations else services.asked_anew,
        remote=model_store.remote,
        signer=model_store.signer,
    )


def question_of(case: Case) -> str:
    """Return the question of the answer: the user messages at the end of the conversation."""
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


async def evaluate(attempt: Attempt) -> None:
    """Fill in `result.evaluation` and store it. Raises AgentbenchError for a verdict that is an error."""
    services, job, case = attempt.services, attempt.job, attempt.case
    plan, artifact, tape = attempt.plan, attempt.result.artifact, attempt.tape
    assert artifact is not None
    profile = plan.evaluation_profile
    decided_by = verdict_inputs(attempt)  # first, because hooks and verifiers may change these files
    identity = verdict_identity(attempt, artifact, decided_by)
    attempt.result.measure = measure_of(decided_by)
    context = CheckContext(
        case, artifact, attempt.result.workspace, services.registry.metrics, profile.compat, services.threads.run
    )
    checks = await run_checks(context, profile.security_policy, services.registry.checks)
    if case.verify:
        checks += await verify_all(attempt, context)
    with _keeping(tape):
        metrics = await measure_all(attempt, artifact)
    graders = attempt.graders
    try:
        with _keeping(tape):
            judgement = await _judge(attempt, artifact, checks)
    except JudgeError as error:
        # Graders that need no judge still grade: the stored evaluation shows all results
        regraded = regrade(graders, MeasuredRun(case=case, artifact=artifact, metrics=metrics))
        evaluation = attempt.result.evaluation = _unjudged(attempt, artifact, checks, metrics, error, regraded)
        attempt.result.evaluation_path = await plan.model_store.store_evaluation(job.repetition, evaluation)
        if job.by_hand:
            return
        raise
    judged = judgement.result if judgement else None
    grades: dict[Grader, Grade] = {}
    with _keeping(tape) if graders else _NOTHING_KEPT:
        for grader in graders:
            grade = find_live_grade(grader, artifact)
            if grade is None:
                request = GradeRequest(
                    case=case,
                    artifact=artifact,
                    metrics=tuple(metrics),
                    judged=judged,
                    services=services,
                    job=job,
                    tape=tape,
                    workspace=attempt.result.workspace,
                )
                grade = await grader.grade(request)
            grades[grader] = grade = add_turn_grades(grader, artifact, grade)
            metrics += grade.metrics
    if tape is not None:
        identity = verdict_identity(attempt, artifact)  # the cassette may have more answers now
    evaluation = verdict(case, profile, artifact, checks, metrics, judged, identity, grades)
    if tape is not None:
        evaluation = evaluation.model_copy(update={"cassette": tape.take_state()})
    attempt.result.evaluation = evaluation
    prompts = judgement.prompts if judgement else ()
    attempt.result.evaluation_path = await plan.model_store.store_evaluation(job.repetition, evaluation, prompts)
    plan.share(artifact, evaluation, made=True)
    if evaluation.outcome == "error" and not job.by_hand:
        raise AgentbenchError(evaluation.error or "the evaluation gave no verdict")


_NOTHING_KEPT = nullcontext()


def _keeping(tape: Tape | None) -> AbstractContextManager[None]:
    if tape is None:
        return _NOTHING_KEPT
    return kept(tape)


async def _judge(
    attempt: Attempt,
    artifact: RunArtifact,
    checks: tuple[CheckResult, ...],
) -> Judgement | None:
    """Ask the judges, unless the run has already failed by its status: there is nothing to weigh then."""
    services, case, plan = attempt.services, attempt.case, attempt.plan
    profile = plan.evaluation_profile
    if not wants_judge(case, profile, attempt.graders) or not is_judged(case, artifact):
        return None
    from pytest_agentbench.judging.asking import NoVerdictError, judge, redaction_of, taped_judges

    shown, redact = plan.model_store.redact_record(artifact), redaction_of(profile, plan.model_store.redactor)
    # A generator: of several graders only the first that has an own assessment is asked
    prompting = (grader for grader in attempt.graders if isinstance(grader, JudgePromptGrader))
    own = (grader.assessment(case, shown, profile, redact) for grader in prompting)
    try:
        judgement = await judge(
            case,
            shown,
            [plan.model_store.redact_record(check) for check in checks],
            profile,
            lambda config: services.client(plan.judges[config.judge_id], attempt.tape),
            backends=services.registry.judges
            if attempt.tape is None
            else taped_judges(services.registry.judges, attempt.tape),
            redactor=plan.model_store.redactor,
            texts=await _key_texts(attempt, artifact),
            asked=next((each for each in own if each is not None), None),
        )
    except NoVerdictError as error:
        services.spend("judge", [iteration.usage for iteration in error.iterations], attempt.tape)
        raise
    services.spend("judge", [iteration.usage for iteration in judgement.result.iterations], attempt.tape)
    return judgement


async def _key_texts(attempt: Attempt, artifact: RunArtifact) -> dict[str, str | None]:
    """Return the texts of the run's key outputs, by path."""
    from pytest_agentbench.judging.prompt import key_outputs

    outputs = key_outputs(attempt.case, artifact)
    if not outputs:
        return {}
    from pytest_agentbench.engine.workspaces import output_texts

    return await attempt.services.threads.run(partial(output_texts, attempt.plan.model_store.output, outputs))


def _unjudged(
    attempt: Attempt,
    artifact: RunArtifact,
    checks: Sequence[CheckResult],
    metrics: Sequence[MetricResult],
    error: JudgeError,
    grades: Mapping[Grader, Grade],
) -> Evaluation:
    """Return the evaluation of a run without a verdict of its judges: an error with all other results, never a score
    of 0.
    """
    return Evaluation(
        case_id=artifact.case_id,
        run_id=artifact.run_id,
        run_fingerprint=artifact.fingerprint,
        evaluation_profile_id=attempt.plan.evaluation_profile.evaluation_profile_id,
        checks=tuple(checks),
        metrics=tuple(metrics),
        parts=parts_of(grades),
        judge_usage=getattr(error, "usage", Usage()),
        outcome="error",
        error=str(error),
    )
