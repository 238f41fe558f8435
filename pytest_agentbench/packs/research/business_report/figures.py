"""Rows of the business report, the figures that rest on them, and how people read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from itertools import count
from math import floor, fsum, log10
from typing import Annotated, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, NonNegativeInt, model_validator

from pytest_agentbench.packs.research.asking import read_texts
from pytest_agentbench.packs.research.config import PoetConfig
from pytest_agentbench.packs.research.records import DefaultField, Language, NotNegative, RaceDimension, RowId, Share
from pytest_agentbench.records.base import Record
from pytest_agentbench.statistics.estimates import mean_interval, mean_of
from pytest_agentbench.terminal_text import shorten_text, visible

Missing = Literal["efficiency", "race", "fact", "strategic", "report"]
"""Possible missing parts of a composite; `report`: the row itself could not be read, joined or annotated."""

PART_FIELDS: dict[Missing, str] = {
    "efficiency": "efficiency_score",
    "race": "race_score",
    "fact": "fact_accuracy",
    "strategic": "strategic_score",
}
"""The field of each part of the composite."""

EvidencePart = Literal["race", "fact", "efficiency", "strategic"]

MOST_LINES, LONGEST_LINE = 5, 400


def _short(lines: tuple[str, ...]) -> tuple[str, ...]:
    shortened = (" ".join(line.split()) for line in lines[:MOST_LINES])
    return tuple(shorten_text(line, LONGEST_LINE) for line in shortened)


Lines = Annotated[tuple[str, ...], AfterValidator(_short)]
"""The first MOST_LINES lines, each of at most LONGEST_LINE characters."""

Finite = Annotated[float, Field(allow_inf_nan=False)]


class PoetRow(Record):
    """Row of a business report: one report of one model. Scores are 0-1; `reasons` explains every None.

    The first 13 fields are the seed's summary row. `cost_saving_usd` and the time savings are negative if the agent
    cost more or took longer than the expert; `time_saving` is a share of the expert's hours. `prompt_key` is that of
    the prompt: other models' reports on the same task have the same. `defaults` names which of domain and complexity
    level is a default, because the report lacks it. `strategic_scores` are the judge's eight (1-5). `reasons` has the
    reason of a part without a score. `evidence` has a few short lines for a part: the criteria with the lowest scores,
    the statements that their pages do not support.
    """

    task_id: RowId
    model_name: str
    domain: str | None = None
    complexity_level: int | str | None = None
    overall_poet_score: Share | None = None
    efficiency_score: Share | None = None
    quality_score: Share | None = None
    strategic_score: Share | None = None
    race_score: Share | None = None
    fact_accuracy: Share | None = None
    cost_saving_usd: Finite | None = None
    automation_rate: Share | None = None
    knowledge_units_created: NonNegativeInt | None = None

    prompt_key: str | None = None
    language: Language | None = None
    race_dimensions: dict[RaceDimension, Share | None] = Field(default_factory=dict)
    citations_supported: NonNegativeInt | None = None
    citations_unsupported: NonNegativeInt | None = None
    citations_unknown: NonNegativeInt | None = None
    supported_per_1000_words: NotNegative | None = None
    hours: NotNegative | None = None
    expert_hours: NotNegative | None = None
    expert_cost_usd: NotNegative | None = None
    time_saving: Finite | None = None
    time_saving_hours: Finite | None = None
    ai_cost_usd: NotNegative | None = None
    input_tokens: NotNegative | None = None
    output_tokens: NotNegative | None = None
    resource_efficiency: NotNegative | None = None
    strategic_scores: dict[str, float] = Field(default_factory=dict)
    complexity_adaptability: Share | None = None
    knowledge_units_reused: NonNegativeInt | None = None
    knowledge_creation_value: NotNegative | None = None
    defaults: tuple[DefaultField, ...] = Field((), exclude_if=lambda value: not value)
    reasons: dict[Missing, str] = Field(default_factory=dict)
    evidence: dict[EvidencePart, Lines] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _missing_parts_have_reasons(self) -> Self:
        lacks = [field for field in (*PART_FIELDS.values(), "quality_score") if getattr(self, field) is None]
        if self.overall_poet_score is not None and lacks:
            raise ValueError(f"found an overall_poet_score without {', '.join(lacks)}, expected None")
        for part, field in PART_FIELDS.items():
            # No part is missing without a reason: readers of the report are never left to guess.
            if getattr(self, field) is None and not self.reasons.keys() & {part, "report"}:
                raise ValueError(f"{field} is None, expected an entry in reasons for {part!r}")
        if self.overall_poet_score is None and not self.reasons:
            raise ValueError("overall_poet_score is None, expected an entry in reasons")
        return self

    @property
    def task(self) -> str:
        """Return the common key of several reports on one task: their prompt, else their id."""
        return self.prompt_key or str(self.task_id)

    @property
    def citations_known(self) -> int | None:
        """Return the citations whose page could be read and compared."""
        if self.citations_supported is None or self.citations_unsupported is None:
            return None
        return self.citations_supported + self.citations_unsupported


SUMMARY_FIELDS = tuple(PoetRow.model_fields)[:13]
"""The seed's summary row."""


_MOST_DIGITS = 6
LONGEST = 400
"""Characters of a name or reason that are shown; JSON has all."""
DASH = "–"


def format_share(value: float | None) -> str:
    """Return a score: two decimals, as far as the judges' scores carry."""
    if value is None:
        return DASH
    return f"{value:.2f}"


def format_difference(value: float | None) -> str:
    """Return the difference of two scores, with its sign and two decimals."""
    return DASH if value is None else f"{value:+.2f}"


