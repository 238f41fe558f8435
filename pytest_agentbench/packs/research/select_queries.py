"""Stage select-queries: a judge scores queries by seven dimensions, and the valuable ones are kept (seed 003)."""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field, StrictFloat, StrictInt, StringConstraints

from pytest_agentbench.bounded.writing import format_rows, require_writable, write_document, write_rows, write_text
from pytest_agentbench.errors import AgentbenchError
from pytest_agentbench.judging.verdicts import structured
from pytest_agentbench.models.replies import ReplyPart, read_json_object, validate_form
from pytest_agentbench.packs.research.asking import (
    PROMPT_VERSION,
    TEXT,
    WORDINGS,
    Asking,
    Unscored,
    object_schema,
    parse_objects,
)
from pytest_agentbench.packs.research.call import Call, case_id
from pytest_agentbench.packs.research.commands import add, add_config, add_judge, add_rows
from pytest_agentbench.packs.research.inputs import chosen_rows, input_rows, language_of_row, name_row, require_value
from pytest_agentbench.packs.research.query_files import (
    ProposedQuery,
    as_cell,
    copy_former,
    ids_in_use,
    keep_ids,
    read_queries,
)
from pytest_agentbench.packs.research.records import Language, QueryRow, RowId
from pytest_agentbench.records.base import Record

if TYPE_CHECKING:
    from pytest_agentbench.packs.research.rows import GoodRow, LostRow


@dataclass(frozen=True, slots=True)
class QueryDimension:
    """One of the seven. `key` is its name in files, `weight` its part of the score; the sum is 1."""

    letter: str
    chinese: str
    english: str
    weight: float

    @property
    def key(self) -> str:
        """Return as query_scores.json has it."""
        return f"{self.letter}. {self.chinese}"


QUERY_DIMENSIONS = (
    QueryDimension("A", "决策颠覆性", "impact on decisions", 0.05),
    QueryDimension("B", "分析复杂性", "complexity of the analysis", 0.20),
    QueryDimension("C", "行动导向性", "orientation to action", 0.20),
    QueryDimension("D", "风险/收益规模", "scale of risk and return", 0.15),
    QueryDimension("E", "时效敏感性", "sensitivity to time", 0.10),
    QueryDimension("F", "专业壁垒", "need of expertise", 0.05),
    QueryDimension("G", "可验证性", "verifiability", 0.25),
)
LOWEST, TOP = 1, 5


class LackingScores(AgentbenchError):
    """Dimensions without a score: a query has a value only with all seven."""


def query_value(scores: Mapping[str, float]) -> float:
    """Return `round(sum(s w) / sum(w), 2)` of scores of 1-5 by `key`. Raises LackingScores."""
    missing = [dimension.key for dimension in QUERY_DIMENSIONS if dimension.key not in scores]
    if missing:
        raise LackingScores(f"found no score of {', '.join(missing)}, expected all seven dimensions")
    # 1 but for rounding; the formula of seed 003 divides by it, and results are to be equal to the last bit.
    total = sum(dimension.weight for dimension in QUERY_DIMENSIONS)
    return round(sum(scores[dimension.key] * dimension.weight for dimension in QUERY_DIMENSIONS) / total, 2)


CSV_HEADER = ("排名", "Query编号", "Query标题", "总分", *(each.key for each in QUERY_DIMENSIONS), "Query内容")


class DimensionScore(Record):
    """A judge's score of one dimension, 1-5."""

    model_config = ConfigDict(frozen=True, extra="allow")

    score: Annotated[StrictInt | StrictFloat, Field(ge=LOWEST, le=TOP)]
    reason: str = ""


class ScoringResult(Record):
    """Scores of a query, as query_scores.json has them."""

    model_config = ConfigDict(frozen=True, extra="allow")

    scores: dict[str, DimensionScore]
    overall_score: float | None = None


class Classification(Record):
    """Class of a query by a judge's guess; None if it has no answer."""

    domain: str | None = None
    complexity_level: Annotated[StrictInt, Field(ge=LOWEST, le=TOP)] | None = None


