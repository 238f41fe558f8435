"""Grade runs of MCP tasks: by rules on their calls and by judges' scores of tool use (spec/mcp.md).

Sessions import this with the first MCP task, and the judge and its prompts only if a judge is configured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_agentbench.engine.grading import FreeGrader, Grade, JudgePromptGrader, MeasuredRun
from pytest_agentbench.judging.verdicts import bar_of
from pytest_agentbench.metrics.registry import RULES
from pytest_agentbench.packs.mcp_bench.records import MCP_TASK, TOOL_USE, TOOL_USE_DIMENSIONS, McpTask, ToolUse
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.evaluation import JudgeResult, MetricResult
from pytest_agentbench.records.run import SERVERS_NOTE, RunArtifact
from pytest_agentbench.statistics.estimates import mean_known

if TYPE_CHECKING:
    from pytest_agentbench.config.profiles import EvaluationProfile
    from pytest_agentbench.engine.grading import GradingServices
    from pytest_agentbench.engine.job import Job
    from pytest_agentbench.judging.prompt import Assessment

_PAIRS = tuple(zip(TOOL_USE_DIMENSIONS[::2], TOOL_USE_DIMENSIONS[1::2], strict=True))
"""The two dimensions of each axis: completion of the task, selection of tools, planning."""


class ToolUseGrader(FreeGrader, JudgePromptGrader):
    """Grader of MCP tasks. The overall score decides; the judge's score is a part of it (spec/mcp.md)."""

    part_name = TOOL_USE
    undecided = (
        "nothing decides this MCP task; name an evaluation profile with a judge, or a metric with a threshold "
        "(--agentbench-metric 'execution_success_rate>=0.9')"
    )

    def identity(self, services: GradingServices, job: Job, case: Case) -> Mapping[str, Any]:
        """Return the task and how its judges are asked."""
        from pytest_agentbench.packs.mcp_bench.judge import make_identity

        return {MCP_TASK: case.part(McpTask), "tool_use_judge": make_identity(job.plan.evaluation_profile)}

    def assessment(
        self, case: Case, artifact: RunArtifact, profile: EvaluationProfile, redact: Callable[[Any], Any]
    ) -> Assessment:
        """Return how judges are asked about the use of tools."""
        from pytest_agentbench.packs.mcp_bench.judge import make_assessment

        return make_assessment(case, artifact, profile, redact)

    def request_notes(self, tools: Mapping[str, str]) -> Mapping[str, Any]:
        """Return the tools that were offered, with their descriptions."""
        from pytest_agentbench.packs.mcp_bench.judge_prompts import make_tools_note

        return make_tools_note(tools)

    def compute(self, run: MeasuredRun) -> Grade:
        """Return the overall score and its parts."""
        task = run.case.part(McpTask)
        assert task is not None
        tool_use = measure_tool_use(task, run.artifact, run.metrics, run.judged)
        if tool_use.overall is None or run.judged is None:
            return Grade(record=tool_use, is_final=True)
        # Rounded: a computed mean of 6.999999999999999 would miss a threshold of 7.
        score, bar = round(10 * tool_use.overall, 9), bar_of(run.judged.pass_threshold)
        failures: tuple[str, ...] = ()
        if score < bar:
            failures = (f"overall {score:.2f} of 10, expected at least {bar:.2f} ({tool_use.parts_line})",)
        return Grade(record=tool_use, failures=failures, final_score=score, is_final=True)


def measure_tool_use(
    task: McpTask, artifact: RunArtifact, metrics: Sequence[MetricResult], judged: JudgeResult | None
) -> ToolUse:
    """Return the figures of a run of an MCP task for the tables.

    `overall` is the mean of the rules and the three axes; without calls there are no rules, and it is the mean of the
    axes. None without a judge: rules alone cannot decide whether the task was done.
    """
    # The agent invented names that no server offers, even if they have a known server's prefix.
    called = {call.name for call in artifact.tool_calls if call.offered is not False}
    used = [server for server in task.servers if any(name.startswith(f"{server}:") for name in called)]
    scores = {metric.name: metric.score for metric in metrics}
    # Unknown rates are left out: a run without calls has none, which is neither 0 nor 1 (spec/mcp.md).
    rules = mean_known([scores.get(name) for name in RULES])
    note = artifact.metadata.get(SERVERS_NOTE, {})
    distractors = note.get("optional")
    axes: list[float | None] = [None, None, None]
    overall = None
    if judged is not None:
        axes = [_average_pair(judged.dimensions, pair) for pair in _PAIRS]
        overall = mean_known([rules, *axes])
    return ToolUse(
        servers=len(task.servers),
        servers_used=len(used),
        cross_server=len(used) > 1,
        rounds=artifact.rounds,
        calls=len(artifact.tool_calls),
        completed=artifact.status == "success" and bool((artifact.final_output or "").strip()),
        rules=rules,
        task_completion=axes[0],
        tool_selection=axes[1],
        planning=axes[2],
        overall=overall,
        distractors=distractors,
        distractors_offered=None if distractors is None else distractors - len(note["left_out"]),
    )


def _average_pair(dimensions: Mapping[str, float], pair: tuple[str, str]) -> float:
    # Two scores of at most 10 each, as a share of 1.
    return (dimensions[pair[0]] + dimensions[pair[1]]) / 20


GRADER = ToolUseGrader()
