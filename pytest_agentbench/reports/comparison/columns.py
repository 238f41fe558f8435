"""The pairs of columns that are compared: one rule for plans, before anything is paid, and for reports."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence, Set
from dataclasses import dataclass

from pytest_agentbench.records.case import name_column


@dataclass(frozen=True, slots=True)
class Column:
    """A column with its cases. `reference` is the variant that its variant is compared with; None without variants.

    `scripted`: scripts answer and no model.
    """

    model_id: str
    variant: str | None
    reference: str | None
    scripted: bool
    cases: Set[Hashable]

    @property
    def name(self) -> str:
        """Return the column's name in ids and reports."""
        return name_column(self.model_id, self.variant)


def pair_columns(columns: Sequence[Column]) -> Iterator[tuple[Column, Column]]:
    """Yield each column after the one that it is compared with, if both have a case.

    A variant is compared with the reference variant of its model; if an agent that a variant names asks that model,
    with the model's own reference. Without a column of the reference variant, the first of its variants stands in.
    Columns without a variant are compared with the first of them. Scripted models among them are left out, because
    their scripts decide and not a model.
    """
    models = [column for column in columns if column.variant is None and not column.scripted]
    for column in columns:
        if column.variant is not None:
            reference = _find_reference(column, columns)
        elif column in models:
            reference = models[0]
        else:
            continue
        if reference is not column and not reference.cases.isdisjoint(column.cases):
            yield reference, column


def _find_reference(column: Column, columns: Sequence[Column]) -> Column:
    models = column.model_id, column.model_id.partition("+")[2]  # agent+model: see `name_subject`
    variants = [
        other
        for other in columns
        if other.variant is not None and other.reference == column.reference and other.model_id in models
    ]
    references = [other for other in variants if other.variant == column.reference]
    for other in references:
        if other.model_id == column.model_id:
            return other
    return (references or variants)[0]