class ScoredQuery(QueryRow):
    """A row of query_scores.json. `select_error` is why it has no scores.

    `classification` is the judge's; the fields of the query's own file are separate, and come first.
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
        """Return the score of the seven, 1-5. Raises Unscored without any, LackingScores if some are missing."""
        if self.scoring_result is None:
            raise Unscored(self.select_error or "found neither scoring_result nor select_error")
        return query_value({key: score.score for key, score in self.scoring_result.scores.items()})


def scored_query(
    query: ProposedQuery, result: Mapping[str, Any], classification: Classification | None = None
) -> ScoredQuery:
    """Return the row of a query that a judge has scored."""
    # Its further fields stay with the query through all files.
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
    """Return a row of query_scores.json."""
    row = query.model_dump(by_alias=True, exclude_unset=True)
    first = ("query_number", "query_title", "query_content", "scoring_result")
    return {name: row.get(name) for name in first} | row


def failed_scores_row(data: Mapping[str, Any] | None, line: int, error: Exception) -> dict[str, Any]:
    """Return the row of a query without scores, from its known fields and the line of its file."""
    names = {"id": "query_number", "title": "query_title", "prompt": "query_content"}
    fields = {names.get(field, field): value for field, value in (data or {}).items()}
    return {**(fields or {"line": line}), "select_error": str(error)}


def csv_rows(queries: Sequence[ScoredQuery]) -> list[list[Any]]:
    """Return the rows of query_scores.csv: the header, then the queries by score, the best first."""
    # By the negative value and not reversed: queries of one score stay in the order of their file.
    ranked = sorted(queries, key=lambda query: -query.value)
    return [list(CSV_HEADER), *(_csv_row(rank, query) for rank, query in enumerate(ranked, 1))]


def _csv_row(rank: int, query: ScoredQuery) -> list[Any]:
    assert query.scoring_result is not None
    scores = [query.scoring_result.scores[dimension.key].score for dimension in QUERY_DIMENSIONS]
    return [rank, as_cell(query.id), as_cell(query.title), query.value, *scores, as_cell(query.prompt)]


def selected_row(query: ScoredQuery) -> dict[str, Any]:
    """Return a row of selected_queries.jsonl. Domain and level are the file's own, else the judge's, else null."""
    assert query.scoring_result is not None
    domain, domain_from = _known(query.domain, query.classification.domain)
    level, level_from = _known(query.complexity_level, query.classification.complexity_level)
    metadata = {
        "query_number": query.id,
        "query_title": query.title,
        "topic": query.topic,
        "overall_score": query.value,
        "scores": {key: score.score for key, score in query.scoring_result.scores.items()},
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
    """Return a row of query.jsonl. A query without a topic has its domain as topic."""
    domain, _ = _known(query.domain, query.classification.domain)
    return {"id": query.id, "topic": query.topic or domain, "language": language, "prompt": query.prompt}


def _known(own: Any, judged: Any) -> tuple[Any, Literal["query", "judge"] | None]:
    # A judge's guess never replaces a field of the query's own file; the row contains the origin of each.
    if own is not None:
        return own, "query"
    if judged is not None:
        return (judged, "judge")
    return (None, None)


_JUDGED_STAGE = "select"

_SCORE = object_schema(reason=TEXT, score={"type": "integer", "description": "1 to 5."})
_FORMAT = structured(
    f"research_{_JUDGED_STAGE}",
    {
        **{each.letter: _SCORE for each in QUERY_DIMENSIONS},
        "domain": {"type": ["string", "null"]},
        "complexity_level": {"type": ["integer", "null"], "description": "1 to 5."},
    },
)


class _Score(ReplyPart):
    score: Annotated[int, Field(strict=True, ge=LOWEST, le=TOP)]
    reason: str = ""


class _Classification(ReplyPart):
    domain: Annotated[str, StringConstraints(strip_whitespace=True, to_lower=True)] | None = None
    complexity_level: Annotated[int, Field(strict=True, ge=LOWEST, le=TOP)] | None = None


async def score_query(
    asking: Asking, case_id: str, language: Language, query: str
) -> tuple[dict[str, Any], Classification]:
    """Return `scoring_result` for query_scores.json, and the judge's classification of the query. Raises Unscored.

    `scoring_result` has `scores` by dimension, each with its reason, and the `overall_score`.
    """
    wording = WORDINGS[language]
    name = attrgetter("chinese" if language == "zh" else "english")
    names = {dimension.letter: name(dimension) for dimension in QUERY_DIMENSIONS}
    scales = "\n".join(f"- {letter} ({name}): {wording.query_dimensions[letter]}" for letter, name in names.items())
    messages = asking.messages(language, "select", {"query": query}, {"scales": scales})
    scores, classification = await asking(_JUDGED_STAGE, case_id, messages, _FORMAT, _parse, version=PROMPT_VERSION)
    value = query_value({key: score.score for key, score in scores.items()})
    scores_by_key = {key: {"score": score.score, "reason": score.reason} for key, score in scores.items()}
    return {"scores": scores_by_key, "overall_score": value}, classification


def _parse(text: str) -> tuple[dict[str, _Score], Classification]:
    scores = parse_objects(text, (dimension.letter for dimension in QUERY_DIMENSIONS), _Score)
    # Domain and level in the same request: a second one would show the judge the same query again.
    classification = validate_form(read_json_object(text), _Classification)
    return (
        {dimension.key: scores[dimension.letter] for dimension in QUERY_DIMENSIONS},
        Classification(domain=classification.domain or None, complexity_level=classification.complexity_level),
    )


STAGE = "select"
SCORES, TABLE, SELECTED = "query_scores.json", "query_scores.csv", "selected_queries.jsonl"
_NAMED_THRESHOLDS = (4.0, 4.5)
"""Both are the seed's."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "select-queries",
        description=f"Let a model score each query by seven dimensions; the queries that reach the threshold are kept. "
        f"Writes {SCORES} and {TABLE}. A new threshold on stored scores asks no model (--from-scores). Exit "
        "status 0: every query is scored; 1: some are not; 2: wrong usage.",
    )
    which = parser.add_mutually_exclusive_group(required=True)
    add(which, "--input_file", type=Path, metavar="FILE", help="raw_query.md, or queries as CSV, JSON or JSONL")
    add(which, "--from_scores", type=Path, metavar="FILE", help=f"a {SCORES}, so that no model is asked")
    files = parser.add_argument_group("files")
    add(files, "--output_dir", type=Path, metavar="DIR", help="(default: the folder of the file that is read)")
    add_threshold(files)
    add(files, "--export_selected", action="store_true", help=f"write {SELECTED}")
    add(files, "--convert_to_jsonl", type=Path, metavar="FILE", help="write the kept queries as query.jsonl here")
    add_config(files)
    add_rows(parser)
    add_judge(parser)


