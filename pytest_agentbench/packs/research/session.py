"""State that the research reports of a session share: configuration, annotations, knowledge, pages of the web."""

from __future__ import annotations

import asyncio
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_agentbench.bounded.files import read_file
from pytest_agentbench.config.profiles import NetworkSettings
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.research.records import ResearchScoring

if TYPE_CHECKING:
    from pytest_agentbench.engine.services import Services
    from pytest_agentbench.packs.research.annotations import Annotations
    from pytest_agentbench.packs.research.config import PoetConfig
    from pytest_agentbench.packs.research.fact.pages import Pages
    from pytest_agentbench.packs.research.knowledge import KnowledgeBase
    from pytest_agentbench.records.run import RunArtifact

PAGES = "research_pages"
"""Name in cassettes for the web, which is asked for the pages that reports cite."""

_Stamp = tuple[int, int]


def explain_missing_report(artifact: RunArtifact) -> list[str]:
    """Return why a run failed that ended well, but without any report; nothing for every other run."""
    if artifact.status != "success" or (artifact.final_output or "").strip():
        return []
    return ["the run wrote no report: its final answer is empty (files are not read)"]


class ResearchSession:
    """State that all reports of a session share. Changed files are read again."""

    def __init__(self, services: Services) -> None:
        self._output, self._subjects = services.output, services.subjects
        self._configs: dict[tuple[Path, _Stamp], PoetConfig] = {}
        self._annotations: dict[tuple[Path, Path | None, tuple[_Stamp, ...]], Annotations] = {}
        self._bases: dict[tuple[Path, int], KnowledgeBase] = {}
        self._pages: dict[NetworkSettings, asyncio.Task[Pages]] = {}

    def config(self, scoring: ResearchScoring) -> PoetConfig:
        """Return the weights. Raises ConfigError."""
        from pytest_agentbench.packs.research.config import read_poet_config

        path = scoring.config
        if path is None:
            return read_poet_config(None)
        # Time and size, not the content: this is asked for each report.
        key = path, _stamp(path)
        if key not in self._configs:
            self._configs[key] = read_poet_config(path)
        return self._configs[key]

    def annotations(self, scoring: ResearchScoring) -> Annotations | None:
        """Return the annotations, or None if no part needs any. Raises ConfigError."""
        from pytest_agentbench.packs.research.config import annotations_of

        folder = scoring.annotations
        if folder is None:
            return None
        stamps = tuple(_stamp(path) for path in sorted(folder.glob("*.json")))
        key = folder, scoring.config, stamps
        if key not in self._annotations:
            self._annotations[key] = annotations_of(folder, self.config(scoring))
        return self._annotations[key]

    def knowledge_base(self, scoring: ResearchScoring) -> KnowledgeBase:
        """Return the units of knowledge that reports have added. Raises ConfigError for an invalid file."""
        from pytest_agentbench.packs.research.knowledge import KNOWLEDGE_BASE, KnowledgeBase

        path = scoring.knowledge_base or self._output / KNOWLEDGE_BASE
        days = self.config(scoring).knowledge_base_settings.knowledge_retention_days
        # One object for all reports with this file, because it caches the read lines.
        return self._bases.setdefault((path, days), KnowledgeBase(path, days))

    @cached_property
    def batch(self) -> str:
        """Return the batch of this session: its reports do not see each other's knowledge.

        So a score does not depend on order, selection and workers, nor on an interruption of the session. Raises
        ConfigError.
        """
        try:
            digests = {sha256(read_file(path)).hexdigest() for path in self._subjects}
        except OSError as error:
            raise ConfigError(f"{error.filename}: cannot be read any more: {error.strerror}; run again") from error
        return sha256("".join(sorted(digests)).encode()).hexdigest()[:16]

    async def pages(self, network: NetworkSettings) -> Pages:
        """Return the pages of the web as far as these settings let anybody go. Raises UnavailableError, ConfigError."""
        from pytest_agentbench.packs.research.fact.direct_pages import PageSettings
        from pytest_agentbench.packs.research.fact.pages import Pages

        if network not in self._pages:
            opened = Pages(self._output, PageSettings.of(network)).__aenter__()
            self._pages[network] = asyncio.ensure_future(opened)
        # Shared by all reports: one that is cancelled must not take the pages from the others.
        return await asyncio.shield(self._pages[network])

    async def close(self) -> None:
        """Close the source of pages."""
        # Pages that are still being opened, or failed to open, hold nothing yet.
        for pages in self._pages.values():
            if pages.done() and not pages.cancelled() and pages.exception() is None:
                await pages.result().__aexit__(None, None, None)


def _stamp(path: Path) -> _Stamp:
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


STORED_METRICS = "execution_metrics"
"""Key in a run's metadata for the file's execution_metrics of the report."""
