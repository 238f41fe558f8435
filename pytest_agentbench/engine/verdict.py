"""Decide a case from its checks, metrics and judges, compare stored verdicts, and name who judged them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_agentbench.checks.base import CheckContext
from pytest_agentbench.checks.run import BUILTIN_CHECKS, run_checks
from pytest_agentbench.config.profiles import EvaluationProfile
from pytest_agentbench.engine.grading import Grade, Grader, graders_of, regrade
from pytest_agentbench.engine.job import Job
from pytest_agentbench.engine.registry import is_ours
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.judging.verdicts import bar_of
from pytest_agentbench.metrics.builtin import METRICS
from pytest_agentbench.metrics.registry import asks_model, measure, measure_trace, takes_long, takes_trace
from pytest_agentbench.metrics.tool_use import TOOL_USE_METRICS
from pytest_agentbench.records.base import Record
from pytest_agentbench.records.case import Case, MetricSpec
from pytest_agentbench.records.evaluation import CheckResult, Evaluation, JudgeResult, MetricResult, Outcome
from pytest_agentbench.records.run import RunArtifact, ToolCallEvent
from pytest_agentbench.runners.kinds import answers_with_files
from pytest_agentbench.store.fingerprints import fingerprint, metric_judge_input, rubric_input
from pytest_agentbench.store.redaction import REDACTED

if TYPE_CHECKING:
    from pytest_agentbench.engine.registry import Registry
    from pytest_agentbench.records.check_specs import Check


def wants_judge(case: Case, profile: EvaluationProfile, graders: Sequence[Grader] | None = None) -> bool:
    """Return whether a judge is asked: the profile has one, and the case gives it a measure or nothing else decides.

    A grader may want it otherwise. `graders` are the case's, None: those of its parts.
    """
    if not profile.judge_runs:
        return False
    wants = [grader.wants_judge(case) for grader in (graders_of(case) if graders is None else graders)]
    if (wish := next((each for each in wants if each is not None), None)) is not None:
        return wish
    expectations = case.expectations
    measured = case.rubric or expectations.hard_expectations or expectations.soft_expectations
    is_measured = bool(measured) or any(part.measure for part in case.case_parts)
    return is_measured or not (case.checks or case.verify or _gating_metrics(case, profile))


def is_judged(case: Case, artifact: RunArtifact) -> bool:
    """Return whether a model may weigh the run: not where it failed by its status already, unless the case expects
    that.
    """
    return artifact.status == "success" or (artifact.status in case.expects_status and bool(artifact.final_output))


def require_decision(case: Case, profile: EvaluationProfile, graders: Sequence[Grader] | None = None) -> None:
    """Raise ConfigError for a case that nothing can fail, before anything is paid for it."""
    if case.report_only or case.verify:
        return
    graders = graders_of(case) if graders is None else graders
    if any(grader.decides(case) for grader in graders):
        return
    if wants_judge(case, profile, graders) or _gating_metrics(case, profile):
        return
    hooks_run = profile.security_policy.allow_local_python_hooks
    if any(check.declarative is not None or hooks_run for check in case.checks):
        return
    if case.checks:
        raise ConfigError(
            f"{case.path}:{case.line}: nothing decides this case: its only checks are Python hooks, which are off; "
            "set security_policy.allow_local_python_hooks: true in an evaluation profile that you trust them with"
        )
    if (said := next(filter(None, (grader.undecided(case) for grader in graders)), None)) is not None:
        raise ConfigError(f"{case.path}:{case.line}: {said}")
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
    """Return the case's own metrics, the profile's further ones that apply, and those of every case with MCP servers.

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
    grades: Mapping[Grader, Grade] = MappingProxyType({}),
) -> Evaluation:
    """Return what checks, metrics, judges and graders come to together.

    What fails is certain, so it wins over what could not be told; both are said. A status other than success fails a
    case unless a `status_is` check names it. The judge's score decides with its threshold, unless a grade is final.
    """
    final = next((grade for grade in grades.values() if grade.is_final), None)
    failures = [*_run_failures(case, artifact, grades), *_failures(checks, metrics)]
    failures += [line for grade in grades.values() for line in grade.failures]
    failures += _judge_failures(case, judged, final) if judged is not None else []
    errors = [f"check {c.check_id}: {c.message}" for c in checks if c.outcome == "error"]
    errors += [f"metric {m.name}: {m.error}" for m in metrics if m.error is not None]
    errors += [line for grade in grades.values() for line in grade.errors]
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
        parts=parts_of(grades),
        final_score=final.final_score if final is not None else judged.overall if judged is not None else None,
        outcome=outcome,
        reasons=tuple(failures),
        error="; ".join(errors) or None,
    )