def add_threshold(parser: argparse._ActionsContainer) -> None:
    """Add the score from which queries are kept."""
    text = "keep from this score (default: the config's, 4.0)"
    add(parser, "--threshold", type=_threshold, metavar="SCORE", help=text)


def _threshold(text: str) -> float:

    value = float(text)
    if not LOWEST <= value <= TOP:
        raise argparse.ArgumentTypeError(f"found {text}, expected a score from {LOWEST} to {TOP}")
    return value


def run(args: argparse.Namespace) -> int:
    """Score the queries, or read their scores, and keep those that reach the threshold."""
    call = Call("select-queries", args)
    source: Path = args.from_scores or args.input_file
    output: Path = args.output_dir or source.parent
    if args.threshold is None:
        args.threshold = call.config.query_selection.threshold
    if args.from_scores is not None:
        return call.run(lambda: select_scored(call, source, output))
    return call.run(lambda: score_queries(call, source, output))


async def score_queries(call: Call, file: Path, output: Path, ids: Mapping[str, RowId] = MappingProxyType({})) -> None:
    """Score the queries of a file. Raises ConfigError if it cannot be read, or no judge is named.

    `ids` are the queries' ids in other files, by the keys of their prompts.
    """
    rows = chosen_rows(call, file, keep_ids(read_queries(file, call.warn), ids))
    asking = await call.asking(file)
    converted = [path for path in (call.args.convert_to_jsonl,) if path is not None]
    require_writable(output / SCORES, output / TABLE, output / SELECTED, *converted)

    async def score(row: GoodRow[ProposedQuery] | LostRow) -> ScoredQuery:
        query = require_value(row)
        return scored_query(query, *await score_query(asking, case_id(query.id), language_of_row(query), query.prompt))

    def write(results: Sequence[ScoredQuery | AgentbenchError | None]) -> tuple[Path, ...]:
        scored = [result for result in results if isinstance(result, ScoredQuery)]
        table = io.StringIO(newline="")
        csv.writer(table).writerows(csv_rows(scored))
        document = [
            failed_scores_row(row.data, row.line, result) if isinstance(result, AgentbenchError) else scores_row(result)
            for row, result in zip(rows, results, strict=True)
            if result is not None
        ]
        return (
            write_document(output / SCORES, document),
            # With a byte order mark, without which Excel takes the headers for another encoding.
            write_text(output / TABLE, table.getvalue(), encoding="utf-8-sig"),
            *_write_kept(call, scored, output),
        )

    results = await call.score(STAGE, rows, score, label=name_row, write=write)
    _tell(call, [result for result in results if isinstance(result, ScoredQuery)])


