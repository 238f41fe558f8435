"""Predictions as the subject of a session: what an agent answered elsewhere, each answer taken as one run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from pytest_agentbench.records.case import Case
from pytest_agentbench.records.run import RunError
from pytest_agentbench.runners.base import RunContext, RunEnd
from pytest_agentbench.sources.predictions import as_prediction


@dataclass(frozen=True, eq=False)
class Predictions:
    """A runner that asks nobody: a run's final output is what the file has for its case and repetition.

    `answers` maps case ids, or the ids that items have in their dataset, to predictions as `read_predictions` gives
    them. A list holds one per repetition; anything else is the first repetition's. `samples` is the longest list.
    """

    path: Path
    answers: Mapping[str, Any]
    samples: int = 1

    @property
    def model_id(self) -> str:
        """Return what stands for a model in ids and reports: the file's name without its suffix."""
        return self.path.stem

    def key(self, case_id: str, dataset: str | None) -> str | None:
        """Return the id under which the file answers a case: its case id, else the item's own. None: it does not."""
        return next((name for name in _ids(case_id, dataset) if name in self.answers), None)

    def digest(self, case: Case, repetition: int) -> str | None:
        """Return the SHA-256 of the prediction, of a text its UTF-8. None where there is none."""
        sample = self._samples(case)[repetition - 1 : repetition]
        if sample in ([], [None]):
            return None
        text = sample[0] if isinstance(sample[0], str) else json.dumps(sample[0])
        return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    async def __call__(self, case: Case, context: RunContext) -> RunEnd:
        """Return the prediction as the run: `failed` where there is none, and `invalid` where that is no text."""
        samples, repetition = self._samples(case), context.repetition
        context.trace.provider.update(predictions=self.path.name, sha256=self.digest(case, repetition))
        if repetition > len(samples) or samples[repetition - 1] is None:
            return RunEnd("failed", RunError(code="missing_prediction", message=self._missing(case, repetition)))
        try:
            text = as_prediction(samples[repetition - 1])
            if not isinstance(text, str):
                raise ValueError("found a list in a list, expected a text for each repetition")
        except ValueError as error:
            return RunEnd("invalid", RunError(code="invalid_prediction", message=f"{self._place(case)}: {error}"))
        context.trace.final_output(text)
        return RunEnd("success")

    def _samples(self, case: Case) -> list[Any]:
        key = self.key(case.case_id, case.dataset)
        value = [] if key is None else self.answers[key]
        return value if isinstance(value, list) else [value]

    def _place(self, case: Case) -> str:
        return f"{self.path.name}: {self.key(case.case_id, case.dataset)!r}"

    def _missing(self, case: Case, repetition: int) -> str:
        if self.key(case.case_id, case.dataset) is None:
            return f"{self.path.name} has no prediction of {' or '.join(map(repr, _ids(case.case_id, case.dataset)))}"
        number = len(self._samples(case))
        if repetition <= number:
            return f"{self._place(case)}: found null" + (f" for repetition {repetition}" if number > 1 else "")
        return f"{self._place(case)}: found {number} prediction{'s' * (number != 1)}, none for repetition {repetition}"


def _ids(case_id: str, dataset: str | None) -> tuple[str, ...]:
    return (case_id,) if dataset is None else (case_id, case_id.removeprefix(f"{dataset}."))
