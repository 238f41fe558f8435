"""Research reports in a session: the stored ones as runs, what all of them share, the lines of a failed one."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.bounded.files import read_file
from pytest_agentbench.config.profiles import NetworkSettings
from pytest_agentbench.errors import ConfigError, UnavailableError
from pytest_agentbench.packs.research.records import (
    JUDGED,
    PARTS,
    RACE_DIMENSIONS,
    SCORES,
    CriterionScore,
    ResearchScores,
    ResearchScoring,
)
from pytest_agentbench.packs.research.rows import read_material
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.evaluation import Evaluation
from pytest_agentbench.records.run import RunError
from pytest_agentbench.runners.base import RunContext, RunEnd
from pytest_agentbench.store.fingerprints import fingerprint

if TYPE_CHECKING:
    from pytest_agentbench.config.annotations import Annotations
    from pytest_agentbench.packs.research.config import PoetConfig
    from pytest_agentbench.packs.research.fact.pages import Pages
    from pytest_agentbench.packs.research.knowledge import KnowledgeBase


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
        from pytest_agentbench.packs.research.config import PoetConfig, read_poet_config

        path = scoring.config
        if path is None:
            return PoetConfig()
        key = path, _stamp(path)
        if key not in self._configs:
            self._configs[key] = read_poet_config(path)
        return self._configs[key]

    def annotations(self, scoring: ResearchScoring) -> Annotations | None:
        """The annotations, None where no part needs any. Raises ConfigError."""
        from pytest_agentbench.packs.research.efficiency import annotations_of

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
        from pytest_agentbench.packs.research.knowledge import KNOWLEDGE_BASE, KnowledgeBase

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
        from pytest_agentbench.packs.research.fact.direct_pages import PageSettings
        from pytest_agentbench.packs.research.fact.pages import Pages

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
        from pytest_agentbench.packs.research.asking import PROMPT_VERSION

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


_MOST = 3
"""Criteria, citations and judged scores that are named."""
_STANDING = ("race", "fact_accuracy", "efficiency", "strategic")
"""The scores that POET and quality are made of."""


def research_evidence(evaluation: Evaluation) -> list[str]:
    """The lines, none where no score of a research report failed. What others wrote in them is not made visible yet."""
    found = evaluation.research
    failed = {each.name for each in evaluation.metrics if each.passed is False}
    parts = {part for part in PARTS if failed & set(SCORES[part])}
    if found is None or not parts:
        return []
    lines = [_made_of(evaluation)] if "poet" in parts else []
    quality = "quality" in failed
    if "race" in parts or quality:
        lines += _weakest_criteria(found.criteria, _dimensions(failed))
    if "fact" in parts or quality:
        lines += _citations(found)
    if parts & {"efficiency", "interaction"}:
        lines.append(_recorded(found))
    if "strategic" in parts:
        lines += _weakest_scores(found)
    return lines


def _made_of(evaluation: Evaluation) -> str:
    scores = {each.name: each.score for each in evaluation.metrics}
    shown = (f"{name} {'not known' if scores.get(name) is None else f'{scores[name]:.3f}'}" for name in _STANDING)
    return f"made of: {', '.join(shown)}"


def _dimensions(failed: Collection[str]) -> Collection[str]:
    """Those that failed, or all where RACE as a whole did."""
    named = [name for name in RACE_DIMENSIONS if f"race_{name}" in failed]
    return named if named and not {"race", "race_weighted_dims", "quality"} & set(failed) else RACE_DIMENSIONS


def _weakest_criteria(criteria: Collection[CriterionScore], dimensions: Collection[str]) -> Iterator[str]:
    """Those in which the report lost most against its reference, or has least where there is none."""
    asked = [each for each in criteria if each.dimension in dimensions]
    for each in sorted(asked, key=lambda each: each.target - (each.reference or 0))[:_MOST]:
        against = f" against {each.reference:g}" if each.reference is not None else " of 10"
        said = f" ({each.analysis})" if each.analysis.strip() else ""
        yield f"{each.dimension}: {each.target:g}{against}: {each.criterion}{said}"


def _citations(found: ResearchScores) -> Iterator[str]:
    """The first that a page does not support, before those whose page could not be read."""
    bad = [each for label in ("unsupported", "unknown") for each in found.statements if each.label == label]
    for each in bad[:_MOST]:
        yield f"{each.label}: {each.fact} <{each.url}>"
    if len(bad) > _MOST:
        yield f"... and {len(bad) - _MOST} more of {len(found.statements) + found.statements_left_out} citations"


def _recorded(found: ResearchScores) -> str:
    metrics, usage = found.execution_metrics, found.execution_metrics.token_usage
    values = {
        "seconds": metrics.total_duration_seconds,
        "USD": usage.total_cost_usd,
        "input tokens": usage.input_tokens,
        "output tokens": usage.output_tokens,
    }
    shown = [f"{value:,g} {name}" for name, value in values.items() if value is not None]
    if metrics.automation_level is not None:
        shown.append(f"automation {metrics.automation_level:g}")
    return f"recorded: {', '.join(shown) or 'nothing'}"


def _weakest_scores(found: ResearchScores) -> Iterator[str]:
    for name, (score, reason) in sorted(found.strategic.items(), key=lambda each: each[1][0])[:_MOST]:
        yield f"{name}: {score:g} of 5{f' ({reason})' if reason.strip() else ''}"
