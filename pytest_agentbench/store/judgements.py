"""Votes of judges that are paid for: one small file each, by the fingerprint of everything that can change it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from pytest_agentbench.records import AnswerVerdict, Record
from pytest_agentbench.store.files import make_folder, write_atomically
from pytest_agentbench.store.redaction import Redactor

JUDGEMENTS = "judgements"
"""The folder of the votes below the output folder."""

_log = logging.getLogger(__name__)
_not_writable: set[Path] = set()
"""Folders that took no file in this process: said once."""


class StoredVerdict(Record):
    """What a file holds: the verdict, and which request it answers."""

    schema_version: Literal[1] = 1
    key: str
    model: str
    verdict: AnswerVerdict


class Judgements:
    """A folder of verdicts that several sessions may share. `redactor` None: nothing is removed from reasons."""

    def __init__(self, folder: Path, redactor: Redactor | None = None) -> None:
        self.folder = folder
        self.redactor = redactor

    def find(self, key: str) -> AnswerVerdict | None:
        """The verdict of a key (64 hex digits); None where there is none, or no file that this version can read."""
        try:
            stored = StoredVerdict.model_validate_json(self._path(key).read_bytes())
        except (OSError, ValidationError):
            return None
        return stored.verdict if stored.key == key else None

    def keep(self, key: str, model: str, verdict: AnswerVerdict) -> None:
        """Stores a verdict. Where that cannot be, it is logged once: the verdict counts all the same."""
        path = self._path(key)
        text = StoredVerdict(key=key, model=model, verdict=verdict).model_dump_json()
        text = text if self.redactor is None else self.redactor.json(text)
        try:
            make_folder(str(path.parent))
            write_atomically(str(path.parent), path.name, text.encode("utf-8", "replace"))
        except OSError as error:
            if self.folder not in _not_writable:
                _not_writable.add(self.folder)
                reason = error.strerror or str(error)
                _log.warning("%s: judgements cannot be kept there, so they will be paid again: %s", self.folder, reason)

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"
