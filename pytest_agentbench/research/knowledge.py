"""The knowledge base: units that reports of a model have added, kept across sessions; a file that only grows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from pydantic import ValidationError

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records import Record, RowId


class Unit(Record):
    """One unit of knowledge: which model's report on which task it was drawn from, quality 0-1."""

    id: str
    model: str
    task_id: RowId
    text: str
    quality: float


def unit(model: str, task_id: RowId, text: str, quality: float) -> Unit:
    """A unit whose id comes from what it says, so that it is the same wherever it is drawn again."""
    digest = sha256(" ".join(text.split()).casefold().encode("utf-8", "surrogatepass")).hexdigest()
    return Unit(id=digest[:12], model=model, task_id=task_id, text=text, quality=quality)


class KnowledgeBase:
    """The units of a file (JSONL), of every model. Raises ConfigError for lines that are none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._units = list(_read(path)) if path.exists() else []

    def of(self, model: str) -> list[Unit]:
        """What reports of the model have added, each unit once."""
        return list({each.id: each for each in self._units if each.model == model}.values())

    def add(self, units: Iterable[Unit]) -> list[Unit]:
        """Appends those that the model's reports have not added yet, and gives these."""
        known = {(each.model, each.id) for each in self._units}
        new = {(each.model, each.id): each for each in units if (each.model, each.id) not in known}
        if new:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.writelines(each.model_dump_json() + "\n" for each in new.values())
            self._units += new.values()
        return list(new.values())


def _read(path: Path) -> Iterable[Unit]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.strip():
            try:
                yield Unit.model_validate(json.loads(line))
            except (ValueError, ValidationError) as error:
                raise ConfigError(f"{path}:{number}:1: found no unit of knowledge: {error}") from error