def parts_of(grades: Mapping[Grader, Grade]) -> dict[str, Record]:
    """Return the parts of an evaluation that graders have made."""
    made = ((grader.part_name, grade.record) for grader, grade in grades.items())
    return {name: record for name, record in made if name is not None and record is not None}


def _run_failures(case: Case, artifact: RunArtifact, graders: Iterable[Grader]) -> Sequence[str]:
    for grader in graders:
        if lines := grader.run_failures(case, artifact):
            return lines
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


def _judge_failures(case: Case, judged: JudgeResult, final: Grade | None) -> list[str]:
    failures = []
    bar = bar_of(judged.pass_threshold)
    if final is None and not judged.passed:
        failures.append(f"judge: overall {judged.overall:.2f} of 10, expected at least {bar:.2f} ({judged.method})")
    if case.require_hard:
        failures += [f"judge: hard expectation not met: {text}" for text in judged.unmet_hard]
    return failures


_NAMED = 5
"""How many differing verdicts warnings name; that there are others is told once."""
_LOOKS_AT_FILES = frozenset({"file_exists", "path_exists", "file_contains"})
_NEAR = 1e-9


class Rechecks:
    """Compares stored verdicts with what they come to now. For the engine's loop."""

    def __init__(self) -> None:
        self._differing = 0

    async def believed(
        self, registry: Registry, job: Job, case: Case, artifact: RunArtifact, stored: Evaluation
    ) -> Evaluation | None:
        """Return the stored verdict, or what counts instead where it differs; None for one that is not whole.

        Told again are checks of the run's answer and trace, metrics that ask no model and are done at once, and what
        all results come to together. What needs the workspace, a process, a judge or code of others stays as it is
        stored, and so does a result that needs what is not installed here.
        """
        profile = job.plan.evaluation_profile
        checks = {check.check_id: check for check in stored.checks}
        metrics = {metric.name: metric for metric in stored.metrics}
        specs = metrics_of(case, profile)
        graders = graders_of(case, registry.graders)
        if wants_judge(case, profile, graders) and is_judged(case, artifact) and stored.judge is None:
            return None
        if any(check.check_id not in checks for check in case.checks) or any(
            spec.name not in metrics for spec in specs
        ):
            return None
        free = tuple(check for check in case.checks if _is_free(registry, case, check, artifact))
        differing = []
        if free:
            looked_at = case if len(free) == len(case.checks) else case.model_copy(update={"checks": free})
            context = CheckContext(looked_at, artifact, None, registry.metrics, profile.compat)
            for check in await run_checks(context, profile.security_policy, registry.checks):
                if check.outcome not in ("error", checks[check.check_id].outcome):
                    checks[check.check_id] = check
                    differing.append(f"check {check.check_id}")
        for metric in _measured(registry, case, specs, artifact):
            if metric.error is None and not _alike(metric, metrics[metric.name]):
                metrics[metric.name] = metric
                differing.append(f"metric {metric.name}")
        told = verdict(
            case,
            profile,
            artifact,
            [*checks.values()],
            [*metrics.values()],
            stored.judge,
            stored.fingerprint,
            regrade(graders, case, artifact, [*metrics.values()], stored.judge, stored.parts),
        )
        if told.outcome == stored.outcome and told.final_score == stored.final_score and not differing:
            return stored
        kept = _is_redacted(artifact)
        self._tell(job, case, stored, told, differing, kept=kept)
        if kept:
            return stored
        return told.model_copy(update={"judge_usage": stored.judge_usage, "cassette": stored.cassette})

    def _tell(
        self, job: Job, case: Case, stored: Evaluation, told: Evaluation, differing: Sequence[str], *, kept: bool
    ) -> None:
        self._differing += 1
        warn = job.plan.lane.warn
        if self._differing > _NAMED:
            warn("further stored verdicts differ from what their runs come to now, as those above")
            return
        where = f" ({', '.join(differing[:3])}{', ...' if len(differing) > 3 else ''})" if differing else ""
        counts = "the stored one counts, for the run is stored without its secrets" if kept else "the latter counts"
        warn(
            f"{case.case_id} [{job.plan.model_id}] repetition {job.repetition}: the stored verdict is "
            f"{_shown(stored)}, the stored run comes to {_shown(told)}{where}: {counts}"
        )


