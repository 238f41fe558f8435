"""Scores of one report, part by part, as results have them and as the composite takes them (seed 003)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from pytest_agentbench.packs.research.arithmetic import PoetWeights, composite_value, quality_value
from pytest_agentbench.packs.research.asking import Unscored
from pytest_agentbench.packs.research.business_report.figures import MOST_LINES, Missing
from pytest_agentbench.packs.research.fact.citations import Counts
from pytest_agentbench.packs.research.fact.rows import CitedPage
from pytest_agentbench.packs.research.knowledge import Unit
from pytest_agentbench.packs.research.race_judging import Scored
from pytest_agentbench.packs.research.records import (
    DefaultField,
    ExecutionMetrics,
    NotNegative,
    QueryRow,
    RaceDimension,
    Share,
)
from pytest_agentbench.records.base import Record

NO_QUALITY = "the quality is not known: it takes RACE, and a citation that could be checked"
NO_POINTS = "the report and its reference have 0 points both"
LONGEST_EVIDENCE = 500
"""Characters of each text that an evaluation stores as evidence."""

LABELS = {
    "comprehensiveness": "Comprehensiveness",
    "insight": "Insight",
    "instruction_following": "Instruction Following",
    "readability": "Readability",
    "overall_score": "Overall Score",
}
"""The scores of a row, with their names in race_result.txt, in its order."""


class RaceRow(QueryRow):
    """A row of raw_results.jsonl, scores 0-1; null if target and reference both have 0 points.

    `race_error` is why it has no scores, `article_digest` identifies their article (`article_digest` of records.py).
    """

    comprehensiveness: Share | None = None
    insight: Share | None = None
    instruction_following: Share | None = None
    readability: Share | None = None
    overall_score: Share | None = None
    race_weighted_dims: Share | None = None
    race_sd: float | None = None
    race_error: str | None = None
    article_digest: str | None = None

    @model_validator(mode="after")
    def _has_scores(self) -> Self:
        # A score may be null, but not absent: a row of another file would otherwise count as one without points.
        missing = [name for name in LABELS if name not in self.model_fields_set]
        if self.race_error is None and missing:
            raise ValueError(f"found no {', '.join(missing)}, expected the scores, or race_error")
        return self

    @property
    def scored(self) -> Self:
        """Return the row itself. Raises Unscored if it has no score."""
        if self.race_error is not None:
            raise Unscored(self.race_error)
        if self.overall_score is None:
            raise Unscored("the article and the reference have 0 points both, so there is nothing to share")
        return self


class OriginalRaceRow(RaceRow):
    """A row as compat mode reads it: scores above 1 are on the original's scale of 5."""

    comprehensiveness: NotNegative | None = None
    insight: NotNegative | None = None
    instruction_following: NotNegative | None = None
    readability: NotNegative | None = None
    overall_score: NotNegative | None = None
    race_weighted_dims: NotNegative | None = None


class EfficiencyScore(Record):
    """A report's efficiency, 0-1, its parts and their data. `reasons` names the missing data of each None.

    `time_saving` is a share of the expert's hours, negative if the agent took longer; `cost_saving_usd` is negative if
    it cost more. `ai_cost` has the origin of the agent's cost. `difficulty` is that of the complexity level, 0-5.
    """

    efficiency_score: Share | None
    time_saving: float | None
    time_saving_hours: float | None
    cost_saving_usd: float | None
    automation_rate: Share | None
    domain: str
    complexity_level: int
    difficulty: float
    expert_hours: NotNegative
    expert_cost_usd: NotNegative
    hours: NotNegative | None
    ai_cost_usd: NotNegative | None
    ai_cost: Literal["recorded", "priced"] | None
    input_tokens: NotNegative | None
    output_tokens: NotNegative | None
    defaults: tuple[DefaultField, ...] = Field((), exclude_if=lambda value: not value)
    """Which of domain and complexity level is a default, because the report lacks it."""
    reasons: dict[str, str] = Field(default_factory=dict)

    def rests_on(self, metrics: ExecutionMetrics) -> bool:
        """Return whether it was computed of these metrics."""
        usage = metrics.token_usage
        mine = (self.hours, self.automation_rate, self.input_tokens, self.output_tokens)
        recorded = self.ai_cost_usd if self.ai_cost == "recorded" else None
        return mine == (metrics.hours, metrics.automation_level, usage.input_tokens, usage.output_tokens) and (
            recorded == usage.total_cost_usd
        )

    @property
    def missing(self) -> str | None:
        """Return why there is no score, or None."""
        if self.efficiency_score is not None:
            return None
        return self.reasons["efficiency_score"]


