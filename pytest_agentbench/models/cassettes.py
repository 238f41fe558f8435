"""The cassettes of a session: where they lie, and what is done with them for which model."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pytest_agentbench.bounded import read_file
from pytest_agentbench.models.cassette_file import CASSETTES, Cassette
from pytest_agentbench.models.tape import Tape
from pytest_agentbench.records import Case, CassetteMode, Model
from pytest_agentbench.store import Redactor, slug


@dataclass(frozen=True)
class Cassettes:
    """What the session does: `mode` holds for models that say nothing of their own. `session` names the session."""

    mode: CassetteMode = "off"
    session: str | None = None
    redactor: Redactor = field(default_factory=Redactor)

    def mode_of(self, model: Model) -> CassetteMode:
        """What is done for a model. Scripted ones are asked as ever."""
        return "off" if model.scripted else model.cassettes or self.mode

    def path(self, case: Case, model_id: str, repetition: int) -> Path:
        """The file of a run: `cassettes/<model>-r<n>.yaml` in the case's folder; of a dataset's row, below its id."""
        folder = case.path.parent / CASSETTES
        if case.dataset is not None:
            folder /= slug(case.case_id)
        return folder / f"{slug(model_id)}-r{repetition}.yaml"

    def digest(self, case: Case, model_id: str, repetition: int) -> str | None:
        """SHA-256 of that file, None where there is none."""
        try:
            return hashlib.sha256(read_file(self.path(case, model_id, repetition))).hexdigest()
        except OSError:
            return None

    def tape(self, case: Case, model_id: str, repetition: int, modes: Mapping[str, CassetteMode]) -> Tape:
        """The cassette of a run, to be used. `modes` are those of its models by id; others have the session's."""
        label = Cassette(case.case_id, model_id, repetition, self.session)
        path = self.path(case, model_id, repetition)
        return Tape(path, label, lambda asked: modes.get(asked, self.mode), self.redactor)
