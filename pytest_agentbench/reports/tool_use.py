"""What MCP tasks say of a model: the figures of MCP-Bench's tables, by how many servers a task has (seed 004, 6)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import fsum
from typing import Any

from pytest_agentbench.metrics import RULES, TOOL_USE_METRICS, judges_cv_percent
from pytest_agentbench.records import TOOL_USE_DIMENSIONS, Evaluation
from pytest_agentbench.reports.cases import CaseKey, case_key
from pytest_agentbench.reports.statistics import mean, pair, score_interval, wilson_interval

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
    """A row's `tool_use`: the record, and both coefficients of variation of its judging. None for other cases."""
    if evaluation is None or evaluation.tool_use is None:
        return None
    judge = evaluation.judge
    return {
        **evaluation.tool_use.model_dump(),
        "cv_percent": judge and judge.cv_percent,
        "judges_cv_percent": judge and judges_cv_percent(judge),
    }


def model_tool_use(rows: Sequence[Row]) -> dict[str, Any] | None:
    """The figures of one model's rows: of all tasks, of those with one server and with several, and by their number.

    None where no row is of an MCP task. A group is `{tasks, runs, figures: {name: {mean, ci95, tasks}}}`: means over
    tasks, of a task the mean of its repetitions; what is unknown of a task is left out, so that `tasks` of a figure may
    be fewer. The total is thereby the task-weighted mean of its groups.
    """
    tasks: dict[CaseKey, list[Row]] = defaultdict(list)
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


def overall_scores(model: Row) -> dict[str, float | None]:
    """The overall scores of an entry of `models[]`: total, single-server and multi-server, as far as there are such."""
    groups = model["tool_use"] or {}
    return {name: group["figures"]["overall"]["mean"] for name, group in groups.items() if name in _GROUPS and group}


def tool_use_line(group: Mapping[str, Any], dash: str) -> str:
    """A group in a line, for people."""
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


def _figures(row: Row) -> dict[str, float | None]:
    """One run's figures; what is not in the row is unknown."""
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