def _shown(evaluation: Evaluation) -> str:
    score = evaluation.final_score
    return evaluation.outcome if score is None else f"{evaluation.outcome} with {score:g} of 10"


def _is_free(registry: Registry, case: Case, check: Check, artifact: RunArtifact) -> bool:
    """Return whether a check is our code and looks at the run's answer, trace and figures only."""
    spec = check.declarative
    if spec is None or check.kind in _LOOKS_AT_FILES or getattr(spec, "path", None) is not None:
        return False
    if check.kind == "final_response_present" and answers_with_files(artifact.runner_type):
        return False  # files that the agent left may stand for its answer
    if check.kind == "metric":
        name = getattr(spec, "name", "")
        return _is_cheap(registry, name, case.reference or "", artifact.final_output or "")
    return check.kind in BUILTIN_CHECKS and registry.checks.get(check.kind) is BUILTIN_CHECKS[check.kind]


def _is_cheap(registry: Registry, name: str, reference: str, output: str) -> bool:
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
    metrics, reference, output = registry.metrics, case.reference or "", artifact.final_output or ""
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
    """Return whether what was weighed may have held more than is stored."""
    calls = (str(event.arguments) for event in artifact.trace if isinstance(event, ToolCallEvent))
    return REDACTED in (artifact.final_output or "") or any(REDACTED in call for call in calls)


PANEL = "judge"
"""What the judges of the evaluation profile are called, in all places where metrics go by their names."""

_DIGITS = 16


def judged_by(job: Job, case: Case, evaluation: Evaluation | None) -> list[dict[str, Any]]:
    """Return the verdicts of models on a run: those of the profile's judges together, and of each metric that took
    votes.

    `judge` and `rubric` are 16 hex digits over everything that makes the judge and the measure what they are; `score`
    is the judges' overall score (0-10), None of votes.
    """
    if evaluation is None:
        return []
    found = [*_panel(job, evaluation.judge), *_votes(job, case, evaluation)]
    rubric = rubric_hash(case) if found else None
    return [{**each, "rubric": rubric} for each in found]


def rubric_hash(case: Case) -> str:
    """16 hex digits over what the case measures a run by."""
    return fingerprint(rubric_input(case))[:_DIGITS]


def _panel(job: Job, judged: JudgeResult | None) -> Iterator[dict[str, Any]]:
    if judged is not None:
        yield {
            "by": PANEL,
            "judge": job.plan.judge_hash[:_DIGITS],
            "models": sorted({iteration.model for iteration in judged.iterations}),
            "passed": judged.passed,
            "score": judged.overall,
        }


def _votes(job: Job, case: Case, evaluation: Evaluation) -> Iterator[dict[str, Any]]:
    """Metrics by their names in report.json: one that is used twice is `name`, `name-2`, ..."""
    used: dict[str, int] = {}
    for spec, result in zip(metrics_of(case, job.plan.evaluation_profile), evaluation.metrics, strict=False):
        used[result.name] = number = used.get(result.name, 0) + 1
        if not result.details.get("votes") or result.score is None:
            continue
        yield {
            "by": result.name if number == 1 else f"{result.name}-{number}",
            "judge": fingerprint(metric_judge_input(spec, job.judges))[:_DIGITS],
            "models": [result.details["model"]] if result.details.get("model") else [],
            "passed": result.score > 0.5,
            "score": None,
        }
