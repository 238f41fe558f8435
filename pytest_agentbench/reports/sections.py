"""Sections of reports: what packs and plugins add to rows, models, terminal, JUnit, tables and the page; file formats.

A section is an entry point `report_section NAME`, imported with the first case or evaluation that has a part NAME; NAME
is its key in rows and models too. A format is an entry point `report_format NAME`.
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
"""What a column holds."""


class PageTable(NamedTuple):
    """Titles and figures that the page shows of a section: `row` in a run's verdict, `model` among the mean scores.

    `row_figures` and `model_figures` map the names of figures to what they are called, in their order; those of `sums`
    stand out.
    """

    row: str
    row_figures: Mapping[str, str]
    model: str
    model_figures: Mapping[str, str]
    sums: tuple[str, ...] = ()


class ReportSection:
    """Section that a system adds to reports. A subclass overwrites what it has; values are JSON values."""

    column_kinds: Mapping[str, Kind] = {}
    """The kinds of its columns in tables, by the figures of a row; others are numbers. A column with a value that its
    kind cannot hold becomes text."""
    page: PageTable | None = None
    """What the page shows of it."""

    def page_script(self) -> str | None:
        """Return a module of the page's script that adds to `added` of `static/added.js`; None: it adds none.

        It may import what the page's own modules export, as they do; text of others only through `el` and `textOf`.
        """
        return None

    def schema(self) -> dict[str, Any]:
        """Return JSON Schemas of what it adds: `row`, `model`, and `$defs` that they refer to (`#/$defs/NAME`).

        A report with keys that no schema has is refused where it is read.
        """
        return {}

    def row(self, case: Case, evaluation: Evaluation | None) -> dict[str, Any] | None:
        """Return what `runs[]` has of a run under the section's name; None: nothing."""
        return None

    def model(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
        """Return what `models[]` has under its name; `rows` are the model's with a verdict. None: nothing."""
        return None

    def figures(self, found: Mapping[str, Any]) -> Mapping[str, float | None]:
        """Return the figures that the page shows of what `model` returned."""
        return {}

    def row_properties(self, found: Mapping[str, Any]) -> Mapping[str, object]:
        """Return JUnit's properties of what `row` returned, by their names after the section's."""
        return found

    def model_properties(self, found: Mapping[str, Any]) -> Mapping[str, object]:
        """Return JUnit's properties of what `model` returned, by their names after the section's."""
        return {}

    def summary(
        self, models: Sequence[tuple[str, Mapping[str, Any]]], dash: str
    ) -> tuple[str, Mapping[str, str]] | None:
        """Return a title for the terminal and a line for each model's id; `dash` stands for what is unknown.

        `models` are those that `model` returned something for.
        """
        return None

    def evidence(self, evaluation: Evaluation) -> Sequence[str]:
        """Return lines that a failed run's assertion shows below its faults."""
        return ()

    def votes(self, case: Case, evaluation: Evaluation) -> Sequence[Mapping[str, Any]]:
        """Return what judges that the grader asked have voted, as `judge_votes` of a run's row has it."""
        return ()

    def shortfall(self, evaluation: Evaluation) -> str | None:
        """Return what a final score that is too low is made of, for the assertion; None: it is no final score."""
        return None


class ReportFormat(NamedTuple):
    """A file that `agentbench report --format NAME PATH` makes of report.json. `summary` says what it is for people."""

    summary: str
    write: Callable[[Mapping[str, Any], Path], object]


def find_sections(names: Iterable[str]) -> dict[str, ReportSection]:
    """Return the sections of these names that there are, by name, imported. Raises ConfigError where one cannot be."""
    if not (names := {*names}):  # most runs have none
        return {}
    # Sorted, so that reports of equal runs are equal, whichever run came first
    found = ((name, find_extension("report_section", name)) for name in sorted(names & _known()))
    return {name: section for name, section in found if section is not None}


def sections_of(case: Case, evaluation: Evaluation | None) -> dict[str, ReportSection]:
    """Return the sections that have something to say of a run."""
    return find_sections([*case.parts, *(evaluation.parts if evaluation is not None else ())])


def sections_in(entries: Iterable[Mapping[str, Any]]) -> dict[str, ReportSection]:
    """Return the sections that entries of `runs[]` or `models[]` have something of."""
    known = _known()
    return find_sections({name for entry in entries for name in known if entry.get(name) is not None})


def row_sections(case: Case, evaluation: Evaluation | None) -> dict[str, Any]:
    """Return what all sections say of a run: the keys that a row adds for them."""
    found = {name: section.row(case, evaluation) for name, section in sections_of(case, evaluation).items()}
    return _defaults()["row"] | {name: value for name, value in found.items() if value is not None}


def model_sections(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what all sections say of a model's rows with a verdict: the keys that its entry adds for them."""
    found = {name: section.model(rows) for name, section in sections_in(rows).items()}
    return _defaults()["model"] | {name: value for name, value in found.items() if value is not None}


def own_keys() -> frozenset[str]:
    """Return the keys of rows and models that no section may have."""
    text = Path(__file__).with_name("report.schema.json").read_text("utf-8")
    entries = json.loads(text)["$defs"]
    return frozenset(entries["run"]["properties"]) | frozenset(entries["model"]["properties"])


def find_format(name: str) -> ReportFormat:
    """Return the format of this name. Raises ConfigError where there is none."""
    found: ReportFormat | None = find_extension("report_format", name)
    if found is None:
        known = ", ".join(sorted(extension_names("report_format"))) or "none is installed"
        raise ConfigError(f"--format: found {name!r}, expected a format that a plugin adds: {known}")
    return found


def _known() -> frozenset[str]:
    return extension_names("report_section")


@cache
def _defaults() -> dict[str, dict[str, Any]]:
    """Return what entries have of sections with nothing to say: version 1 of the schema has null for some."""
    text = Path(__file__).with_name("section_defaults.json").read_text("utf-8")
    found: dict[str, dict[str, Any]] = json.loads(text)
    return found
