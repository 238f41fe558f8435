"""Results of the other stages on a model's reports: the files of `results/`, joined by prompt and id."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ConfigDict

from pytest_agentbench.config.base import Scope, validate
from pytest_agentbench.config.documents import Document, read_document
from pytest_agentbench.errors import AgentbenchError, ConfigError
from pytest_agentbench.packs.research.arithmetic import COMPAT_RACE_MAX, weights_of
from pytest_agentbench.packs.research.asking import Unscored
from pytest_agentbench.packs.research.business_report.figures import EvidencePart, Missing
from pytest_agentbench.packs.research.fact.rows import FactRow, OriginalFactRow, count_row
from pytest_agentbench.packs.research.inputs import join_briefs, join_rows
from pytest_agentbench.packs.research.race_judging import Scored
from pytest_agentbench.packs.research.records import (
    RACE_DIMENSIONS,
    ExecutionMetrics,
    RaceDimension,
    ReportRow,
    RowId,
    article_digest,
)
from pytest_agentbench.packs.research.rows import GoodRow, Joined, read_research_rows
from pytest_agentbench.packs.research.scores import (
    EfficiencyScore,
    FactPart,
    OriginalRaceRow,
    Parts,
    RacePart,
    RaceRow,
    StrategicScore,
    fact_lines,
    race_lines,
)
from pytest_agentbench.packs.research.stages import PART_STAGES
from pytest_agentbench.records.base import Record

if TYPE_CHECKING:
    from pytest_agentbench.packs.research.call import Call


T = TypeVar("T")
S = TypeVar("S", StrategicScore, EfficiencyScore)
R = TypeVar("R", bound=Record)


class _Outcome(Record):
    """A row of efficiency_report.json or strategic_report.json."""

    model_config = ConfigDict(frozen=True, extra="allow")

    id: RowId
    prompt: str


class _Criterion(Record):
    """Scores by one criterion; pointwise it has `target_score` alone."""

    criterion: str
    analysis: str = ""
    target_score: float | None = None
    article_1_score: float | None = None
    article_2_score: float | None = None


class _Draw(Record):
    model_config = ConfigDict(frozen=True, extra="ignore")

    judge_details: dict[RaceDimension, tuple[_Criterion, ...]]


class _Details(Record):
    """A row of race_details.jsonl."""

    id: RowId
    draws: tuple[_Draw, ...]

    @property
    def first_draw(self) -> dict[RaceDimension, tuple[Scored, ...]]:
        """Return the scores of the first draw, from the article's point of view."""
        scores: dict[RaceDimension, tuple[Scored, ...]] = {}
        for name, entries in self.draws[0].judge_details.items() if self.draws else ():
            targets = [
                (entry, entry.article_1_score if entry.target_score is None else entry.target_score)
                for entry in entries
            ]
            scores[name] = tuple(
                Scored(entry.criterion, target, entry.article_2_score, entry.analysis)
                for entry, target in targets
                if target is not None
            )
        return scores


@dataclass(frozen=True, slots=True)
class _Fact:
    """A row of validated.jsonl without its pages; `part` is a text with the reason if it has no score."""

    id: RowId
    prompt: str
    article_digest: str
    part: FactPart | str