def format_apart(value: float, other: float, form: str = "f") -> tuple[str, str]:
    """Return two numbers with enough decimals to differ. `form`: `f`, or `%` for percents."""
    # `0.80, below the threshold 0.80` would look like a mistake of ours.
    for digits in range(0 if form == "%" else 2, _MOST_DIGITS):
        texts = f"{value:.{digits}{form}}", f"{other:.{digits}{form}}"
        if value == other or texts[0] != texts[1]:
            break
    return texts


def format_classed(value: float, thresholds: Iterable[float]) -> str:
    """Return a score next to its class: never rounded up to a threshold that it does not reach."""
    above = min((threshold for threshold in thresholds if threshold > value), default=None)
    if above is None:
        return format_share(value)
    return format_apart(value, above)[0]


def format_interval(value: tuple[float, float] | None, to: str) -> str:
    """Return both ends, with a sign if one is negative; with a third decimal if two are equal."""
    if value is None:
        return DASH
    low, high = value
    # An interval with equal ends would look like a point.
    digits = 2 if f"{low:.2f}" != f"{high:.2f}" else 3
    sign = "+" if low < 0 else ""
    return f"{low:{sign}.{digits}f} {to} {high:{sign}.{digits}f}"


def format_usd(value: float | None) -> str:
    """Return US dollars: whole ones from a thousand on, then cents, below one three significant digits."""
    if value is None:
        return DASH
    size = abs(value)
    # Judges cost fractions of a cent, experts thousands: a fixed number of decimals shows one of them as nothing.
    if size >= 1000:
        digits = 0
    elif size >= 1 or not size:
        digits = 2
    else:
        digits = 2 - floor(log10(size))
    return f"{'-' * (value < 0)}${size:,.{min(digits, _MOST_DIGITS)}f}"


def format_hours(value: float | None) -> str:
    """Return one decimal, below one hour minutes."""
    if value is None:
        return DASH
    if abs(value) >= 1 or not value:
        return f"{value:,.1f} h"
    return f"{value * 60:.1f} min"


def format_count(value: float | None) -> str:
    """Return a whole number with separators."""
    if value is None:
        return DASH
    return f"{value:,.0f}"


def format_line(text: object) -> str:
    """Return one line of at most LONGEST characters of another's text, which can neither steer a terminal nor turn
    text.
    """
    # Cut before it is split: the text may have megabytes. Twice the length, because blanks are removed.
    line = " ".join(str(text)[: 2 * LONGEST].split())
    return visible(shorten_text(line, LONGEST))


COSTS = {
    "ai_usd": format_usd,
    "expert_usd": format_usd,
    "saving_usd": format_usd,
    "ai_hours": format_hours,
    "expert_hours": format_hours,
    "saved_hours": format_hours,
    "input_tokens": format_count,
    "output_tokens": format_count,
}
"""The figures of costs, and how each is shown."""


T = TypeVar("T")

FEWEST_FOR_INTERVAL = 5
"""Minimum number of reports for an interval."""

PerformanceClass = Literal["excellent", "good", "acceptable", "poor", "insufficient"]


class Mean(Record):
    """Mean over the n reports that have the value. `ci95` is the t interval over tasks, None for fewer than five."""

    n: int
    mean: float | None
    ci95: tuple[float, float] | None
    lowest: float | None
    highest: float | None


class Total(Record):
    """Sum over the n reports that have the value, or None without any."""

    n: int
    total: float | None


def read_thresholds(config: PoetConfig) -> dict[PerformanceClass, float]:
    """Return the lower bounds of classes, the highest first: `evaluation_thresholds` if the file has them."""
    standard, own = config.performance_thresholds, config.evaluation_thresholds
    return {
        "excellent": own.get("excellent_poet_score", standard.excellent_threshold),
        "good": own.get("good_poet_score", standard.good_threshold),
        "acceptable": own.get("acceptable_poet_score", standard.acceptable_threshold),
        "poor": own.get("poor_poet_score", standard.poor_threshold),
    }


def performance_class(score: float, thresholds: Mapping[PerformanceClass, float]) -> PerformanceClass:
    """Return the highest class whose threshold the score reaches, else `insufficient`."""
    return next((name for name, threshold in thresholds.items() if score >= threshold), "insufficient")


def average(values: Iterable[float | None], tasks: Iterable[object] | None = None) -> Mean:
    """Return the mean of the known values.

    `tasks` has the task of each report (default: a separate one).
    """
    pairs = zip(count() if tasks is None else tasks, values, strict=False)
    known = [(task, value) for task, value in pairs if value is not None]
    if not known:
        return Mean(n=0, mean=None, ci95=None, lowest=None, highest=None)
    numbers, groups = [value for _, value in known], group_by_task(known)
    # Over tasks: reports on one task resemble each other, and each of them as an observation would make the interval
    # too narrow.
    interval = mean_interval(groups) if len(groups) >= FEWEST_FOR_INTERVAL else None
    return Mean(n=len(numbers), mean=mean_of(numbers), ci95=interval, lowest=min(numbers), highest=max(numbers))


def group_by_task(values: Iterable[tuple[object, T]]) -> list[list[T]]:
    """Return the values of each task's reports together: of several on one task, intervals take them as repetitions."""
    groups: dict[object, list[T]] = {}
    for task, value in values:
        groups.setdefault(task, []).append(value)
    return list(groups.values())


def add_up(values: Iterable[float | None]) -> Total:
    """Return the sum of those that are known."""
    known = [value for value in values if value is not None]
    return Total(n=len(known), total=fsum(known) if known else None)


@cache
def read_labels(language: Language) -> Mapping[str, str]:
    """Return every text of the business report that is not data, by the names that the data have."""
    return {name: texts[language] for name, texts in read_texts("labels").items()}
