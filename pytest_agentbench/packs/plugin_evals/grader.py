"""The seam of graders: the metric `graders` and one named result for each grader of a case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pytest_agentbench.engine.grading import AskingGrader, Grade, GradeRequest
from pytest_agentbench.errors import JudgeError
from pytest_agentbench.packs.plugin_evals.deciding import NOT_SCORED, decide, is_about_plugin, make_result
from pytest_agentbench.packs.plugin_evals.evidence import NoTargetError, RunEvidence
from pytest_agentbench.packs.plugin_evals.records import (
    PART,
    GraderResult,
    LlmGrader,
    PluginEval,
    PluginEvalGrades,
    weigh,
)
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.evaluation import MetricResult

if TYPE_CHECKING:
    from pytest_agentbench.engine.grading import GradingServices
    from pytest_agentbench.engine.job import Job

METRIC = "graders"
_VERSION = 1
"""Part of the identity of verdicts: raised if graders decide differently."""


class PluginEvalGrader(AskingGrader):
    """Grader of a plugin's evals: the weighted share of graders that pass must be 1."""

    part_name = PART
    decides = True

    def identity(self, services: GradingServices, job: Job, case: Case) -> Mapping[str, Any]:
        """Return the graders, and whether arms are compared."""
        from pytest_agentbench.packs.plugin_evals.judging import PROMPT_VERSION

        part = case.part(PluginEval)
        return {PART: [_VERSION, PROMPT_VERSION, part, _compares_arms(job)]}

    def asks(self, case: Case) -> bool:
        """Return whether one of the graders asks a judge."""
        part = case.part(PluginEval)
        return part is not None and part.asks_judge

    async def grade(self, request: GradeRequest) -> Grade:
        """Return the results of all graders, and the metric of their weighted share."""
        part = request.case.part(PluginEval)
        if part is None or not part.graders:
            return Grade()
        run = RunEvidence(request.artifact, request.workspace, frozenset(part.mock_tools))
        results: list[GraderResult] = []
        errors: list[str] = []
        if broken := run.list_broken_mocks():
            return Grade(errors=tuple(f"aborted: {text}" for text in broken))
        unscored = _list_unscored(part, request.job)
        for grader in part.graders:
            if grader.name in unscored:
                results.append(make_result(grader, None, NOT_SCORED))
                continue
            try:
                result = await _judge(grader, run, request) if isinstance(grader, LlmGrader) else decide(grader, run)
            except JudgeError as error:
                errors.append(f"grader {grader.name}: {error}")
                result = make_result(grader, None, f"no vote: {error}")
            results.append(result)
        record = PluginEvalGrades(graders=tuple(results))
        return Grade(metrics=(_measure(results),), record=record, failures=record.failures, errors=tuple(errors))


def _compares_arms(job: Job) -> bool:
    return job.plan.variant_name is not None


def _list_unscored(part: PluginEval, job: Job) -> frozenset[str]:
    """Return the graders that count in no arm of a comparison; none if nothing else is left."""
    if not _compares_arms(job):
        return frozenset()
    names = frozenset(grader.name for grader in part.graders if is_about_plugin(grader))
    if len(names) == len(part.graders):
        return frozenset()
    return names


async def _judge(grader: LlmGrader, run: RunEvidence, request: GradeRequest) -> GraderResult:
    """Return the result of three votes. No judge sees a run that did not end well."""
    from pytest_agentbench.engine.evaluation import is_judged, make_metric_context
    from pytest_agentbench.packs.plugin_evals.judging import ask_judge

    if not is_judged(request.case, request.artifact):
        return make_result(grader, False, f"the run ended {request.artifact.status}, so no judge was asked")
    try:
        text = run.read(grader.focus)
    except NoTargetError as error:
        return make_result(grader, False, str(error))
    context = make_metric_context(request.services, request.job.plan, request.case, request.tape)
    measured = await ask_judge(grader, text, context)
    if measured.usage is not None:
        request.services.spend("judge", [measured.usage], request.tape)
    votes = [vote["correct"] for vote in measured.details["votes"]]
    message = f"{sum(votes)} of {len(votes)} votes: {measured.details['reason']}"
    return make_result(grader, measured.score == 1, message)


def _measure(results: list[GraderResult]) -> MetricResult:
    """Return the metric: an error if no grader counts."""
    score = weigh(results)
    if score is None:
        reasons = "; ".join(f"{result.name}: {result.message}" for result in results if result.outcome == "skipped")
        return MetricResult(
            name=METRIC, score=None, threshold=1.0, error=f"no grader counts: {reasons or 'all weights are 0'}"
        )
    return MetricResult(name=METRIC, score=score, threshold=1.0, passed=score >= 1.0)


GRADER = PluginEvalGrader()
