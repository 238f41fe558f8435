"""The overall score of an MCP task: rules and judge together (spec/mcp.md, Overall)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import fsum

from pytest_agentbench.metrics.tool_use import RULES
from pytest_agentbench.records import (
    TOOL_USE_DIMENSIONS,
    Case,
    JudgeResult,
    MetricResult,
    RunArtifact,
    ToolUse,
)

_PAIRS = tuple(zip(TOOL_USE_DIMENSIONS[::2], TOOL_USE_DIMENSIONS[1::2], strict=True))
"""The two dimensions of each axis: completion of the task, selection of tools, planning."""


def tool_use_of(
    case: Case, artifact: RunArtifact, metrics: Sequence[MetricResult], judged: JudgeResult | None
) -> ToolUse | None:
    """What the tables say of a run of an MCP task, None for any other case.

    `overall` is the mean of the rules and the three axes; without calls, and so without rules, that of the axes; None
    without a judge: rules alone do not tell whether the task was done.
    """
    task = case.mcp_task
    if task is None:
        return None
    called = {call.name for call in artifact.tool_calls if call.offered is not False}
    used = [server for server in task.servers if any(name.startswith(f"{server}:") for name in called)]
    scores = {metric.name: metric.score for metric in metrics}
    rules = _mean([scores.get(name) for name in RULES])
    axes = [_axis(judged.dimensions, pair) for pair in _PAIRS] if judged is not None else [None, None, None]
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
        overall=_mean([rules, *axes]) if judged is not None else None,
    )


def parts_of(tool_use: ToolUse) -> str:
    """The four parts of the overall score, as people read them."""
    parts = {
        "rules": tool_use.rules,
        "task completion": tool_use.task_completion,
        "tool selection": tool_use.tool_selection,
        "planning": tool_use.planning,
    }
    return ", ".join(f"{name} {'-' if value is None else f'{value:.2f}'}" for name, value in parts.items())


def judges_cv_percent(judged: JudgeResult) -> float | None:
    """How far several judge models differ on task completion (0-10): sigma / mu over their means, in percent (6.4).

    Each judge's mean is over its own iterations; sigma is the population's. None for fewer than two judges.
    """
    from pytest_agentbench.judging import cv_percent, task_completion

    by_judge: dict[str, list[float]] = defaultdict(list)
    for iteration in judged.iterations:
        if iteration.verdict is not None:
            by_judge[iteration.judge_id].append(task_completion(iteration.verdict))
    return cv_percent([fsum(scores) / len(scores) for scores in by_judge.values()])


def _axis(dimensions: Mapping[str, float], pair: tuple[str, str]) -> float:
    return (dimensions[pair[0]] + dimensions[pair[1]]) / 20


def _mean(values: Sequence[float | None]) -> float | None:
    """Of those there are."""
    known = [value for value in values if value is not None]
    return fsum(known) / len(known) if known else None
