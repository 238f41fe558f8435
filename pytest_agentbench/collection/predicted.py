"""The predictions of a file, given to the cases that a session collects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pytest_agentbench.config.dataset_file import PredictionFields
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.case import legal_id
from pytest_agentbench.runners.subjects import Predictions
from pytest_agentbench.sources.case_source import BadRow, OpenedSource, SourceCase
from pytest_agentbench.sources.predictions import has_calls, has_turns, read_mapped_predictions, read_predictions

_FIRST = 5


class Predicted:
    """The predictions of a file, assigned to cases while these are collected.

    One with an id belongs to one case. A list without ids answers the rows of one dataset in file order, and may leave
    none out. `problem` is why nothing can be scored.
    """

    def __init__(self, path: Path) -> None:
        self.problem: str | None = None
        answers: dict[str, Any] | list[Any] = {}
        try:
            answers = read_predictions(path)
        except ConfigError as error:
            self.problem = str(error)
        self._in_order: list[Any] | None = None
        self._answers: dict[str, Any] = {}
        if isinstance(answers, list):
            values = self._in_order = answers
        else:
            self._answers = {legal_id(key): value for key, value in answers.items()}
            values = [*answers.values()]
        self._owners: dict[str, Path] = {}
        self._dataset: Path | None = None
        self.predictions = Predictions(path, self._answers, max(map(_count_samples, values), default=1))

    def rows(self, opened: OpenedSource, rows: Iterable[SourceCase | BadRow]) -> Iterator[SourceCase | BadRow]:
        """Pass the rows of a file on and assign them their predictions. To be read to the end.

        Raises ConfigError where another file has one of them.
        """
        if opened.prediction_fields is not None:
            self._read_mapped(opened.prediction_fields)
        # Which rows there are is known only when all have been read, so a list is checked at the end
        if self._in_order is not None and opened.ordered:
            yield from self._rows_in_order(self._in_order, opened, rows)
            return
        for row in rows:
            if isinstance(row, SourceCase):
                if self._in_order is not None:
                    self._refuse(f"the case {row.case_id} is no row of a dataset")
                self._assign(row.case_id, opened.name if opened.ordered else None, opened.file)
            yield row

    def _read_mapped(self, fields: PredictionFields) -> None:
        """Read the file by a dataset's descriptor instead of the usual format."""
        if not self._owners:
            self._answers.clear()
        self.problem, self._in_order = None, None
        try:
            found = read_mapped_predictions(self.predictions.path, fields)
        except ConfigError as error:
            self.problem = str(error)
            return
        self._answers.update((legal_id(key), value) for key, value in found.items())
        self.predictions.samples = max(map(_count_samples, self._answers.values()), default=1)

    def warnings(self, repetitions: int) -> Iterator[str]:
        """Yield warnings about predictions without a collected case, and about missing samples."""
        if self.problem:
            return
        name = self.predictions.path.name
        if unused := [key for key in self._answers if key not in self._owners]:
            yield f"{name}: {self._count_of(unused)} are of no case that was collected: {_name_some(unused)}"
        if fewer := [key for key, value in self._answers.items() if _count_samples(value) < repetitions]:
            missing = f"fewer samples than the {repetitions} repetitions, and missing samples count as failed"
            yield f"{name}: {self._count_of(fewer)} have {missing}: {_name_some(fewer)}"

    def _rows_in_order(
        self, values: list[Any], opened: OpenedSource, rows: Iterable[SourceCase | BadRow]
    ) -> Iterator[SourceCase | BadRow]:
        number, file = 0, opened.part
        if self._dataset not in (None, file):
            self._refuse(f"the session has several datasets ({self._dataset} and {file})")
        self._dataset = file
        for number, row in enumerate(rows, 1):
            if isinstance(row, SourceCase):
                # A shuffled or limited dataset would get its answers in the order of another
                if row.number != number - 1:
                    self._refuse(f"{file} takes its rows in another order or leaves some out")
                if number <= len(values):
                    self._answers[row.case_id] = values[number - 1]
                    self._owners[row.case_id] = file
            yield row
        if number != len(values):
            self._refuse(f"{file} has {number:,} items, the list {len(values):,}")

    def _count_of(self, keys: list[str]) -> str:
        return f"{len(keys):,} of {len(self._answers):,} predictions"

    def _assign(self, case_id: str, dataset: str | None, path: Path) -> None:
        key = self.predictions.key(case_id, dataset)
        if key is None:
            return
        owner = self._owners.setdefault(key, path)
        if owner != path and not owner.samefile(path):
            raise ConfigError(
                f"{path}: found the prediction of {key!r} in {self.predictions.path.name}, which {owner} takes; "
                f"expected one for each: name predictions by their full case ids, such as {case_id!r}"
            )

    def _refuse(self, reason: str) -> None:
        self.problem = self.problem or (
            f"{self.predictions.path}: a list of predictions answers the rows of one dataset, all of them in file "
            f"order, but {reason}; name predictions by id instead: {{item id: prediction}}"
        )


def _name_some(keys: list[str]) -> str:
    return ", ".join(map(repr, keys[:_FIRST])) + (", ..." if len(keys) > _FIRST else "")


def _count_samples(value: Any) -> int:
    """Return the number of repetitions of a prediction. A list of objects is a file of another kind, not samples."""
    is_samples = isinstance(value, list) and not all(map(_is_no_sample, value))
    if is_samples:
        return len(value)
    return 1


def _is_no_sample(value: Any) -> bool:
    return isinstance(value, (dict, list)) and not (has_calls(value) or has_turns(value))
