"""Recompute the free parts of a stored verdict, and warn if they differ from the stored ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_agentbench.checks.base import CheckContext
from pytest_agentbench.checks.run import BUILTIN_CHECKS, run_checks
from pytest_agentbench.engine.attempt import Attempt
from pytest_agentbench.engine.evaluation import decide, is_judged, verdict, wants_judge
from pytest_agentbench.engine.grading import MeasuredRun, name_stored_grades, regrade
from pytest_agentbench.engine.services import is_ours
from pytest_agentbench.metrics.registry import (
    asks_model,
    measure,
    measure_trace,
    metrics_of,
    takes_long,
    takes_trace,
)
from pytest_agentbench.records.case import Case, MetricSpec
from pytest_agentbench.records.evaluation import Evaluation, MetricResult
from pytest_agentbench.records.gold import Gold
from pytest_agentbench.records.run import RunArtifact, ToolCallEvent, answers_with_files
from pytest_agentbench.secrets.redaction import REDACTED

if TYPE_CHECKING:
    from pytest_agentbench.engine.services import Registry
    from pytest_agentbench.records.check_specs import Check

_NAMED = 5
"""Maximum differing verdicts that warnings name; one more warning covers all others."""
_LOOKS_AT_FILES = frozenset({"file_exists", "path_exists", "file_contains"})
_NEAR = 1e-9


async def recheck_verdict(attempt: Attempt, artifact: RunArtifact, stored: Evaluation) -> Evaluation | None:
    """Return the stored verdict, or the recomputed one if it differs; None for an incomplete stored verdict.

    Recomputed are checks of the run's answer and trace, fast metrics that ask no model, and the common result. Results
    that need the workspace, a process, a judge, code of others, or a library that is not installed stay as stored.
    """
    case = attempt.case
    registry, profile = attempt.services.registry, attempt.plan.evaluation_profile
    checks = {check.check_id: check for check in stored.checks}
    metrics = {metric.name: metric for metric in stored.metrics}
    specs = metrics_of(case, profile)
    graders = attempt.graders
    if wants_judge(case, profile, graders) and is_judged(case, artifact) and stored.judge is None:
        return None
    if any(check.check_id not in checks for check in case.checks) or any(spec.name not in metrics for spec in specs):
        return None
    if any(name not in (stored.grades or {}) for name in name_stored_grades(graders).values()):
        return stored  # of a version that stored no grades
    free = tuple(check for check in case.checks if _is_free(registry, case, check, artifact))
    differing = []
    if free:
        looked_at = case
        if len(free) < len(case.checks):
            looked_at = case.model_copy(update={"checks": free})
        context = CheckContext(looked_at, artifact, None, registry.metrics, profile.compat)
        for check in await run_checks(context, profile.security_policy, registry.checks):
            if check.outcome not in ("error", checks[check.check_id].outcome):
                checks[check.check_id] = check
                differing.append(f"check {check.check_id}")
    for metric in _measured(registry, case, specs, artifact):
        if metric.error is None and not _alike(metric, metrics[metric.name]):
            metrics[metric.name] = metric
            differing.append(f"metric {metric.name}")
    results = [*checks.values()], [*metrics.values()], stored.judge
    run = MeasuredRun(case=case, artifact=artifact, metrics=results[1], judged=stored.judge)
    grades = regrade(graders, run, stored)
    decided = decide(case, artifact, *results, grades)
    if decided.outcome == stored.outcome and decided.final_score == stored.final_score and not differing:
        return stored
    told = verdict(case, profile, artifact, *results, stored.fingerprint, grades)
    kept = _is_redacted(artifact)
    _warn_of_difference(attempt, stored, told, differing, kept=kept)
    if kept:
        return stored
    return told.model_copy(update={"judge_usage": stored.judge_usage, "cassette": stored.cassette})


def _warn_of_difference(
    attempt: Attempt,
    stored: Evaluation,
    told: Evaluation,
    differing: Sequence[str],
    *,
    kept: bool,
) -> None:
    attempt.services.differing += 1
    warn = attempt.plan.model_store.warn
    if attempt.services.differing > _NAMED:
        warn("more stored verdicts differ from the present verdicts on their runs")
        return
    names = [*differing[:3], *(["..."] if len(differing) > 3 else [])]
    where = f" ({', '.join(names)})" if names else ""
    counts = "the latter counts"
    if kept:
        counts = "the stored one counts, because the run is stored without its secrets"
    warn(
        f"{attempt.case.case_id} [{attempt.plan.model_id}] repetition {attempt.job.repetition}: the stored verdict is "
        f"{_shown(stored)}, the stored run comes to {_shown(told)}{where}: {counts}"
    )


def _shown(evaluation: Evaluation) -> str:
    score = evaluation.final_score
    if score is None:
        return evaluation.outcome
    return f"{evaluation.outcome} with {score:g} of 10"


def _is_free(registry: Registry, case: Case, check: Check, artifact: RunArtifact) -> bool:
    """Return whether a check is our code and looks at the run's answer, trace and figures only."""
    return all(_is_free_leaf(registry, case, leaf, artifact) for _, leaf in check.leaves)


def _is_free_leaf(registry: Registry, case: Case, check: Check, artifact: RunArtifact) -> bool:
    spec = check.declarative
    if spec is None or check.kind in _LOOKS_AT_FILES or getattr(spec, "path", None) is not None:
        return False
    if check.kind == "final_response_present" and answers_with_files(artifact.runner_type):
        return False  # the agent's files may be its answer
    if check.kind == "metric":
        name = getattr(spec, "name", "")
        return _is_cheap(registry, name, case.gold, artifact.final_output or "")
    return check.kind in BUILTIN_CHECKS and registry.checks.get(check.kind) is BUILTIN_CHECKS[check.kind]


def _is_cheap(registry: Registry, name: str, reference: Gold, output: str) -> bool:
    metrics = registry.metrics
    function = metrics.get(name)
    return (
        function is not None
        and is_ours(function)
        and not asks_model(function)
        and not takes_long(name, metrics, reference, output)
    )


def _measured(registry: Registry, case: Case, specs: Sequence[MetricSpec], artifact: RunArtifact) -> list[MetricResult]:
    if not specs:
        return []
    metrics, reference, output = registry.metrics, case.gold, artifact.final_output or ""
    return [
        measure_trace(spec, case, artifact, metrics)
        if takes_trace(metrics.get(spec.name))
        else measure(spec, reference, output, metrics)
        for spec in specs
        if _is_cheap(registry, spec.name, reference, output)
    ]


def _alike(one: MetricResult, other: MetricResult) -> bool:
    if one.score is None or other.score is None:
        return (one.score, one.passed) == (other.score, other.passed)
    return abs(one.score - other.score) <= _NEAR and one.passed == other.passed


def _is_redacted(artifact: RunArtifact) -> bool:
    """Return whether the verdict may have been made from an answer with secrets that the stored one lacks."""
    calls = (str(event.arguments) for event in artifact.trace if isinstance(event, ToolCallEvent))
    return REDACTED in (artifact.final_output or "") or any(REDACTED in call for call in calls)
