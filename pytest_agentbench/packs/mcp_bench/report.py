"""What reports show of MCP tasks: the figures of MCP-Bench's tables, by run and by model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from pytest_agentbench.packs.mcp_bench.records import ToolUse
from pytest_agentbench.packs.mcp_bench.scores import (
    model_tool_use,
    overall_scores,
    parts_of,
    tool_use_line,
    tool_use_row,
)
from pytest_agentbench.reports.sections import Kind, PageTable, ReportSection

if TYPE_CHECKING:
    from pytest_agentbench.records.case import Case
    from pytest_agentbench.records.evaluation import Evaluation

_SCORES = {
    "rules": "Rules",
    "task_completion": "Task completion",
    "tool_selection": "Tool selection",
    "planning": "Planning",
}


class ToolUseSection(ReportSection):
    """The section `tool_use` of report.json."""

    column_kinds: Mapping[str, Kind] = {
        **dict.fromkeys(("servers", "servers_used", "rounds", "calls"), "integer"),
        **dict.fromkeys(("cross_server", "completed"), "boolean"),
    }
    page = PageTable(
        row="Tool use",
        row_figures={
            "servers": "Servers of the task",
            "servers_used": "Servers used",
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
        },
        sums=("overall",),
    )

    def schema(self) -> dict[str, Any]:
        """Return the schemas, which lie beside this module."""
        text = files(__package__).joinpath("report.schema.json").read_text("utf-8")
        schemas: dict[str, Any] = json.loads(text)
        return schemas

    def row(self, case: Case, evaluation: Evaluation | None) -> dict[str, Any] | None:
        """Return the record, and both coefficients of variation of its judging."""
        return tool_use_row(evaluation)

    def model(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
        """Return the figures of all tasks, and of those with one server and with several."""
        return model_tool_use(rows)

    def figures(self, found: Mapping[str, Any]) -> Mapping[str, float | None]:
        """Return the means over all tasks."""
        return {name: figure["mean"] for name, figure in found["total"]["figures"].items()}

    def model_properties(self, found: Mapping[str, Any]) -> Mapping[str, object]:
        """Return the overall scores."""
        return overall_scores(found)

    def summary(self, models: Sequence[tuple[str, Mapping[str, Any]]], dash: str) -> tuple[str, Mapping[str, str]]:
        """Return a line for each model that ran MCP tasks."""
        return "tool use on MCP servers", {name: tool_use_line(found["total"], dash) for name, found in models}

    def shortfall(self, evaluation: Evaluation) -> str | None:
        """Return the four parts of the overall score."""
        found = evaluation.part(ToolUse)
        return None if found is None else parts_of(found)


SECTION = ToolUseSection()