async def prepare_queries(call: Call) -> None:
    """Select the queries of the whole pipeline, if its options ask for that.

    Writes query.jsonl; later stages read selected_queries.jsonl, which has domains and levels too. Raises ConfigError:
    the pipeline cannot continue without queries.
    """
    args = call.args
    if args.enable_query_selection:
        args.export_selected, args.convert_to_jsonl = True, args.query_file
        reports = [args.raw_data_dir / f"{model}.jsonl" for model in args.target_models]
        await score_queries(call, args.raw_query_file, args.raw_query_file.parent, ids_in_use(reports, args.query_file))
        args.query_file = args.raw_query_file.with_name(SELECTED)


async def select_scored(call: Call, file: Path, output: Path) -> None:
    """Keep queries by the scores of a query_scores.json. Raises ConfigError where that cannot be read."""

    async def score(row: GoodRow[ScoredQuery] | LostRow) -> ScoredQuery:
        query = require_value(row)
        value, result = query.value, query.scoring_result
        # The seven scores count; a sum that does not fit them is a file that was edited by hand.
        if result is not None and result.overall_score not in (None, value):
            call.warn(
                f"{file}:{row.line}:1: overall_score: found {result.overall_score}, the seven scores give {value}"
            )
        return query

    def write(results: Sequence[ScoredQuery | AgentbenchError | None]) -> tuple[Path, ...]:
        return _write_kept(call, [result for result in results if isinstance(result, ScoredQuery)], output)

    results = await call.score(STAGE, input_rows(call, file, ScoredQuery), score, label=name_row, write=write)
    _tell(call, [result for result in results if isinstance(result, ScoredQuery)])


def _write_kept(call: Call, scored: Sequence[ScoredQuery], output: Path) -> tuple[Path, ...]:
    """Return the files of the queries that reach the threshold, in the order of the input."""
    # In the order of the input and under their own ids, which a rank would change with every new query.
    selected = [query for query in scored if query.value >= call.args.threshold]
    files = []
    if call.args.export_selected:
        files.append(write_rows(output / SELECTED, [selected_row(query) for query in selected]))
    if call.args.convert_to_jsonl is not None:
        path = call.args.convert_to_jsonl
        text = format_rows(query_row(query, language_of_row(query)) for query in selected)
        if (copy := copy_former(path, text)) is not None:
            files.append(copy)
            call.warn(f"{path}: its former rows are kept in {copy}")
        files.append(write_text(path, text))
    return tuple(files)


def _tell(call: Call, scored: Sequence[ScoredQuery]) -> None:
    """Print how many queries are kept, also at both thresholds of the seed."""
    # Seed 003 names both, in different places: people who compare with it look for either.
    for threshold in sorted({*_NAMED_THRESHOLDS, call.args.threshold}):
        count = sum(query.value >= threshold for query in scored)
        mark = " (chosen)" if threshold == call.args.threshold else ""
        print(f"kept at {threshold}: {count} of {len(scored)}{mark}")
