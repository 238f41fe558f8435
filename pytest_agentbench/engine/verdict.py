"""What decides a case, and what checks, metrics and judge come to."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_agentbench.config import EvaluationProfile
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records import (
    Case,
    CheckResult,
    Evaluation,
    JudgeResult,
    MetricResult,
    MetricSpec,
    Outcome,
    RunArtifact,
)


def wants_judge(case: Case, profile: EvaluationProfile) -> bool:
    """A judge is asked where the profile has one and the case gives it a measure, or nothing else decides the case."""
    if not profile.judge_runs:
        return False
    expectations = case.expectations
    measured = case.rubric or expectations.hard_expectations or expectations.soft_expectations
    return bool(measured) or not (case.checks or case.verify or _gating_metrics(case, profile))


def is_judged(case: Case, artifact: RunArtifact) -> bool:
    """Whether a model may weigh the run: not where it failed by its status already, unless the case expects that."""
    return artifact.status == "success" or (artifact.status in case.expects_status and bool(artifact.final_output))


def require_decision(case: Case, profile: EvaluationProfile) -> None:
    """Raises ConfigError for a case that nothing can fail, before anything is paid for it."""
    if case.report_only or case.verify or wants_judge(case, profile) or _gating_metrics(case, profile):
        return
    hooks_run = profile.security_policy.allow_local_python_hooks
    if any(check.declarative is not None or hooks_run for check in case.checks):
        return
    if case.checks:
        raise ConfigError(
            f"{case.path}:{case.line}: nothing decides this case: its only checks are Python hooks, which are off; "
            "set security_policy.allow_local_python_hooks: true in an evaluation profile that you trust them with"
        )
    if case.dataset is not None and not case.reference:
        raise ConfigError(
            f"{case.path}:{case.line}: there is nothing to score against: the row has neither an answer nor an "
            "evaluator; give it one, or name an evaluation profile with a judge"
        )
    raise ConfigError(
        f"{case.path}:{case.line}: nothing decides this case; give it a check, a verifier, an answer, a metric with a "
        "threshold, expectations and an evaluation profile with a judge, or report_only: true"
    )


def metrics_of(case: Case, profile: EvaluationProfile) -> tuple[MetricSpec, ...]:
    """The case's own metrics, and the profile's further ones where there is a reference to compare with.

    Those that name no `compat` have the profile's.
    """
    metrics = case.metrics
    if profile.metrics and case.reference is not None:
        own = {metric.name for metric in metrics}
        metrics = (*metrics, *(metric for metric in profile.metrics if metric.name not in own))
    if profile.compat is None:
        return metrics
    return tuple(m if m.compat else m.model_copy(update={"compat": profile.compat}) for m in metrics)


def _gating_metrics(case: Case, profile: EvaluationProfile) -> bool:
    return any(metric.threshold is not None for metric in metrics_of(case, profile))


def verdict(
    case: Case,
    profile: EvaluationProfile,
    artifact: RunArtifact,
    checks: Sequence[CheckResult],
    metrics: Sequence[MetricResult],
    judged: JudgeResult | None,
    fingerprint: str | None = None,
) -> Evaluation:
    """Puts it together. What fails is certain, so it wins over what could not be told; both are said.

    A status other than success fails a case unless a `status_is` check names it.
    """
    failures = [*_run_failures(case, artifact), *_failures(checks, metrics)]
    failures += _judge_failures(case, judged) if judged is not None else []
    errors = [f"check {c.check_id}: {c.message}" for c in checks if c.outcome == "error"]
    errors += [f"metric {m.name}: {m.error}" for m in metrics if m.error is not None]
    outcome: Outcome = "passed"
    if failures and not case.report_only:
        outcome = "failed"
    elif errors:
        outcome = "error"
    return Evaluation(
        case_id=case.case_id,
        run_id=artifact.run_id,
        fingerprint=fingerprint,
        run_fingerprint=artifact.fingerprint,
        evaluation_profile_id=profile.evaluation_profile_id,
        checks=tuple(checks),
        metrics=tuple(metrics),
        judge=judged,
        final_score=judged.overall if judged is not None else None,
        outcome=outcome,
        reasons=tuple(failures),
        error="; ".join(errors) or None,
    )


def _run_failures(case: Case, artifact: RunArtifact) -> list[str]:
    if artifact.status == "success" or artifact.status in case.expects_status:
        return []
    why = f": {artifact.error.message}" if artifact.error else ""
    return [f"the run ended {artifact.status}{why}"]


def _failures(checks: Sequence[CheckResult], metrics: Sequence[MetricResult]) -> list[str]:
    failed = [f"check {check.check_id}: {check.message}" for check in checks if check.outcome == "failed"]
    below = [m for m in metrics if m.passed is False and m.score is not None and m.threshold is not None]
    return failed + [f"metric {m.name}: {m.score:.3g}, expected at least {m.threshold:.3g}" for m in below]


def _judge_failures(case: Case, judged: JudgeResult) -> list[str]:
    failures = []
    if not judged.passed:
        bar = 10 * judged.pass_threshold
        failures.append(f"judge: overall {judged.overall:.2f} of 10, expected at least {bar:.2f} ({judged.method})")
    if case.require_hard:
        failures += [f"judge: hard expectation not met: {text}" for text in judged.unmet_hard]
    return failures
