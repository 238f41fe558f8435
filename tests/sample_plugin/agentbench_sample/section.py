"""Report section: the words of answers, in report.json, terminal, JUnit and on the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from agentbench_sample.brevity import Brevity
from pytest_agentbench import Case, Evaluation, PageTable, ReportSection

COUNT = {"type": "integer", "minimum": 0}


class BrevitySection(ReportSection):
    """The section `brevity`: its name is that of the evaluation's part."""

    column_kinds = MappingProxyType({"words": "integer", "most_words": "integer"})
    page = PageTable(
        row="Brevity",
        row_figures={"words": "Words of the answer", "most_words": "Words allowed"},
        model="Cards",
        model_figures={"mean_words": "Words of an answer"},
    )

    def schema(self) -> dict[str, Any]:
        """Return what `row` and `model` add, for the JSON Schema of report.json."""
        row = {"words": COUNT, "most_words": COUNT}
        model = {"mean_words": {"type": "number"}}
        return {"row": _object(row), "model": _object(model)}

    def row(self, case: Case, evaluation: Evaluation | None) -> dict[str, Any] | None:
        """Return what the grader found of a run, None where it found nothing."""
        found = evaluation.part(Brevity) if evaluation is not None else None
        return None if found is None else found.model_dump()

    def model(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
        """Return the mean over a model's runs."""
        words = [row["brevity"]["words"] for row in rows if row.get("brevity")]
        return {"mean_words": sum(words) / len(words)} if words else None

    def figures(self, entry: Mapping[str, Any]) -> Mapping[str, float | None]:
        """Return the mean, for the page."""
        return entry

    def summary(self, models: Sequence[tuple[str, Mapping[str, Any]]], dash: str) -> tuple[str, Mapping[str, str]]:
        """Return a line for each model, for the terminal."""
        return "brevity", {name: f"{found['mean_words']:.1f} words an answer" for name, found in models}


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


SECTION = BrevitySection()
