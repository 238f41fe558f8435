"""Section of reports: the named results of a run's graders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_agentbench.packs.plugin_evals.records import PluginEvalGrades
from pytest_agentbench.reports.sections import ReportSection

if TYPE_CHECKING:
    from pytest_agentbench.records.case import Case
    from pytest_agentbench.records.evaluation import Evaluation

_TEXT = {"type": "string"}
_GRADER = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "type", "weight", "outcome", "message"],
    "properties": {
        "name": _TEXT,
        "type": _TEXT,
        "weight": {"type": "number", "minimum": 0},
        "outcome": {"enum": ["passed", "failed", "skipped"]},
        "message": _TEXT,
    },
}


class PluginEvalSection(ReportSection):
    """Section `plugin_eval` of report.json."""

    def schema(self) -> dict[str, Any]:
        """Return the schema of a run's graders."""
        row = {
            "type": "object",
            "description": "Of a plugin's eval: the result of each grader; skipped ones do not count.",
            "additionalProperties": False,
            "required": ["graders"],
            "properties": {"graders": {"type": "array", "items": _GRADER}},
        }
        return {"row": row}

    def row(self, case: Case, evaluation: Evaluation | None) -> dict[str, Any] | None:
        """Return the graders' results."""
        grades = None if evaluation is None else evaluation.part(PluginEvalGrades)
        return None if grades is None else grades.model_dump(mode="json")

    def row_properties(self, entry: Mapping[str, Any]) -> Mapping[str, object]:
        """Return the outcome of each grader."""
        return {grader["name"]: grader["outcome"] for grader in entry["graders"]}

    def evidence(self, evaluation: Evaluation) -> Sequence[str]:
        """Return a line for each grader, failed ones first."""
        grades = evaluation.part(PluginEvalGrades)
        if grades is None:
            return ()
        ordered = sorted(grades.graders, key=lambda grader: grader.outcome != "failed")
        return [f"grader {each.name} {each.outcome}: {each.message}" for each in ordered]


SECTION = PluginEvalSection()
