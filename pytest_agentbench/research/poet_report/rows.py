"""One report in the business report: its scores, what they rest on, and why any of them is missing."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, NonNegativeInt, model_validator

from pytest_agentbench.records import Language, RaceDimension, Record, RowId
from pytest_agentbench.records.research import NotNegative, Share

Missing = Literal["efficiency", "race", "fact", "strategic", "report"]
"""What a composite can lack; `report`: the row itself could not be read, joined or annotated."""

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
    kept = (" ".join(line.split()) for line in lines[:MOST_LINES])
    return tuple(line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1] + "…" for line in kept)


Lines = Annotated[tuple[str, ...], AfterValidator(_short)]
"""The first MOST_LINES lines, each of at most LONGEST_LINE characters."""

Finite = Annotated[float, Field(allow_inf_nan=False)]


class PoetRow(Record):
    """What POET says of one report of one model. Scores are 0-1; None is always told in `reasons`.

    The first 13 fields are the seed's summary row. `cost_saving_usd` and the time savings are negative where the agent
    cost more or took longer than the expert; `time_saving` is a share of the expert's hours. `prompt_key` is that of
    the prompt: other models' reports on the same task have the same.
    `strategic_scores` are the judge's eight (1-5). `reasons` says why a part has no score. `evidence` has a few short
    lines for a part: the criteria with the lowest scores, the statements that their pages do not back.
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
    reasons: dict[Missing, str] = Field(default_factory=dict)
    evidence: dict[EvidencePart, Lines] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _told(self) -> Self:
        lacks = [field for field in (*PART_FIELDS.values(), "quality_score") if getattr(self, field) is None]
        if self.overall_poet_score is not None and lacks:
            raise ValueError(f"found an overall_poet_score without {', '.join(lacks)}, expected None")
        for part, field in PART_FIELDS.items():
            if getattr(self, field) is None and not self.reasons.keys() & {part, "report"}:
                raise ValueError(f"{field} is None, expected reasons to say why under {part!r}")
        if self.overall_poet_score is None and not self.reasons:
            raise ValueError("overall_poet_score is None, expected reasons to say why")
        return self

    @property
    def task(self) -> str:
        """What several reports on one task have in common: their prompt, else their id."""
        return self.prompt_key or str(self.task_id)

    @property
    def citations_known(self) -> int | None:
        """Citations whose page could be read and compared."""
        if self.citations_supported is None or self.citations_unsupported is None:
            return None
        return self.citations_supported + self.citations_unsupported


SUMMARY_FIELDS = tuple(PoetRow.model_fields)[:13]
"""The seed's summary row."""
