"""Research reports (seed 003): what a report is scored against, and what the parts of POET say of it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from pytest_agentbench.records.base import Record

RaceDimension = Literal["comprehensiveness", "insight", "instruction_following", "readability"]
RACE_DIMENSIONS: tuple[RaceDimension, ...] = ("comprehensiveness", "insight", "instruction_following", "readability")

Language = Literal["zh", "en"]

RowId = Annotated[int | str, Field(union_mode="left_to_right")]
"""As the file has it."""

Part = Literal["race", "fact", "efficiency", "strategic", "interaction", "poet"]
PARTS: tuple[Part, ...] = ("race", "fact", "efficiency", "strategic", "interaction", "poet")

NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class TokenUsage(Record):
    """Tokens and USD that one report took."""

    model_config = ConfigDict(frozen=True, extra="allow")

    input_tokens: NotNegative | None = None
    output_tokens: NotNegative | None = None
    total_cost_usd: NotNegative | None = None


class ExecutionMetrics(Record):
    """How a report came about (seed 003, `execution_metrics`). What is not known is None, never a default."""

    model_config = ConfigDict(frozen=True, extra="allow")

    total_duration_seconds: NotNegative | None = None
    token_usage: TokenUsage = Field(default_factory=TokenUsage)
    automation_level: Share | None = None
    tool_calls_count: NotNegative | None = None
    sources_used: NotNegative | None = None
    citation_count: NotNegative | None = None
    word_count: NotNegative | None = None


class RaceCriterion(Record):
    """One criterion of a dimension; the weights of a dimension sum to 1."""

    model_config = ConfigDict(frozen=True, extra="allow")

    criterion: str
    explanation: str = ""
    weight: NotNegative


class RaceCriteria(Record):
    """What RACE judges a query's reports by."""

    model_config = ConfigDict(frozen=True, extra="allow")

    id: RowId
    prompt: str
    dimension_weight: dict[RaceDimension, NotNegative]
    criterions: dict[RaceDimension, tuple[RaceCriterion, ...]]


class ReportRow(Record):
    """A row of a file of reports (seed 003, 输入数据格式). Further fields are kept.

    `language` None: told by the prompt. `domain` and `complexity_level` find the annotations; `topic` is what queries
    call their domain.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    id: RowId
    prompt: str
    article: str
    execution_metrics: ExecutionMetrics | None = None
    language: Language | None = None
    topic: str | None = None
    domain: str | None = None
    complexity_level: int | None = None


class QueryRow(Record):
    """A row of query.jsonl or selected_queries.jsonl."""

    model_config = ConfigDict(frozen=True, extra="allow")

    id: RowId
    prompt: str
    language: Language | None = None
    topic: str | None = None
    domain: str | None = None
    complexity_level: int | None = None


class ReferenceRow(Record):
    """A reference report, which RACE compares with."""

    model_config = ConfigDict(frozen=True, extra="allow")

    id: RowId
    prompt: str
    article: str
