"""Records of research reports: their tasks, and the results of the parts of POET (seed 003)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, ConfigDict, Field, StrictInt, StrictStr

from pytest_agentbench.config.prompt_files import PromptTexts, is_none
from pytest_agentbench.packs.research.stages import PARTS, Part
from pytest_agentbench.records.base import CasePart, Record

if TYPE_CHECKING:
    from pytest_agentbench.records.case import Case

RaceDimension = Literal["comprehensiveness", "insight", "instruction_following", "readability"]
RACE_DIMENSIONS: tuple[RaceDimension, ...] = ("comprehensiveness", "insight", "instruction_following", "readability")

Language = Literal["zh", "en"]

RowId = StrictInt | StrictStr
"""As the file has it: `1`, `"1"` and `"01"` stay apart. Rows are joined by the text of it."""

NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
"""Maximum of recorded values; with more, means and their intervals would overflow."""


class TokenUsage(Record):
    """Tokens and USD that one report took."""

    model_config = ConfigDict(frozen=True, extra="allow")

    input_tokens: Amount | None = None
    output_tokens: Amount | None = None
    total_cost_usd: Amount | None = None


def _none_known(usage: Any) -> Any:
    if usage is None:
        return TokenUsage()
    return usage


class ExecutionMetrics(Record):
    """Execution of a report's agent (seed 003, `execution_metrics`). Unknown values are None, never a default."""

    model_config = ConfigDict(frozen=True, extra="allow")

    total_duration_seconds: Amount | None = None
    token_usage: Annotated[TokenUsage, BeforeValidator(_none_known)] = Field(default_factory=TokenUsage)
    automation_level: Share | None = None
    tool_calls_count: Amount | None = None
    sources_used: Amount | None = None
    citation_count: Amount | None = None
    word_count: Amount | None = None

    @property
    def hours(self) -> float | None:
        """Return the hours that the report took, or None."""
        seconds = self.total_duration_seconds
        return None if seconds is None else seconds / 3600


Weight = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
"""A share, or one on another scale, such as percent. The bound keeps sums finite."""


class RaceCriterion(Record):
    """One criterion of a dimension; the weights of a dimension sum to 1."""

    model_config = ConfigDict(frozen=True, extra="allow")

    criterion: str
    explanation: str = ""
    weight: Weight


class RaceCriteria(Record):
    """Criteria by which RACE judges a query's reports."""

    model_config = ConfigDict(frozen=True, extra="allow")

    id: RowId
    prompt: str
    dimension_weight: dict[RaceDimension, Weight]
    criterions: dict[RaceDimension, tuple[RaceCriterion, ...]]


class ReportRow(Record):
    """A row of a file of reports (seed 003, 输入数据格式). Further fields are kept.

    `language` None: detected from the prompt. `domain` and `complexity_level` find the annotations; `topic` is the
    queries' name of their domain.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    id: RowId
    prompt: str
    article: str
    execution_metrics: ExecutionMetrics | None = None
    language: Language | None = None
    topic: str | None = None
    domain: str | None = None
    complexity_level: int | str | None = None


class QueryRow(Record):
    """A row of query.jsonl or selected_queries.jsonl."""

    model_config = ConfigDict(frozen=True, extra="allow")

    id: RowId
    prompt: str
    language: Language | None = None
    topic: str | None = None
    domain: str | None = None
    complexity_level: int | str | None = None


class ReferenceRow(Record):
    """A reference report, which RACE compares with."""

    model_config = ConfigDict(frozen=True, extra="allow")

    id: RowId
    prompt: str
    article: str


Cleaning = Literal["deterministic", "model", "none"]
"""Cleaning of an article before RACE judges it: by rules, by a model, or not at all."""


class RowPlace(NamedTuple):
    """Place of a row in a file: its 1-based `line`, its bytes, and the SHA-256 of its content."""

    path: Path
    line: int
    offset: int
    size: int
    digest: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:1"


class ResearchScoring(Record):
    """Settings by which the reports of a reports.yaml are scored. `thresholds` are least values of its metrics.

    `annotations` is a folder, `config` a file such as poet_algorithm_config.json, `knowledge_base` one that grows.
    `prompts` are in place of ours.
    """

    parts: tuple[Part, ...] = PARTS
    thresholds: dict[str, float] = Field(default_factory=dict)
    cleaning: Cleaning = "deterministic"
    position_swap: bool = False
    samples: int = 1
    compat: bool = False
    annotations: Path | None = None
    config: Path | None = None
    knowledge_base: Path | None = None
    prompts: PromptTexts | None = Field(default=None, exclude_if=is_none)


DefaultField = Literal["domain", "complexity_level"]
"""A field of a report's task that may have a default."""


