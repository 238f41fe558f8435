"""What the research reports of a session share: configuration, the knowledge base, the pages that reports cite."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.bounded import read_file
from pytest_agentbench.config import NetworkSettings
from pytest_agentbench.errors import ConfigError, UnavailableError
from pytest_agentbench.records import JUDGED, Case, ResearchScoring
from pytest_agentbench.store import fingerprint

if TYPE_CHECKING:
    from pytest_agentbench.config.annotations import Annotations
    from pytest_agentbench.config.poet_config import PoetConfig
    from pytest_agentbench.research.knowledge import KnowledgeBase
    from pytest_agentbench.research.pages import Pages

_Stamp = tuple[int, int]


class ResearchRuns:
    """Files are read again where they change. `output` is the session's output folder.

    `subjects` are the files of all that could be scored: stored reports, or the queries that reports are written on.
    """

    def __init__(self, output: Path, subjects: Iterable[Path] = ()) -> None:
        self._output, self._subjects = output, tuple(subjects)
        self._configs: dict[tuple[Path, _Stamp], PoetConfig] = {}
        self._annotations: dict[tuple[Path, Path | None, tuple[_Stamp, ...]], Annotations] = {}
        self._bases: dict[tuple[Path, int], KnowledgeBase] = {}
        self._pages: dict[NetworkSettings, asyncio.Task[Pages]] = {}

    def config(self, scoring: ResearchScoring) -> PoetConfig:
        """The weights. Raises ConfigError."""
        from pytest_agentbench.config.poet_config import PoetConfig, read_poet_config

        path = scoring.config
        if path is None:
            return PoetConfig()
        key = path, _stamp(path)
        if key not in self._configs:
            self._configs[key] = read_poet_config(path)
        return self._configs[key]

    def annotations(self, scoring: ResearchScoring) -> Annotations | None:
        """The annotations, None where no part needs any. Raises ConfigError."""
        from pytest_agentbench.research.annotated import annotations_of

        folder = scoring.annotations
        if folder is None:
            return None
        stamps = tuple(_stamp(path) for path in sorted(folder.glob("*.json")))
        key = folder, scoring.config, stamps
        if key not in self._annotations:
            self._annotations[key] = annotations_of(folder, self.config(scoring))
        return self._annotations[key]

    def knowledge_base(self, scoring: ResearchScoring) -> KnowledgeBase:
        """The units of knowledge that reports have added. Raises ConfigError for a file that is none."""
        from pytest_agentbench.research.knowledge import KNOWLEDGE_BASE, KnowledgeBase

        path = scoring.knowledge_base or self._output / KNOWLEDGE_BASE
        days = self.config(scoring).knowledge_base_settings.knowledge_retention_days
        return self._bases.setdefault((path, days), KnowledgeBase(path, days))

    @cached_property
    def batch(self) -> str:
        """What reports know nothing of one another in: all that are or could be scored in this session.

        So that a score does not depend on order, selection and workers, nor on where a session was interrupted. Raises
        ConfigError.
        """
        try:
            digests = {sha256(read_file(path)).hexdigest() for path in self._subjects}
        except OSError as error:
            raise ConfigError(f"{error.filename}: cannot be read any more: {error.strerror}; run again") from error
        return sha256("".join(sorted(digests)).encode()).hexdigest()[:16]

    async def pages(self, network: NetworkSettings) -> Pages:
        """The pages of the web as far as these settings let anybody go. Raises UnavailableError, ConfigError."""
        from pytest_agentbench.research.pages import Pages, PageSettings

        if network not in self._pages:
            opened = Pages(self._output, PageSettings.of(network)).__aenter__()
            self._pages[network] = asyncio.ensure_future(opened)
        return await asyncio.shield(self._pages[network])

    async def close(self) -> None:
        """Ends what fetches pages."""
        for opened in self._pages.values():
            if opened.done() and not opened.cancelled() and opened.exception() is None:
                await opened.result().__aexit__(None, None, None)

    def require_language(self, case: Case) -> None:
        """Raises UnavailableError for a report in a language that the configuration does not support."""
        task = case.research
        if task is None:
            return
        supported = self.config(task.scoring).evaluation_settings.language_support
        if task.language not in supported:
            raise UnavailableError(
                f"{task.scoring.config}: language_support is {', '.join(supported) or 'empty'}, which lacks "
                f"{task.language}, the language of this query"
            )

    def identity(self, case: Case) -> dict[str, Any]:
        """Part of the fingerprint of a report's verdict: all that scores it, beside the report and the judge.

        Raises ConfigError for configuration that is wrong.
        """
        from pytest_agentbench.research.wording import PROMPT_VERSION

        task = case.research
        assert task is not None
        scoring = task.scoring
        annotations = self.annotations(scoring)
        return {
            "scoring": scoring.model_dump(exclude={"annotations", "config", "knowledge_base"}),
            "prompts": PROMPT_VERSION if any(part in JUDGED for part in scoring.parts) else None,
            "row": [task.language, task.domain, task.complexity_level],
            "criteria": task.criteria and task.criteria.digest,
            "reference": task.reference and task.reference.digest,
            "config": self.config(scoring),
            "annotations": annotations
            and fingerprint([annotations.domains, annotations.levels, annotations.prices, annotations.task_types]),
        }


def asks_judge(case: Case) -> bool:
    """Whether a part of a research report asks a judge."""
    return case.research is not None and any(part in JUDGED for part in case.research.scoring.parts)


def _stamp(path: Path) -> _Stamp:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size
