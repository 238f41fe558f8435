"""Stored research reports as the subject of a session: each article is taken as one run of the model that wrote it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pytest_agentbench.records import Case, RunError
from pytest_agentbench.runners.base import RunContext, RunEnd
from pytest_agentbench.sources import read_material

STORED_METRICS = "execution_metrics"
"""In a run's metadata: what the file says of how the report came about."""


@dataclass(frozen=True, eq=False)
class StoredReports:
    """A runner that asks nobody, like Predictions: a run's final output is the article of the case's row.

    An article is one run, however often the session repeats others.
    """

    path: Path
    samples: int = 1

    @property
    def model_id(self) -> str:
        """What stands for a model in ids and reports: the file's name without its suffix."""
        return self.path.stem

    def digest(self, case: Case, repetition: int) -> str | None:
        """SHA-256 of what the row says of article and execution_metrics."""
        return case.research.article.digest if case.research is not None and case.research.article is not None else None

    async def __call__(self, case: Case, context: RunContext) -> RunEnd:
        """The run is `failed` where the article is empty. Raises ConfigError where the file has changed."""
        assert case.research is not None
        material = read_material(case.research)
        context.trace.provider.update(predictions=self.path.name, sha256=self.digest(case, context.repetition))
        metadata = {STORED_METRICS: material.metrics.model_dump(mode="json")}
        article = material.article or ""
        if not article.strip():
            line = case.research.article.line if case.research.article is not None else 1
            message = f"{self.path.name}:{line}: article: found an empty text, expected a report"
            return RunEnd("failed", RunError(code="empty_article", message=message), metadata)
        context.trace.final_output(article)
        return RunEnd("success", metadata=metadata)
