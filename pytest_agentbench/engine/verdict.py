"""What decides a case, and what checks, metrics and judge come to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_agentbench.config import EvaluationProfile
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.judging import bar_of
from pytest_agentbench.metrics import METRICS, TOOL_USE_METRICS, parts_of, takes_trace, tool_use_of
from pytest_agentbench.records import (
    Case,
    CheckResult,
    Evaluation,
    JudgeResult,
    MetricResult,
    MetricSpec,
    Outcome,
    ResearchScores,
    RunArtifact,
    ToolUse,
)


def wants_judge(case: Case, profile: EvaluationProfile) -> bool:
    """A judge is asked where the profile has one and the case gives it a measure, or nothing else decides the case.

    An MCP task is a measure of its own; a research report is scored by its parts, which ask their own judge.
    """
    if not profile.judge_runs or case.research is not None:
        return False
    if case.mcp_task is not None:
        return True
    expectations = case.expectations
    measured = case.rubric or expectations.hard_expectations or expectations.soft_expectations
    return bool(measured) or not (case.checks or case.verify or _gating_metrics(case, profile))


def is_judged(case: Case, artifact: RunArtifact) -> bool:
    """Whether a model may weigh the run: not where it failed by its status already, unless the case expects that."""
    return artifact.status == "success" or (artifact.status in case.expects_status and bool(artifact.final_output))


def require_decision(case: Case, profile: EvaluationProfile) -> None:
    """Raises ConfigError for a case that nothing can fail, before anything is paid for it.

    A research report fails by its thresholds and where its run came to none, and is an error where a part has no score.
    """
    if case.research is not None or case.report_only or case.verify:
        return
    if wants_judge(case, profile) or _gating_metrics(case, profile):
        return
    hooks_run = profile.security_policy.allow_local_python_hooks
    if any(check.declarative is not None or hooks_run for check in case.checks):
        return
    if case.checks:
        raise ConfigError(
            f"{case.path}:{case.line}: nothing decides this case: its only checks are Python hooks, which are off; "
            "set security_policy.allow_local_python_hooks: true in an evaluation profile that you trust them with"
        )
    if case.mcp_task is not None:
        raise ConfigError(
            f"{case.path}:{case.line}: nothing decides this MCP task; name an evaluation profile with a judge, or a "
            "metric with a threshold (--agentbench-metric 'execution_success_rate>=0.9')"
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
    """The case's own metrics, the profile's further ones that apply, and those of every case with MCP servers.

    The profile's apply where there is a reference to compare with; those of a trace, where there are tools. Those that
    name no `compat` have the profile's.
    """
    metrics = case.metrics
    if profile.metrics:
        metrics = _with(metrics, (metric for metric in profile.metrics if _applies(metric, case)))
    if case.mcp_servers:
        metrics = _with(metrics, (MetricSpec(name=name) for name in TOOL_USE_METRICS))
    if profile.compat is None:
        return metrics
    return tuple(m if m.compat else m.model_copy(update={"compat": profile.compat}) for m in metrics)


def _with(metrics: tuple[MetricSpec, ...], further: Iterable[MetricSpec]) -> tuple[MetricSpec, ...]:
    own = {metric.name for metric in metrics}
    return (*metrics, *(metric for metric in further if metric.name not in own))


def _applies(metric: MetricSpec, case: Case) -> bool:
    if takes_trace(METRICS.get(metric.name)):
        return bool(case.tools or case.mcp_servers)
    return case.reference is not None


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
    research: ResearchScores | None = None,
) -> Evaluation:
    """Puts it together. What fails is certain, so it wins over what could not be told; both are said.

    A status other than success fails a case unless a `status_is` check names it. The judge's score decides with its
    threshold; of an MCP task the overall score does, of which the judge's is a part.
    """
    failures = [*_run_failures(case, artifact), *_failures(checks, metrics)]
    tool_use = tool_use_of(case, artifact, metrics, judged)
    failures += _judge_failures(case, judged, tool_use) if judged is not None else []
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
        tool_use=tool_use,
        research=research,
        final_score=_final_score(judged, tool_use),
        outcome=outcome,
        reasons=tuple(failures),
        error="; ".join(errors) or None,
    )


def wrote_nothing(case: Case, artifact: RunArtifact) -> bool:
    """Whether a run that should have written a research report ended well, but without any."""
    return case.research is not None and artifact.status == "success" and not (artifact.final_output or "").strip()


def _run_failures(case: Case, artifact: RunArtifact) -> list[str]:
    if wrote_nothing(case, artifact):
        return ["the run wrote no report: its final answer is empty (what it wrote to files is not read)"]
    if artifact.status == "success" or artifact.status in case.expects_status:
        return []
    why = f": {artifact.error.message}" if artifact.error else ""
    return [f"the run ended {artifact.status}{why}"]


def _failures(checks: Sequence[CheckResult], metrics: Sequence[MetricResult]) -> list[str]:
    failed = [f"check {check.check_id}: {check.message}" for check in checks if check.outcome == "failed"]
    below = [m for m in metrics if m.passed is False and m.error is None and m.threshold is not None]
    return failed + [f"metric {m.name}: {_score(m)}, expected at least {m.threshold:.3g}" for m in below]


def _score(metric: MetricResult) -> str:
    return "nothing to measure" if metric.score is None else f"{metric.score:.3g}"


def _final_score(judged: JudgeResult | None, tool_use: ToolUse | None) -> float | None:
    if tool_use is not None:
        return None if tool_use.overall is None else round(10 * tool_use.overall, 9)
    return judged.overall if judged is not None else None


def _judge_failures(case: Case, judged: JudgeResult, tool_use: ToolUse | None) -> list[str]:
    failures = []
    bar, score = bar_of(judged.pass_threshold), _final_score(judged, tool_use)
    if tool_use is not None:
        if score is not None and score < bar:
            failures.append(f"overall {score:.2f} of 10, expected at least {bar:.2f} ({parts_of(tool_use)})")
    elif not judged.passed:
        failures.append(f"judge: overall {judged.overall:.2f} of 10, expected at least {bar:.2f} ({judged.method})")
    if case.require_hard:
        failures += [f"judge: hard expectation not met: {text}" for text in judged.unmet_hard]
    return failures