class StrategicScore(Record):
    """A report's strategic value, 0-1: the judge's eight scores (1-5) with their reasons, and units of knowledge.

    `known` counts the units known before, `created` are the new ones, `repeated` counts drawn ones that were known, or
    that repeat another one of the article, `below_quality` those under the minimum quality; `reused` are known ones
    that it uses.
    """

    strategic_score: Share
    scores: dict[str, float]
    score_reasons: dict[str, str] = Field(default_factory=dict)
    known: int = 0
    created: tuple[Unit, ...]
    repeated: int
    below_quality: int
    reused: tuple[Unit, ...]
    knowledge_creation_value: NotNegative


class InteractionScore(Record):
    """A row of web_interaction_report.json, in the original's structure.

    `metrics` are the recorded values and their comparison with an expert, `efficiency` 0-1, `strategic` proxies of at
    most 5. `missing` names the unrecorded metrics: values that need them are None. `valid` is whether there are none.
    """

    metrics: dict[str, Any]
    efficiency: dict[str, float | None]
    strategic: dict[str, float | None]
    summary: dict[str, dict[str, Any]]
    valid: bool
    missing: tuple[str, ...]


def describe_score(score: float | None, reason: str, **details: Any) -> dict[str, Any]:
    """Return the details of a metric; without a score they contain the reason."""
    return details if score is not None else {**details, "reason": reason}


@dataclass(frozen=True, slots=True)
class RacePart:
    """A report's RACE scores, 0 to `top`, with the lines that `race_lines` gives."""

    overall: float
    dimensions: Mapping[RaceDimension, float | None]
    evidence: tuple[str, ...] = ()
    top: float = 1.0

    @property
    def shares(self) -> dict[str, Any]:
        """Return the fields of a business report's row, 0-1."""
        dimensions = {
            name: None if value is None else min(1.0, value / self.top) for name, value in self.dimensions.items()
        }
        return {"race_score": min(1.0, self.overall / self.top), "race_dimensions": dimensions}


@dataclass(frozen=True, slots=True)
class FactPart:
    """A report's citations by their labels, with the lines that `fact_lines` gives."""

    counts: Counts
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of the composite as far as known of a report. `why` has the reason of each part that is None."""

    race: RacePart | None = None
    fact: FactPart | None = None
    efficiency: EfficiencyScore | None = None
    strategic: StrategicScore | None = None
    why: Mapping[Missing, str] | None = None

    def quality(self, weights: PoetWeights) -> float | None:
        """Return the report's quality, 0-1; None without RACE or without a citation that could be checked."""
        if self.race is None or self.fact is None:
            return None
        return quality_value(self.race.overall, self.fact.counts.accuracy, weights)

    def composite(self, weights: PoetWeights) -> float | None:
        """Return the report's composite, 0-1; None if a part is missing."""
        if self.efficiency is None or self.strategic is None:
            return None
        efficiency, strategic = self.efficiency.efficiency_score, self.strategic.strategic_score
        return composite_value(efficiency, self.quality(weights), strategic, weights)


def race_lines(scored: Mapping[RaceDimension, Sequence[Scored]]) -> tuple[str, ...]:
    """Return the criteria by which a report has the fewest points, one a line."""
    # By the report's own points: the part to improve is the one with the fewest, independent of the
    # reference.
    entries = sorted(
        ((score, name) for name, scores in scored.items() for score in scores), key=lambda entry: entry[0].target
    )
    return tuple(_race_line(name, score) for score, name in entries[:MOST_LINES])


def _race_line(dimension: RaceDimension, score: Scored) -> str:
    line = f"{dimension}: {score.criterion}: {score.target:g}"
    if score.reference is not None:
        line += f" (reference: {score.reference:g})"
    if score.analysis:
        line += f": {score.analysis}"
    return line


def fact_lines(pages: Mapping[str, CitedPage]) -> tuple[str, ...]:
    """Return the statements that their pages do not back, one a line."""
    lines = (
        f"{page.facts[verdict.idx]} ({url})"
        for url, page in pages.items()
        for verdict in page.validate_res or ()
        # Rows may be of other programs, whose numbers need not fit their statements.
        if verdict.result == "unsupported" and 0 <= verdict.idx < len(page.facts)
    )
    return tuple(line for line, _ in zip(lines, range(MOST_LINES), strict=False))