class ResearchTask(CasePart):
    """A research report to be scored. `article` is None if the run writes it, `reference` if RACE has none.

    `domain` is in the annotations' terms; `defaults` names which of domain and level is a default. The texts are read
    when they are needed.
    """

    row_id: RowId
    prompt: str
    language: Language
    topic: str | None = None
    domain: str | None = None
    complexity_level: int | str | None = None
    defaults: tuple[DefaultField, ...] = ()
    article: RowPlace | None = None
    criteria: RowPlace | None = None
    reference: RowPlace | None = None
    scoring: ResearchScoring

    def identity(self, folder: Path) -> Mapping[str, Any]:
        """Return nothing: the run's fingerprint has the prompt as a message, and the rest decides the verdict."""
        return {}

    @property
    def deciders(self) -> tuple[str, ...]:
        """Return its thresholds; without any, it fails without a report, and is an error if a part has no score."""
        return tuple(f"{name}>={least:g}" for name, least in self.scoring.thresholds.items()) or ("report only",)

    @property
    def is_answered(self) -> bool:
        """Return whether the report is stored, so that no runner writes it."""
        return self.article is not None


class CriterionScore(Record):
    """A judge's scores of one criterion, 0-10, in the first draw. `reference` is None without a reference."""

    dimension: RaceDimension
    criterion: str
    target: float
    reference: float | None = None
    analysis: str = ""


class CitedStatement(Record):
    """A statement of a report with the address that it cites, and whether the page there backs it."""

    url: str
    fact: str
    label: str


RESEARCH = "research"
"""The name of both parts: of a case, and of the evaluation of its report."""


def task_of_case(case: "Case") -> ResearchTask:
    """Return the report to score of a case that is one."""
    task = case.part(ResearchTask)
    assert task is not None
    return task


class StageCost(Record):
    """Cost of judging at one stage; `unknown` requests had no cost, and `cost_usd` is the cost of the others."""

    requests: int
    input_tokens: int
    output_tokens: int
    cost_usd: float
    unknown: int


class ResearchScores(Record):
    """Evidence of a report's scores; texts are shortened. The scores themselves are the evaluation's metrics.

    `language` to `complexity_level` are the values used for scoring. `statements` are the first ones that cite a page,
    `statements_left_out` counts the others. `strategic` has the judge's eight scores (1-5) with their reasons,
    `knowledge` the texts of new units with their qualities (0-1). `summary` is the report's row in a business report,
    `config` the differences from the seed's values in its configuration, `judge` the cost.
    `judge_model` is the judge, None if none was asked; it may have answered from scripts.
    """

    row_id: RowId
    model: str
    language: Language
    domain: str | None = None
    complexity_level: int | str | None = None
    execution_metrics: ExecutionMetrics
    criteria: tuple[CriterionScore, ...] = ()
    statements: tuple[CitedStatement, ...] = ()
    statements_left_out: int = 0
    strategic: dict[str, tuple[float, str]] = Field(default_factory=dict)
    knowledge: tuple[tuple[str, float], ...] = ()
    summary: dict[str, Any] | None = None
    config: dict[str, Any] = Field(default_factory=dict)
    compat: bool = False
    judge: dict[str, StageCost] = Field(default_factory=dict)
    judge_model: str | None = None
    judge_scripted: bool = False


# Seed 003's definitions, digit for digit: [3] is a citation, [3, 4] none, and words are U+4E00 to U+9FFF or runs of
# ASCII letters. Other counts would not compare.
_MARKER = re.compile(r"\[([0-9]+)\]")
_WORD = re.compile("[\u4e00-\u9fff]|[A-Za-z]+")


@dataclass(frozen=True, slots=True)
class ArticleCounts:
    """`citations` are markers such as `[3]`, `sources` the numbers among them, `words` Chinese characters and runs of
    Latin letters."""

    citations: int
    sources: int
    words: int


def count_article(article: str) -> ArticleCounts:
    """Return the counts of a report's text."""
    # [01] and [1] are one source.
    markers = _MARKER.findall(article)
    return ArticleCounts(len(markers), len({number.lstrip("0") for number in markers}), len(_WORD.findall(article)))


@dataclass(frozen=True, slots=True)
class Report:
    """One report of one agent on one query.

    `id` is the row's, `case_id` the name under which judges' scripts and cassettes know it, `model` the agent's model.
    """

    id: RowId
    case_id: str
    model: str
    prompt: str
    article: str
    language: Language
    metrics: ExecutionMetrics = field(default_factory=ExecutionMetrics)


def article_digest(article: str) -> str:
    """Return 16 hex digits by which results identify their article."""
    # surrogatepass: JSON may hold half of a surrogate pair, which utf-8 refuses.
    return sha256(article.encode("utf-8", "surrogatepass")).hexdigest()[:16]