class StageResults:
    """Results of a model's reports below a folder such as `results`. Each file is read when it is first needed.

    Raises ConfigError for files that are there and cannot be read at all.
    """

    def __init__(self, call: Call, folder: Path, model: str) -> None:
        self._call, self._folder, self._model = call, folder, model
        self._outcomes: dict[EvidencePart, Joined[_Outcome] | None] = {}

    def parts(self, row: ReportRow, *, efficiency: bool) -> Parts:
        """Return a report's existing parts, and why the rest is missing. `efficiency`: whether that is included."""
        why: dict[Missing, str] = {}
        race = _try_part(why, "race", lambda: self._race(row))
        fact = _try_part(why, "fact", lambda: self._fact(row))
        strategic = _try_part(why, "strategic", lambda: self._outcome("strategic", row, StrategicScore))
        if efficiency:
            work = _try_part(why, "efficiency", lambda: self._outcome("efficiency", row, EfficiencyScore))
        else:
            work = None
        return Parts(race, fact, work, strategic, why)

    def quality(self, row: ReportRow, *, compat: bool) -> tuple[float | None, str]:
        """Return a report's quality, 0-1, or None and why."""
        why: dict[Missing, str] = {}
        parts = Parts(_try_part(why, "race", lambda: self._race(row)), _try_part(why, "fact", lambda: self._fact(row)))
        quality = parts.quality(weights_of(self._call.config, compat=compat))
        if quality is None and not why:
            why["fact"] = "no citation could be checked"
        return quality, "; ".join(f"{part}: {reason}" for part, reason in why.items())

    def _race(self, row: ReportRow) -> RacePart:
        race_row = self._partner("race", self._race_rows, row).scored
        # The report may have been replaced since under the same id and prompt.
        self._require_same("race", row, race_row.article_digest)
        # `scored` raises if it is None.
        assert race_row.overall_score is not None
        dimensions = {name: getattr(race_row, name) for name in RACE_DIMENSIONS}
        scores = [race_row.overall_score, *(value or 0.0 for value in dimensions.values())]
        # More than 1 gets past the checks of an OriginalRaceRow only.
        top = COMPAT_RACE_MAX if max(scores) > 1 else 1.0
        return RacePart(race_row.overall_score, dimensions, self._race_evidence.get(str(row.id), ()), top)

    def _fact(self, row: ReportRow) -> FactPart:
        fact: _Fact = self._partner("fact", self._fact_rows, row)
        self._require_same("fact", row, fact.article_digest)
        if isinstance(fact.part, str):
            raise Unscored(fact.part)
        return fact.part

    def _outcome(self, part: EvidencePart, row: ReportRow, form: type[S]) -> S:
        outcome = self._partner(part, self._outcome_rows(part), row)
        # A row has its id, further figures and reasons besides the fields of the score, which allows no others.
        fields = {name: value for name, value in (outcome.model_extra or {}).items() if name in form.model_fields}
        error = (outcome.model_extra or {}).get(f"{part}_error")
        # A row may have a reason for its incompleteness and its other figures too.
        if error is not None and f"{part}_score" not in fields:
            raise Unscored(str(error))
        self._require_same(part, row, (outcome.model_extra or {}).get("article_digest"))
        score = _validate_row(self._path(part), 1, fields, form)
        metrics = row.execution_metrics or ExecutionMetrics()
        # The article may be the same and the run's recorded values different.
        if isinstance(score, EfficiencyScore) and not score.rests_on(metrics):
            raise Unscored(self._stale(part, "execution_metrics"))
        return score

    def _require_same(self, part: EvidencePart, row: ReportRow, digest: object) -> None:
        """Raise Unscored for a result of another article."""
        if digest is not None and digest != article_digest(row.article):
            raise Unscored(self._stale(part, "article"))

    def _stale(self, part: EvidencePart, what: str) -> str:
        return f"{self._path(part)}: is of another {what} than the report has now; run agentbench research {part} again"

    def _partner(self, part: EvidencePart, rows: Joined[Any] | None, row: ReportRow) -> Any:
        if rows is None:
            raise Unscored(f"{self._path(part)} is not there; run agentbench research {part}")
        return rows.partner(row)

    def _path(self, part: EvidencePart) -> Path:
        stage = PART_STAGES[part]
        return self._folder / stage.folder / self._model / stage.rows

    def _rows(self, part: EvidencePart, form: Any) -> Joined[Any] | None:
        path = self._path(part)
        if path.is_file():
            return join_rows(self._call, path, form)
        return None

    @cached_property
    def _race_rows(self) -> Joined[RaceRow] | None:
        return self._rows("race", OriginalRaceRow if self._call.args.compat else RaceRow)

    @cached_property
    def _fact_rows(self) -> Joined[_Fact] | None:
        path = self._path("fact")
        record = OriginalFactRow if self._call.args.compat else FactRow
        if path.is_file():
            return join_briefs(self._call, path, record, _summarise_fact)
        return None

    def _outcome_rows(self, part: EvidencePart) -> Joined[_Outcome] | None:
        if part not in self._outcomes:
            self._outcomes[part] = _read_outcomes(self._call, self._path(part))
        return self._outcomes[part]

    @cached_property
    def _race_evidence(self) -> dict[str, tuple[str, ...]]:
        """Return the judge's first scores of each report by id, if they are stored."""
        path = self._path("race").with_name("race_details.jsonl")
        rows = read_research_rows(path, _Details) if path.is_file() else ()
        return {str(row.value.id): race_lines(row.value.first_draw) for row in rows if isinstance(row, GoodRow)}


def _summarise_fact(row: FactRow) -> _Fact:
    try:
        part: FactPart | str = FactPart(count_row(row), fact_lines(row.citations_deduped or {}))
    except Unscored as error:
        part = str(error)
    return _Fact(row.id, row.prompt, article_digest(row.article), part)


def _try_part(why: dict[Missing, str], part: EvidencePart, find: Callable[[], T]) -> T | None:
    try:
        return find()
    except AgentbenchError as error:
        why[part] = str(error)
        return None


def _read_outcomes(call: Call, path: Path) -> Joined[_Outcome] | None:
    if not path.is_file():
        return None
    document = read_document(path)
    rows = document.data.get("results") if isinstance(document.data, dict) else None
    if not isinstance(rows, list):
        raise ConfigError(f"{path}:1:1: results: missing, expected a list with an object for each report")
    outcomes = []
    for number, row in enumerate(rows):
        # The document knows the line of each row of its list: problems name it.
        line = document.problem(("results", number), "").line
        try:
            outcomes.append((line, _validate_row(path, line, row, _Outcome)))
        except ConfigError as error:
            if not _is_lost(row):
                call.warn(str(error))
    return Joined(path, outcomes)


def _is_lost(row: Any) -> bool:
    """Return whether the stage itself could not read the report: it has an error, and only its line or id."""
    return isinstance(row, dict) and any(name.endswith("_error") for name in row)


def _validate_row(path: Path, line: int, row: Any, form: type[R]) -> R:
    return validate(Document(path, b"", row, place=lambda _: (line, 1)), form, Scope(str(path.parent)))
