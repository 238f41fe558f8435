"""`agentbench research criteria`: makes RACE's criteria for queries."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_agentbench.cli.research.options import CRITERIA, QUERIES, add, add_config, add_judge, add_rows
from pytest_agentbench.errors import AgentbenchError

if TYPE_CHECKING:
    from pytest_agentbench.cli.research.call import Call
    from pytest_agentbench.records import QueryRow, RaceCriteria
    from pytest_agentbench.sources.research_rows import GoodRow, LostRow

STAGE = "criteria"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command with its options."""
    parser = subparsers.add_parser(
        "criteria",
        help="make RACE's criteria for queries",
        description="Let a model weigh RACE's four dimensions for each query, and write the criteria of each. Rows "
        "that the file has already stay, made by hand or not, unless --regenerate is given. The same command goes on "
        "where it was interrupted; nothing is paid for twice. Exit status 0: every query has its criteria; 1: some "
        "have none; 2: wrong usage.",
    )
    files = parser.add_argument_group("files")
    add(files, "--query_file", type=Path, default=QUERIES, metavar="PATH", help="(default: %(default)s)")
    add(files, "--output_file", type=Path, default=CRITERIA, metavar="PATH", help="(default: %(default)s)")
    add(files, "--regenerate", action="store_true", help="replace the criteria that the file has of these queries")
    add_config(files)
    add_rows(parser)
    add_judge(parser)


def run(args: argparse.Namespace) -> int:
    """Makes the criteria."""
    from pytest_agentbench.cli.research.call import Call

    call = Call(STAGE, args)
    return call.run(lambda: make_criteria_file(call, args.query_file, args.output_file, regenerate=args.regenerate))


async def make_criteria_file(call: Call, queries: Path, output: Path, *, regenerate: bool = False) -> None:
    """Adds criteria to criteria.jsonl for the queries of a query.jsonl that it lacks; its rows stay.

    With `regenerate` all of these queries get new ones, and rows of other queries stay. Raises ConfigError where a file
    cannot be read, or no judge is named.
    """
    from pytest_agentbench.cli.research.criteria_file import CriteriaFile
    from pytest_agentbench.cli.research.inputs import input_rows, joined, label, spoken, value_of
    from pytest_agentbench.cli.research.judge import case_id
    from pytest_agentbench.records import QueryRow, RaceCriteria
    from pytest_agentbench.research.criteria import make_criteria
    from pytest_agentbench.research.files import require_writable

    dynamic = call.config.query_selection.enable_dynamic_weighting
    weights = None if dynamic else call.config.race_weights.by_dimension
    rows = input_rows(call, queries, QueryRow)
    known = CriteriaFile.read(output)
    there = joined(call, output, RaceCriteria) if known.lines and not regenerate else None
    asking = await call.asking(queries)
    require_writable(output)

    async def score(row: GoodRow[QueryRow] | LostRow) -> RaceCriteria:
        query = value_of(row)
        if there is not None and query in there:
            return there.partner(query)
        return await make_criteria(asking, case_id(query.id), query.id, query.prompt, spoken(query), weights)

    def write(results: Sequence[RaceCriteria | AgentbenchError | None]) -> tuple[Path, ...]:
        for told in known.write(rows, results):
            call.warn(f"{output}: {told}")
        return (output,)

    await call.score(STAGE, rows, score, label=label, write=write)
