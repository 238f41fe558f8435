"""Grade runs of MCP tasks: by the rules of their calls and by what judges say of how tools were used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_agentbench.engine.grading import Grade, Grader, GradeRequest
from pytest_agentbench.judging.verdicts import bar_of
from pytest_agentbench.packs.mcp_bench.records import MCP_TASK, TOOL_USE, McpTask
from pytest_agentbench.packs.mcp_bench.scores import measure_tool_use, parts_of
from pytest_agentbench.records.base import Record
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.evaluation import JudgeResult, MetricResult
from pytest_agentbench.records.run import RunArtifact

if TYPE_CHECKING:
    from pytest_agentbench.config.profiles import EvaluationProfile
    from pytest_agentbench.engine.grading_services import GradingServices
    from pytest_agentbench.engine.job import Job
    from pytest_agentbench.judging.prompt import Assessment

_UNDECIDED = (
    "nothing decides this MCP task; name an evaluation profile with a judge, or a metric with a threshold "
    "(--agentbench-metric 'execution_success_rate>=0.9')"
)


class ToolUseGrader(Grader):
    """Grades MCP tasks. The overall score decides, of which the judge's is a part (spec/mcp.md)."""

    part_name = TOOL_USE

    def identity(self, services: GradingServices, job: Job, case: Case) -> Mapping[str, Any]:
        """Return the task and how its judges are asked."""
        from pytest_agentbench.packs.mcp_bench.judge import tool_use_identity

        return {MCP_TASK: case.part(McpTask), "tool_use_judge": tool_use_identity(job.plan.evaluation_profile)}

    def undecided(self, case: Case) -> str:
        """Return what to say of a task without a judge."""
        return _UNDECIDED

    def assessment(
        self, case: Case, artifact: RunArtifact, profile: EvaluationProfile, redact: Callable[[Any], Any]
    ) -> Assessment:
        """Return how judges are asked about the use of tools."""
        from pytest_agentbench.packs.mcp_bench.judge import tool_use_assessment

        return tool_use_assessment(case, artifact, profile, redact)

    def request_notes(self, tools: Mapping[str, str]) -> Mapping[str, Any]:
        """Return the tools that were offered, with their descriptions."""
        from pytest_agentbench.packs.mcp_bench.judge_prompts import tools_shown

        return tools_shown(tools)

    async def grade(self, request: GradeRequest) -> Grade:
        """Return the overall score and its parts."""
        return _grade(request.case, request.artifact, request.metrics, request.judged)

    def regrade(
        self,
        case: Case,
        artifact: RunArtifact,
        metrics: Sequence[MetricResult],
        judged: JudgeResult | None,
        record: Record | None,
    ) -> Grade:
        """Return the same again, for it costs nothing."""
        return _grade(case, artifact, metrics, judged)


def _grade(case: Case, artifact: RunArtifact, metrics: Sequence[MetricResult], judged: JudgeResult | None) -> Grade:
    task = case.part(McpTask)
    assert task is not None
    found = measure_tool_use(task, artifact, metrics, judged)
    score = None if found.overall is None else round(10 * found.overall, 9)
    bar = bar_of(judged.pass_threshold) if judged is not None else 0.0
    failed = score is not None and score < bar
    said = f"overall {score:.2f} of 10, expected at least {bar:.2f} ({parts_of(found)})" if failed else None
    return Grade(record=found, failures=(said,) if said else (), final_score=score, is_final=True)


GRADER = ToolUseGrader()
