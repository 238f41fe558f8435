"""Report sections and file formats: parts that packs and plugins add to rows, models, terminal, JUnit, tables and page.

A section, one of the `report_sections` of a Pack, has the name of a part of cases or evaluations. It is imported with
the first one that has the part. The name is its key in rows and models too. A format is one of the `report_formats`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.extensions import extension_names, find_extension

if TYPE_CHECKING:
    from pytest_agentbench.records.case import Case
    from pytest_agentbench.records.evaluation import Evaluation

Kind = Literal["text", "texts", "integer", "number", "boolean"]
"""Type of a column's values."""


class PageTable(NamedTuple):
    """Titles and figures of a section on the page: `row` in a run's verdict, `model` among the mean scores.

    `row_figures` and `model_figures` map names of figures to labels, in display order. Figures in `sums` are
    highlighted.
    """

    row: str
    row_figures: Mapping[str, str]
    model: str
    model_figures: Mapping[str, str]
    sums: tuple[str, ...] = ()


class ReportSection:
    """Base class of report sections. A subclass overrides the parts that it needs; values are JSON values."""

    column_kinds: Mapping[str, Kind] = {}
    """The kinds of its columns in tables, by the figures of a row; others are numbers. A column with a value that its
    kind cannot hold becomes text."""
    page: PageTable | None = None
    """The section's table on the page."""

    def page_script(self) -> str | None:
        """Return a script module that adds to `added` of `static/added.js`, or None if the section needs no script.

        The module may import the exports of the page's own modules. It must insert untrusted text only by `el` and
        `textOf`.
        """
        return None

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schemas of the section: `row`, `model`, and the `$defs` that they refer to (`#/$defs/NAME`).

        A report with a key that no schema has is refused when it is read.
        """
        return {}

    def row(self, case: Case, evaluation: Evaluation | None) -> dict[str, Any] | None:
        """Return the section's entry in `runs[]`, or None for no entry."""
        return None

    def model(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
        """Return the section's entry in `models[]`, from the model's rows with a verdict, or None for no entry."""
        return None

    def figures(self, entry: Mapping[str, Any]) -> Mapping[str, float | None]:
        """Return the figures for the page from an entry of `model`."""
        return {}

    def row_properties(self, entry: Mapping[str, Any]) -> Mapping[str, object]:
        """Return JUnit properties of a `row` entry, named without the section's prefix."""
        return entry

    def model_properties(self, entry: Mapping[str, Any]) -> Mapping[str, object]:
        """Return JUnit properties of a `model` entry, named without the section's prefix."""
        return {}

    def summary(
        self, models: Sequence[tuple[str, Mapping[str, Any]]], dash: str
    ) -> tuple[str, Mapping[str, str]] | None:
        """Return a title for the terminal and a line for each model's id. `dash` is shown for unknown values.

        `models` contains the models with an entry of `model`.
        """
        return None

    def evidence(self, evaluation: Evaluation) -> Sequence[str]:
        """Return lines that a failed run's assertion shows below its faults."""
        return ()

    def votes(self, case: Case, evaluation: Evaluation) -> Sequence[Mapping[str, Any]]:
        """Return the votes of the judges that the grader asked, in the format of `judge_votes`."""
        return ()

    def shortfall(self, evaluation: Evaluation) -> str | None:
        """Return the parts of a final score that is too low, or None if the section has no final score."""
        return None


class ReportFormat(NamedTuple):
    """File format of `agentbench report --format NAME PATH`, written from report.json. `summary` describes it."""

    summary: str
    write: Callable[[Mapping[str, Any], Path], object]


def find_sections(names: Iterable[str]) -> dict[str, ReportSection]:
    """Return the imported sections by name; unknown names are left out. Raises ConfigError if an import fails."""
    if not (names := {*names}):  # most runs have none
        return {}
    # Sorted, so that reports of equal runs are equal, whichever run came first
    candidates = ((name, find_extension("report_section", name)) for name in sorted(names & _known()))
    return {name: section for name, section in candidates if section is not None}


def sections_of(case: Case, evaluation: Evaluation | None) -> dict[str, ReportSection]:
    """Return the sections that may have an entry for a run."""
    names = [*case.parts]
    if evaluation is not None:
        names += evaluation.parts
    return find_sections(names)


def sections_in(entries: Iterable[Mapping[str, Any]]) -> dict[str, ReportSection]:
    """Return the sections with an entry in any of these entries of `runs[]` or `models[]`."""
    names = _known()
    return find_sections({name for entry in entries for name in names if entry.get(name) is not None})


def row_sections(case: Case, evaluation: Evaluation | None) -> dict[str, Any]:
    """Return the entries of all sections for a run: keys to add to its row."""
    entries = {name: section.row(case, evaluation) for name, section in sections_of(case, evaluation).items()}
    return _defaults()["row"] | {name: value for name, value in entries.items() if value is not None}


def model_sections(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the entries of all sections for a model's rows with a verdict: keys to add to the model."""
    entries = {name: section.model(rows) for name, section in sections_in(rows).items()}
    return _defaults()["model"] | {name: value for name, value in entries.items() if value is not None}


def own_keys() -> frozenset[str]:
    """Return the keys of rows and models that no section may have."""
    text = Path(__file__).with_name("report.schema.json").read_text("utf-8")
    entries = json.loads(text)["$defs"]
    return frozenset(entries["run"]["properties"]) | frozenset(entries["model"]["properties"])


def find_format(name: str) -> ReportFormat:
    """Return the format of this name. Raises ConfigError if it does not exist."""
    report_format: ReportFormat | None = find_extension("report_format", name)
    if report_format is None:
        names = ", ".join(sorted(extension_names("report_format"))) or "none is installed"
        raise ConfigError(f"--format: found {name!r}, expected a format that a plugin adds: {names}")
    return report_format


def _known() -> frozenset[str]:
    return extension_names("report_section")


@cache
def _defaults() -> dict[str, dict[str, Any]]:
    """Return the default entries of sections without data: version 1 of the schema requires null for some."""
    text = Path(__file__).with_name("section_defaults.json").read_text("utf-8")
    defaults: dict[str, dict[str, Any]] = json.loads(text)
    return defaults
