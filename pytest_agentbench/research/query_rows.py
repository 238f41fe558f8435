"""Queries as they are proposed, scored and selected: the rows of seed 003's query files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StrictFloat, StrictInt

from pytest_agentbench.records import QueryRow, Record, RowId
from pytest_agentbench.research.asking import Unscored
from pytest_agentbench.research.query_value import LOWEST, QUERY_DIMENSIONS, TOP, query_value

CSV_HEADER = ("排名", "Query编号", "Query标题", "总分", *(each.key for each in QUERY_DIMENSIONS), "Query内容")

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


class ProposedQuery(QueryRow):
    """A query before it is scored. Its `topic`, `domain`, `complexity_level` and `language` are what its file says."""

    title: str = ""


class DimensionScore(Record):
    """A judge's score of one dimension, 1-5."""

    model_config = ConfigDict(frozen=True, extra="allow")

    score: Annotated[StrictInt | StrictFloat, Field(ge=LOWEST, le=TOP)]
    reason: str = ""


class ScoringResult(Record):
    """As query_scores.json has it."""

    model_config = ConfigDict(frozen=True, extra="allow")

    scores: dict[str, DimensionScore]
    overall_score: float | None = None


class Classification(Record):
    """What a judge takes a query for; None where it cannot tell."""

    domain: str | None = None
    complexity_level: Annotated[StrictInt, Field(ge=LOWEST, le=TOP)] | None = None


class ScoredQuery(QueryRow):
    """A row of query_scores.json. `select_error` says why it has no scores.

    `classification` is the judge's; what the query's own file says stands beside it, and comes first.
    """

    model_config = ConfigDict(frozen=True, extra="allow", populate_by_name=True)

    id: RowId = Field(alias="query_number")
    title: str = Field("", alias="query_title")
    prompt: str = Field(alias="query_content")
    scoring_result: ScoringResult | None = None
    classification: Classification = Field(default_factory=Classification)
    select_error: str | None = None

    @property
    def value(self) -> float:
        """The score of the seven, 1-5. Raises Unscored where there are none, LackingScores where some are missing."""
        if self.scoring_result is None:
            raise Unscored(self.select_error or "found neither scoring_result nor select_error")
        return query_value({key: each.score for key, each in self.scoring_result.scores.items()})


def scored_query(
    query: ProposedQuery, result: Mapping[str, Any], classification: Classification | None = None
) -> ScoredQuery:
    """The row of a query that a judge has scored."""
    own = query.model_dump(exclude_unset=True, exclude={"id", "title", "prompt"})
    return ScoredQuery(
        query_number=query.id,
        query_title=query.title,
        query_content=query.prompt,
        scoring_result=ScoringResult.model_validate(result),
        **({} if classification is None else {"classification": classification}),
        **own,
    )


def scores_row(query: ScoredQuery) -> dict[str, Any]:
    """A row of query_scores.json."""
    row = query.model_dump(by_alias=True, exclude_unset=True)
    first = ("query_number", "query_title", "query_content", "scoring_result")
    return {name: row.get(name) for name in first} | row


def failed_scores_row(data: Mapping[str, Any] | None, line: int, error: Exception) -> dict[str, Any]:
    """The same of a query without scores, given its fields as far as they are known and the line of its file."""
    names = {"id": "query_number", "title": "query_title", "prompt": "query_content"}
    known = {names.get(field, field): value for field, value in (data or {}).items()}
    return {**(known or {"line": line}), "select_error": str(error)}


def csv_rows(queries: Sequence[ScoredQuery]) -> list[list[Any]]:
    """query_scores.csv: the header, then the queries by score, the best first."""
    ranked = sorted(queries, key=lambda query: -query.value)
    return [list(CSV_HEADER), *(_csv_row(rank, query) for rank, query in enumerate(ranked, 1))]


def as_cell(value: Any) -> Any:
    """A text that no spreadsheet takes for a formula: an apostrophe before it keeps it from being one."""
    return f"'{value}" if isinstance(value, str) and value.lstrip("'").startswith(_FORMULA) else value


def from_cell(cell: str) -> str:
    """The text that `as_cell` made this of."""
    return cell[1:] if cell.startswith("'") and cell.lstrip("'").startswith(_FORMULA) else cell


def _csv_row(rank: int, query: ScoredQuery) -> list[Any]:
    assert query.scoring_result is not None
    scores = [query.scoring_result.scores[each.key].score for each in QUERY_DIMENSIONS]
    return [rank, as_cell(query.id), as_cell(query.title), query.value, *scores, as_cell(query.prompt)]


def selected_row(query: ScoredQuery) -> dict[str, Any]:
    """A row of selected_queries.jsonl. Domain and level are the file's own, else the judge's, else null."""
    assert query.scoring_result is not None
    domain, domain_from = _known(query.domain, query.classification.domain)
    level, level_from = _known(query.complexity_level, query.classification.complexity_level)
    metadata = {
        "query_number": query.id,
        "query_title": query.title,
        "topic": query.topic,
        "overall_score": query.value,
        "scores": {key: each.score for key, each in query.scoring_result.scores.items()},
        "domain_from": domain_from,
        "complexity_level_from": level_from,
    }
    return {
        "id": query.id,
        "domain": domain,
        "complexity_level": level,
        "prompt": query.prompt,
        "query_metadata": metadata,
    }


def query_row(query: ScoredQuery, language: str) -> dict[str, Any]:
    """A row of query.jsonl. Without a topic of its own the query's domain stands for it."""
    domain, _ = _known(query.domain, query.classification.domain)
    return {"id": query.id, "topic": query.topic or domain, "language": language, "prompt": query.prompt}


def _known(own: Any, judged: Any) -> tuple[Any, Literal["query", "judge"] | None]:
    if own is not None:
        return own, "query"
    return (judged, "judge") if judged is not None else (None, None)
