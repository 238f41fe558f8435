"""Section of reports on MCP tasks: the figures of MCP-Bench's tables, by run and by model (spec/mcp.md)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib.resources import files
from math import fsum
from typing import TYPE_CHECKING, Any

from pytest_agentbench.metrics.registry import RULES, TOOL_USE_METRICS
from pytest_agentbench.packs.mcp_bench.records import TOOL_USE_DIMENSIONS, ToolUse
from pytest_agentbench.reports.gate import CaseKey, case_key
from pytest_agentbench.reports.sections import Kind, PageTable, ReportSection
from pytest_agentbench.statistics.estimates import mean, mean_of, pair, score_interval, wilson_interval
from pytest_agentbench.terminal_text import count_text

if TYPE_CHECKING:
    from pytest_agentbench.records.case import Case
    from pytest_agentbench.records.evaluation import Evaluation, JudgeResult

Row = dict[str, Any]
Task = Sequence[Mapping[str, float | None]]
"""The figures of the repetitions of one task."""

_SHARES = ("completed", "cross_server")
_OF_THE_RUN = (
    *("overall", "rules", "task_completion", "tool_selection", "planning", *_SHARES),
    *("rounds", "calls", "servers_used", "distractors", "distractors_offered", "cv_percent", "judges_cv_percent"),
)
_GROUPS = ("total", "single_server", "multi_server")
FIGURES = (*TOOL_USE_METRICS, *TOOL_USE_DIMENSIONS, *_OF_THE_RUN, "tokens")
"""Figures averaged over tasks: rates and the parts of the overall score 0-1, dimensions 1-10, the rest unscaled."""


_SCORES = {
    "rules": "Rules",
    "task_completion": "Task completion",
    "tool_selection": "Tool selection",
    "planning": "Planning",
}


class ToolUseSection(ReportSection):
    """Section `tool_use` of report.json."""

    column_kinds: Mapping[str, Kind] = {
        **dict.fromkeys(
            ("servers", "servers_used", "rounds", "calls", "distractors", "distractors_offered"), "integer"
        ),
        **dict.fromkeys(("cross_server", "completed"), "boolean"),
    }
    page = PageTable(
        row="Tool use",
        row_figures={
            "servers": "Servers of the task",
            "servers_used": "Servers used",
            "distractors": "Distraction servers of the task",
            "distractors_offered": "Distraction servers offered",
            "cross_server": "Across servers",
            "rounds": "Rounds",
            "calls": "Calls",
            "completed": "Ended with an answer",
            **_SCORES,
            "overall": "Overall",
        },
        model="MCP tasks",
        model_figures={
            "overall": "Overall",
            **_SCORES,
            "completed": "Tasks that ended with an answer",
            "cross_server": "Tasks across servers",
            "rounds": "Rounds",
            "calls": "Calls",
            "servers_used": "Servers used",
            "distractors": "Distraction servers of a task",
            "distractors_offered": "Distraction servers offered",
        },
        sums=("overall",),
    )

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schemas in the file next to this module."""
        text = files(__package__).joinpath("report.schema.json").read_text("utf-8")
        schemas: dict[str, Any] = json.loads(text)
        return schemas

    def row(self, case: Case, evaluation: Evaluation | None) -> dict[str, Any] | None:
        """Return the record, and both coefficients of variation of its judging."""
        return make_tool_use_row(evaluation)

    def model(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
        """Return the figures of all tasks, and of those with one server and with several."""
        return summarize_tool_use(rows)

    def figures(self, entry: Mapping[str, Any]) -> Mapping[str, float | None]:
        """Return the means over all tasks."""
        return {name: figure["mean"] for name, figure in entry["total"]["figures"].items()}

    def model_properties(self, entry: Mapping[str, Any]) -> Mapping[str, object]:
        """Return the overall scores."""
        return select_overall_scores(entry)

    def summary(self, models: Sequence[tuple[str, Mapping[str, Any]]], dash: str) -> tuple[str, Mapping[str, str]]:
        """Return a line for each model that ran MCP tasks."""
        return "tool use on MCP servers", {name: describe_tool_use(entry["total"], dash) for name, entry in models}

    def shortfall(self, evaluation: Evaluation) -> str | None:
        """Return the four parts of the overall score."""
        tool_use = evaluation.part(ToolUse)
        if tool_use is None:
            return None
        return tool_use.parts_line


def make_tool_use_row(evaluation: Evaluation | None) -> Row | None:
    """Return a row's `tool_use`: the record, and both coefficients of its judges' variation; None without a task."""
    if evaluation is None or (tool_use := evaluation.part(ToolUse)) is None:
        return None
    judge = evaluation.judge
    return {
        **tool_use.model_dump(),
        "cv_percent": judge and judge.cv_percent,
        "judges_cv_percent": judge and judges_cv_percent(judge),
    }


def summarize_tool_use(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the figures of one model's rows: of all tasks, of tasks with one and with several servers, and by their
    number.

    None if no row has an MCP task. A group is `{tasks, runs, figures: {name: {mean, ci95, tasks}}}`: means over tasks,
    for a task the mean of its repetitions. Tasks with an unknown figure are left out of it, so `tasks` of a figure may
    be fewer. The total is therefore the task-weighted mean of its groups.
    """
    tasks: dict[CaseKey, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        if row.get("tool_use") is not None:
            # By task and not by run: a task that was repeated more often weighs no more than another.
            tasks[case_key(row)].append(row)
    if not tasks:
        return None
    by_servers: dict[int, list[Task]] = defaultdict(list)
    for task in tasks.values():
        by_servers[task[0]["tool_use"]["servers"]].append([_list_figures(row) for row in task])
    groups = {servers: _summarize_group(by_servers[servers]) for servers in sorted(by_servers)}

    def together(*counts: int) -> dict[str, Any] | None:
        if len(counts) == 1:
            return groups[counts[0]]
        return _summarize_group([task for servers in counts for task in by_servers[servers]])

    return {
        "total": together(*groups),
        "single_server": groups.get(1),
        "multi_server": together(*(servers for servers in groups if servers > 1)),
        "by_servers": {str(servers): group for servers, group in groups.items()},
    }


def select_overall_scores(groups: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the known overall scores in a result of `summarize_tool_use`: total, single- and multi-server."""
    return {name: group["figures"]["overall"]["mean"] for name, group in groups.items() if name in _GROUPS and group}


def describe_tool_use(group: Mapping[str, Any], dash: str) -> str:
    """Return a group in a line, for people."""
    means = {name: figure["mean"] for name, figure in group["figures"].items()}

    def format_mean(name: str, spec: str) -> str:
        if means[name] is None:
            return dash
        return format(means[name], spec)

    rates = zip(("tool names", "arguments", "calls"), RULES, strict=True)
    valid = ", ".join(f"{title} {format_mean(name, '.1%')}" for title, name in rates)
    effort = ", ".join(f"{format_mean(name, '.1f')} {name}" for name in ("rounds", "calls"))
    tasks, distractors = count_text(group["tasks"], "task"), ""
    planned, offered = means["distractors"], means["distractors_offered"]
    if planned is not None and offered is not None and offered < planned:
        distractors = f"; {offered:.3g} of {planned:.3g} distractors"
    return f"overall {format_mean('overall', '.3f')}; valid {valid}; {effort} per task, {tasks}{distractors}"


def _summarize_group(tasks: Sequence[Task]) -> dict[str, Any] | None:
    if not tasks:
        return None
    figures = {name: _summarize_figure(name, [[run[name] for run in task] for task in tasks]) for name in FIGURES}
    return {"tasks": len(tasks), "runs": sum(map(len, tasks)), "figures": figures}


def _list_figures(row: Mapping[str, Any]) -> dict[str, float | None]:
    """Return one run's figures; a figure that the row lacks is unknown."""
    judge, usage = row["judge"] or {}, row["usage"] or {}
    return {
        **{name: row["metrics"].get(name) for name in TOOL_USE_METRICS},
        **{name: judge.get(name) for name in TOOL_USE_DIMENSIONS},
        **{name: row["tool_use"].get(name) for name in _OF_THE_RUN},
        "tokens": usage.get("total_tokens"),
    }


def _summarize_figure(name: str, tasks: Sequence[Sequence[float | None]]) -> dict[str, Any]:
    known = [values for task in tasks if (values := [float(value) for value in task if value is not None])]
    # A single task has the interval of its repetitions, because one task has no interval over tasks.
    sample = known[0] if len(known) == 1 else [mean_of(task) for task in known]
    if name in _SHARES:
        # A task's share may be between 0 and 1: with repetitions the count of successes is not a whole
        # number.
        interval = wilson_interval(fsum(sample), len(sample))
    else:
        interval = score_interval([[value] for value in sample], (1.0, 10.0) if name in TOOL_USE_DIMENSIONS else None)
    return {"mean": mean(sample), "ci95": pair(interval), "tasks": len(known)}


def judges_cv_percent(judged: JudgeResult) -> float | None:
    """Return the variation of several judges on task completion (0-10): sigma / mu of their means, in percent (6.4).

    Each judge's mean is over its own iterations; sigma is the population's. None for fewer than two judges.
    """
    # Imported here, because the judge imports its prompts and the reading of replies, which reports do not need.
    from pytest_agentbench.packs.mcp_bench.judge import cv_percent, task_completion

    by_judge: dict[str, list[float]] = defaultdict(list)
    for iteration in judged.iterations:
        if iteration.verdict is not None:
            by_judge[iteration.judge_id].append(task_completion(iteration.verdict))
    return cv_percent([mean_of(scores) for scores in by_judge.values()])


SECTION = ToolUseSection()
