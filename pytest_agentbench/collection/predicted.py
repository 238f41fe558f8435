"""The session's predictions: which collected case each is of, and what would score the wrong texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.runners import Predictions
from pytest_agentbench.sources import BadRow, Dataset, Row, legal_id, read_predictions

_FIRST = 5


class Predicted:
    """The predictions of a file, assigned to cases while these are collected.

    One with an id belongs to one case. A list without ids answers the rows of one dataset in file order, and may leave
    none out. `problem` is why nothing can be scored.
    """

    def __init__(self, path: Path) -> None:
        self.problem: str | None = None
        found: dict[str, Any] | list[Any] = {}
        try:
            found = read_predictions(path)
        except ConfigError as error:
            self.problem = str(error)
        self._in_order = found if isinstance(found, list) else None
        self._answers = {} if isinstance(found, list) else {legal_id(key): value for key, value in found.items()}
        self._owners: dict[str, Path] = {}
        self._dataset: Path | None = None
        values = found if isinstance(found, list) else found.values()
        self.predictions = Predictions(path, self._answers, max(map(_samples, values), default=1))

    def case(self, case_id: str, path: Path) -> None:
        """Assigns the case of a test.yaml its prediction. Raises ConfigError where another case has it."""
        if self._in_order is not None:
            self._refuse(f"the case {case_id} is no row of a dataset")
        self._assign(case_id, None, path)

    def rows(self, dataset: Dataset, rows: Iterable[Row | BadRow]) -> Iterator[Row | BadRow]:
        """Passes the rows of a dataset on and assigns them their predictions. To be read to the end.

        Raises ConfigError where another dataset has one of them.
        """
        if self._in_order is None:
            for row in rows:
                if isinstance(row, Row):
                    self._assign(row.case_id, dataset.name, _file(dataset))
                yield row
        else:
            yield from self._rows_in_order(self._in_order, dataset, rows)

    def warnings(self, repetitions: int) -> Iterator[str]:
        """What is worth saying of predictions that no collected case takes, and of samples that are missing."""
        if self.problem:
            return
        name = self.predictions.path.name
        if unused := [key for key in self._answers if key not in self._owners]:
            yield f"{name}: {self._counted(unused)} are of no case that was collected: {_some(unused)}"
        if fewer := [key for key, value in self._answers.items() if _samples(value) < repetitions]:
            missing = f"fewer samples than the {repetitions} repetitions, and what is missing counts as failed"
            yield f"{name}: {self._counted(fewer)} have {missing}: {_some(fewer)}"

    def _rows_in_order(
        self, values: list[Any], dataset: Dataset, rows: Iterable[Row | BadRow]
    ) -> Iterator[Row | BadRow]:
        number, file = 0, _part(dataset)
        if self._dataset not in (None, file):
            self._refuse(f"the session has several datasets ({self._dataset} and {file})")
        self._dataset = file
        for number, row in enumerate(rows, 1):
            if isinstance(row, Row):
                if row.index != number - 1:
                    self._refuse(f"{file} takes its rows in another order or leaves some out")
                if number <= len(values):
                    self._answers[row.case_id] = values[number - 1]
                    self._owners[row.case_id] = file
            yield row
        if number != len(values):
            self._refuse(f"{file} has {number:,} items, the list {len(values):,}")

    def _counted(self, keys: list[str]) -> str:
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


def _some(keys: list[str]) -> str:
    return ", ".join(map(repr, keys[:_FIRST])) + (", ..." if len(keys) > _FIRST else "")


def _samples(value: Any) -> int:
    """How many repetitions a prediction asks for. A list of objects is none of samples: another file's, by mistake."""
    is_samples = isinstance(value, list) and not all(isinstance(each, (dict, list)) for each in value)
    return len(value) if is_samples else 1


def _file(dataset: Dataset) -> Path:
    """The file that makes the dataset what it is, however it was opened."""
    return dataset.path if dataset.recipe is None else dataset.recipe.path


def _part(dataset: Dataset) -> Path:
    """The same, but one of several data files has rows of its own to count."""
    recipe = dataset.recipe
    one_of_several = recipe is not None and recipe.only is not None and len(recipe.files) > 1
    return dataset.path if one_of_several else _file(dataset)
