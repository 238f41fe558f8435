"""The scores of MCP tasks (spec/mcp.md): a run's overall score, and a model's figures in MCP-Bench's tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import fsum
from typing import Any

from pytest_agentbench.metrics.tool_use import RULES, TOOL_USE_METRICS
from pytest_agentbench.packs.mcp_bench.records import TOOL_USE_DIMENSIONS, McpTask, ToolUse
from pytest_agentbench.records.evaluation import Evaluation, JudgeResult, MetricResult
from pytest_agentbench.records.run import RunArtifact
from pytest_agentbench.reports.gate import CaseKey, case_key
from pytest_agentbench.statistics.estimates import mean, pair, score_interval, wilson_interval

_PAIRS = tuple(zip(TOOL_USE_DIMENSIONS[::2], TOOL_USE_DIMENSIONS[1::2], strict=True))
"""The two dimensions of each axis: completion of the task, selection of tools, planning."""


def measure_tool_use(
    task: McpTask, artifact: RunArtifact, metrics: Sequence[MetricResult], judged: JudgeResult | None
) -> ToolUse:
    """Return what the tables say of a run of an MCP task.

    `overall` is the mean of the rules and the three axes; without calls, and so without rules, that of the axes; None
    without a judge: rules alone do not tell whether the task was done.
    """
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
    """Return the four parts of the overall score, as people read them."""
    parts = {
        "rules": tool_use.rules,
        "task completion": tool_use.task_completion,
        "tool selection": tool_use.tool_selection,
        "planning": tool_use.planning,
    }
    return ", ".join(f"{name} {'-' if value is None else f'{value:.2f}'}" for name, value in parts.items())


def judges_cv_percent(judged: JudgeResult) -> float | None:
    """Return how far several judge models differ on task completion (0-10): sigma / mu over their means, in percent
    (6.4).

    Each judge's mean is over its own iterations; sigma is the population's. None for fewer than two judges.
    """
    from pytest_agentbench.packs.mcp_bench.judge import cv_percent, task_completion

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


Row = dict[str, Any]
Task = Sequence[Mapping[str, float | None]]
"""The figures of the repetitions of one task."""

_SHARES = ("completed", "cross_server")
_OF_THE_RUN = (
    *("overall", "rules", "task_completion", "tool_selection", "planning", *_SHARES),
    *("rounds", "calls", "servers_used", "cv_percent", "judges_cv_percent"),
)
_GROUPS = ("total", "single_server", "multi_server")
FIGURES = (*TOOL_USE_METRICS, *TOOL_USE_DIMENSIONS, *_OF_THE_RUN, "tokens")
"""What is averaged over tasks: rates and the parts of the overall score 0-1, dimensions 1-10, the rest as it is."""


def tool_use_row(evaluation: Evaluation | None) -> Row | None:
    """Return a row's `tool_use`: the record, and both coefficients of variation of its judging.

    None for other cases.
    """
    if evaluation is None or (found := evaluation.part(ToolUse)) is None:
        return None
    judge = evaluation.judge
    return {
        **found.model_dump(),
        "cv_percent": judge and judge.cv_percent,
        "judges_cv_percent": judge and judges_cv_percent(judge),
    }


def model_tool_use(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the figures of one model's rows: of all tasks, of those with one server and with several, and by their
    number.

    None where no row is of an MCP task. A group is `{tasks, runs, figures: {name: {mean, ci95, tasks}}}`: means over
    tasks, of a task the mean of its repetitions; what is unknown of a task is left out, so that `tasks` of a figure may
    be fewer. The total is thereby the task-weighted mean of its groups.
    """
    tasks: dict[CaseKey, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        if row.get("tool_use") is not None:
            tasks[case_key(row)].append(row)
    if not tasks:
        return None
    by_servers: dict[int, list[Task]] = defaultdict(list)
    for task in tasks.values():
        by_servers[task[0]["tool_use"]["servers"]].append([_figures(row) for row in task])
    groups = {servers: _group(by_servers[servers]) for servers in sorted(by_servers)}

    def together(*counts: int) -> dict[str, Any] | None:
        if len(counts) == 1:
            return groups[counts[0]]
        return _group([task for servers in counts for task in by_servers[servers]])

    return {
        "total": together(*groups),
        "single_server": groups.get(1),
        "multi_server": together(*(servers for servers in groups if servers > 1)),
        "by_servers": {str(servers): group for servers, group in groups.items()},
    }


def overall_scores(groups: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the overall scores in what `model_tool_use` returned: total, single-server, multi-server, where known."""
    return {name: group["figures"]["overall"]["mean"] for name, group in groups.items() if name in _GROUPS and group}


def tool_use_line(group: Mapping[str, Any], dash: str) -> str:
    """Return a group in a line, for people."""
    means = {name: figure["mean"] for name, figure in group["figures"].items()}

    def shown(name: str, form: str) -> str:
        return dash if means[name] is None else format(means[name], form)

    rates = zip(("tool names", "arguments", "calls"), RULES, strict=True)
    valid = ", ".join(f"{what} {shown(name, '.1%')}" for what, name in rates)
    effort = ", ".join(f"{shown(name, '.1f')} {name}" for name in ("rounds", "calls"))
    tasks = f"{group['tasks']:,} task{'' if group['tasks'] == 1 else 's'}"
    return f"overall {shown('overall', '.3f')}; valid {valid}; {effort} per task, {tasks}"


def _group(tasks: Sequence[Task]) -> dict[str, Any] | None:
    if not tasks:
        return None
    figures = {name: _figure(name, [[run[name] for run in task] for task in tasks]) for name in FIGURES}
    return {"tasks": len(tasks), "runs": sum(map(len, tasks)), "figures": figures}


def _figures(row: Mapping[str, Any]) -> dict[str, float | None]:
    """Return one run's figures; what is not in the row is unknown."""
    judge, usage = row["judge"] or {}, row["usage"] or {}
    return {
        **{name: row["metrics"].get(name) for name in TOOL_USE_METRICS},
        **{name: judge.get(name) for name in TOOL_USE_DIMENSIONS},
        **{name: row["tool_use"].get(name) for name in _OF_THE_RUN},
        "tokens": usage.get("total_tokens"),
    }


def _figure(name: str, tasks: Sequence[Sequence[float | None]]) -> dict[str, Any]:
    known = [found for task in tasks if (found := [float(value) for value in task if value is not None])]
    sample = known[0] if len(known) == 1 else [fsum(task) / len(task) for task in known]
    if name in _SHARES:
        interval = wilson_interval(fsum(sample), len(sample))
    else:
        interval = score_interval([[value] for value in sample], (1.0, 10.0) if name in TOOL_USE_DIMENSIONS else None)
    return {"mean": mean(sample), "ci95": pair(interval), "tasks": len(known)}
