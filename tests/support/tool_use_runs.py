"""Make runs of MCP tasks by hand: calls in order, ends, verdicts of judges, rows of reports."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytest_agentbench.config.profiles import EvaluationProfile
from pytest_agentbench.engine.evaluation import verdict
from pytest_agentbench.engine.grading import MeasuredRun, graders_of, regrade
from pytest_agentbench.metrics.registry import METRICS, measure_trace, metrics_of
from pytest_agentbench.packs.mcp_bench.judge import aggregate_tool_use
from pytest_agentbench.packs.mcp_bench.records import TOOL_USE_DIMENSIONS, McpTask
from pytest_agentbench.records.case import Case, Model, RunnerSpec
from pytest_agentbench.records.evaluation import Evaluation, JudgeIteration, JudgeResult, JudgeVerdict, Scored
from pytest_agentbench.records.run import (
    FinalOutputEvent,
    RunArtifact,
    RunError,
    RunnerEvent,
    ToolCallEvent,
    ToolResultEvent,
    Usage,
)
from pytest_agentbench.reports.rows import run_row

PROFILE = EvaluationProfile.default()


def called(name: str, *, offered: bool | None = True, schema_valid: bool | None = True, call_id: str = "1", **_: Any):
    """Return the event of a call; `run` sets `sequence`."""
    arguments: dict[str, Any] = {}
    return ToolCallEvent(
        sequence=0, at=0.0, call_id=call_id, name=name, arguments=arguments, offered=offered, schema_valid=schema_valid
    )


def result(name: str, content: str = "fine", *, is_error: bool = False, call_id: str = "1"):
    return ToolResultEvent(sequence=0, at=0.0, call_id=call_id, name=name, content=content, is_error=is_error)


def use(name: str, content: str = "fine", *, is_error: bool = False, call_id: str = "1", **call: Any):
    """Return a call and its result."""
    return [called(name, call_id=call_id, **call), result(name, content, is_error=is_error, call_id=call_id)]


def note(name: str, **data: Any):
    return RunnerEvent(sequence=0, at=0.0, name=name, data=data)


def run(
    *events: Any,
    status: str = "success",
    runner_type: str = "mcp_planner",
    answer: str | None = "done",
    usage: Usage | None = None,
):
    """Return a run with these events, with lists of them flattened."""
    flat = [each for event in events for each in (event if isinstance(event, list) else [event])]
    flat += [] if answer is None else [FinalOutputEvent(sequence=0, at=0.0, content=answer)]
    return RunArtifact(
        run_id="r",
        case_id="t",
        runner_type=runner_type,
        model={"model_id": "m"},
        repetition=1,
        status=status,  # type: ignore[arg-type]
        error=None if status == "success" else RunError(code=status, message="because"),
        started_at=datetime(2026, 1, 2, tzinfo=UTC),
        duration_seconds=1.0,
        usage=usage or Usage(),
        trace=tuple(event.model_copy(update={"sequence": at}) for at, event in enumerate(flat)),
    )


def task(*servers: str, case_id: str = "t", **fields: Any) -> Case:
    """Return an MCP task; `fields` are those of McpTask."""
    return Case(
        case_id=case_id,
        title="T",
        path=Path("tasks.json"),
        runner=RunnerSpec(type="mcp_planner"),
        mcp_servers=dict.fromkeys(servers),
        parts={"mcp_task": McpTask(servers=servers, fuzzy="do it", **fields)},
    )


def judgement(
    *shuffles: Sequence[float], pass_threshold: float = 0.5, **judges: Sequence[Sequence[float]]
) -> JudgeResult:
    """Return the verdicts of one judge in several shuffles, six scores each, or of several judges by their ids."""
    iterations = [
        JudgeIteration(
            judge_run_id=name,
            judge_id=name,
            model=name,
            repetition=number,
            status="success",
            verdict=JudgeVerdict(
                summary="It misses half.",
                dimensions={
                    dimension: Scored(score=score) for dimension, score in zip(TOOL_USE_DIMENSIONS, scores, strict=True)
                },
                overall=Scored(score=sum(scores) / 6),
            ),
        )
        for name, said in {**({"one": shuffles} if shuffles else {}), **judges}.items()
        for number, scores in enumerate(said, 1)
    ]
    return aggregate_tool_use(iterations, pass_threshold=pass_threshold)


def evaluated(case: Case, artifact: RunArtifact, judged: JudgeResult | None = None) -> Evaluation:
    """Return the verdict with every metric of the case."""
    metrics = [measure_trace(spec, case, artifact, METRICS) for spec in metrics_of(case, PROFILE)]
    grades = regrade(graders_of(case), MeasuredRun(case=case, artifact=artifact, metrics=metrics, judged=judged))
    return verdict(case, PROFILE, artifact, (), metrics, judged, grades=grades)


def task_row(
    case: Case, artifact: RunArtifact, judged: JudgeResult | None = None, model: str = "gpt", repetition: int = 1
) -> dict[str, Any]:
    """Return the entry of `runs[]` in report.json."""
    evaluation = evaluated(case, artifact, judged)
    suffix = model if repetition == 1 else f"{model}-r{repetition}"
    return run_row(
        f"tasks.json::{case.case_id}[{suffix}]",
        case,
        Model(model_id=model, requested_model=model),
        repetition,
        artifact,
        evaluation,
        duration_seconds=1.0,
        reused=False,
        evaluation_reused=False,
        artifact_path=None,
        outcome=evaluation.outcome,
        message=None,
    )
