"""`agentbench research select-queries`: scores queries by seven dimensions and keeps the valuable ones."""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_agentbench.cli.research.options import add, add_config, add_judge, add_rows
from pytest_agentbench.errors import AgentbenchError

if TYPE_CHECKING:
    from pytest_agentbench.cli.research.call import Call
    from pytest_agentbench.research.query_rows import ProposedQuery, ScoredQuery
    from pytest_agentbench.sources.research_rows import GoodRow, LostRow

STAGE = "select"
SCORES, TABLE, SELECTED = "query_scores.json", "query_scores.csv", "selected_queries.jsonl"
_NAMED_THRESHOLDS = (4.0, 4.5)
"""Both are the seed's."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command with its options."""
    parser = subparsers.add_parser(
        "select-queries",
        help="score queries and keep the valuable ones",
        description=f"Let a model score each query by seven dimensions; the queries that reach the threshold are kept. "
        f"Writes {SCORES} and {TABLE}. A new threshold over scores that are there asks no model (--from-scores). Exit "
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
    """Which queries are kept."""
    text = "keep from this score (default: the config's, 4.0)"
    add(parser, "--threshold", type=_threshold, metavar="SCORE", help=text)


def _threshold(text: str) -> float:
    from pytest_agentbench.research.query_value import LOWEST, TOP

    value = float(text)
    if not LOWEST <= value <= TOP:
        raise argparse.ArgumentTypeError(f"found {text}, expected a score from {LOWEST} to {TOP}")
    return value


def run(args: argparse.Namespace) -> int:
    """Scores the queries, or reads their scores, and keeps those that reach the threshold."""
    from pytest_agentbench.cli.research.call import Call

    call = Call("select-queries", args)
    source: Path = args.from_scores or args.input_file
    output: Path = args.output_dir or source.parent
    if args.threshold is None:
        args.threshold = call.config.query_selection.threshold
    if args.from_scores is not None:
        return call.run(lambda: select_scored(call, source, output))
    return call.run(lambda: score_queries(call, source, output))


async def score_queries(call: Call, file: Path, output: Path) -> None:
    """Scores the queries of a file. Raises ConfigError where it cannot be read, or no judge is named."""
    from pytest_agentbench.cli.research.inputs import chosen_rows, label, spoken, value_of
    from pytest_agentbench.cli.research.judge import case_id
    from pytest_agentbench.research.files import require_writable, write_document, write_text
    from pytest_agentbench.research.query_files import read_queries
    from pytest_agentbench.research.query_judging import score_query
    from pytest_agentbench.research.query_rows import ScoredQuery, csv_rows, failed_scores_row, scored_query, scores_row

    rows = chosen_rows(call, file, read_queries(file, call.warn))
    asking = await call.asking(file)
    converted = [path for path in (call.args.convert_to_jsonl,) if path is not None]
    require_writable(output / SCORES, output / TABLE, output / SELECTED, *converted)

    async def score(row: GoodRow[ProposedQuery] | LostRow) -> ScoredQuery:
        query = value_of(row)
        return scored_query(query, *await score_query(asking, case_id(query.id), spoken(query), query.prompt))

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
            write_text(output / TABLE, table.getvalue(), encoding="utf-8-sig"),
            *_write_kept(call, scored, output),
        )

    results = await call.score(STAGE, rows, score, label=label, write=write)
    _tell(call, [result for result in results if isinstance(result, ScoredQuery)])


async def select_scored(call: Call, file: Path, output: Path) -> None:
    """Keeps queries by the scores of a query_scores.json. Raises ConfigError where that cannot be read."""
    from pytest_agentbench.cli.research.inputs import input_rows, label, value_of
    from pytest_agentbench.research.query_rows import ScoredQuery

    async def score(row: GoodRow[ScoredQuery] | LostRow) -> ScoredQuery:
        query = value_of(row)
        value, result = query.value, query.scoring_result
        if result is not None and result.overall_score not in (None, value):
            call.warn(
                f"{file}:{row.line}:1: overall_score: found {result.overall_score}, the seven scores give {value}"
            )
        return query

    def write(results: Sequence[ScoredQuery | AgentbenchError | None]) -> tuple[Path, ...]:
        return _write_kept(call, [result for result in results if isinstance(result, ScoredQuery)], output)

    results = await call.score(STAGE, input_rows(call, file, ScoredQuery), score, label=label, write=write)
    _tell(call, [result for result in results if isinstance(result, ScoredQuery)])


def _write_kept(call: Call, scored: Sequence[ScoredQuery], output: Path) -> tuple[Path, ...]:
    """The files of the queries that reach the threshold, in the order of the input."""
    from pytest_agentbench.cli.research.inputs import spoken
    from pytest_agentbench.research.files import write_rows
    from pytest_agentbench.research.query_rows import query_row, selected_row

    kept = [query for query in scored if query.value >= call.args.threshold]
    files = []
    if call.args.export_selected:
        files.append(write_rows(output / SELECTED, [selected_row(query) for query in kept]))
    if call.args.convert_to_jsonl is not None:
        lines = [query_row(query, spoken(query)) for query in kept]
        files.append(write_rows(call.args.convert_to_jsonl, lines))
    return tuple(files)


def _tell(call: Call, scored: Sequence[ScoredQuery]) -> None:
    """Prints how many queries are kept, also at both thresholds of the seed."""
    for threshold in sorted({*_NAMED_THRESHOLDS, call.args.threshold}):
        kept = sum(query.value >= threshold for query in scored)
        chosen = " (chosen)" if threshold == call.args.threshold else ""
        print(f"kept at {threshold}: {kept} of {len(scored)}{chosen}")
