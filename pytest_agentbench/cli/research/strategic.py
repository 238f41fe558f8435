"""`agentbench research strategic`: judges what reports are worth beyond their task, and keeps their knowledge."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.cli.research.options import add, add_compat, add_config, add_judge, add_rows
from pytest_agentbench.cli.research.valued import (
    add_results,
    add_tasks,
    outcome_document,
    read_tasks,
    report_of,
    tell_unused,
)
from pytest_agentbench.errors import AgentbenchError

if TYPE_CHECKING:
    from pytest_agentbench.cli.research.call import Call
    from pytest_agentbench.cli.research.results import StageResults
    from pytest_agentbench.cli.research.valued import Tasks
    from pytest_agentbench.records import ReportRow
    from pytest_agentbench.sources.research_rows import GoodRow, LostRow

REPORT = "strategic_report.json"
_MEANS = ("strategic_score", "complexity_adaptability", "knowledge_creation_value", "knowledge_units_created")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command with its options."""
    parser = subparsers.add_parser(
        "strategic",
        help="judge what reports are worth beyond their task",
        description=f"Let a model give each report eight scores, draw its knowledge into the knowledge base, and say "
        f"what it uses of what earlier reports put there. Writes {REPORT}. The same command goes on where it was "
        "interrupted. Exit status 0: every report is scored; 1: some are not; 2: wrong usage.",
    )
    files = parser.add_argument_group("files")
    add(files, "--input_file", type=Path, required=True, metavar="FILE", help="reports (JSONL)")
    add(files, "--output_dir", type=Path, metavar="DIR", help="(default: <results_dir>/strategic/<name of the input>)")
    add_knowledge_base(files)
    add_tasks(files)
    add_results(files)
    add_config(files)
    add_compat(parser)
    add_rows(parser)
    add_judge(parser)


def add_knowledge_base(parser: argparse._ActionsContainer) -> None:
    """Where knowledge is kept."""
    add(
        parser,
        "--knowledge_base_path",
        type=Path,
        metavar="FILE",
        help="what reports added to the known (default: the config's, else one in the folder of --kept)",
    )


def run(args: argparse.Namespace) -> int:
    """Writes the report."""
    from pytest_agentbench.cli.research.call import Call

    call = Call("strategic", args)
    tell_unused(call)
    output = args.output_dir or args.results_dir / "strategic" / args.input_file.stem
    return call.run(lambda: strategic(call, args.input_file, output))


async def strategic(call: Call, file: Path, output: Path) -> None:
    """Scores the reports of a file. Raises ConfigError where a file cannot be read, or no judge is named, and
    UnwritableError before anything is asked where the report cannot be written.
    """
    from pytest_agentbench.cli.research.inputs import input_rows, label, value_of
    from pytest_agentbench.cli.research.results import StageResults
    from pytest_agentbench.records import ReportRow
    from pytest_agentbench.research.files import require_writable, write_document
    from pytest_agentbench.research.knowledge import KNOWLEDGE_BASE, KnowledgeBase
    from pytest_agentbench.research.report import article_digest
    from pytest_agentbench.research.strategic_valuation import strategic_of

    args, config, model = call.args, call.config, file.stem
    tasks, stages = read_tasks(call), StageResults(call, args.results_dir, model)
    path = args.knowledge_base_path or config.knowledge_base or args.kept / KNOWLEDGE_BASE
    base = KnowledgeBase(Path(path), config.knowledge_base_settings.knowledge_retention_days)
    rows = input_rows(call, file, ReportRow)
    base.check()
    asking = await call.asking(file)
    require_writable(output / REPORT)
    turns = _Turns(len(rows))

    async def score(numbered: tuple[int, GoodRow[ReportRow] | LostRow]) -> dict[str, Any]:
        number, row = numbered
        try:
            report = report_of(value_of(row), model)
            found = await strategic_of(asking, report, base, config, turns.turn(number))
        finally:
            turns.over(number)
        adaptability, why = _adaptability(call, tasks, stages, value_of(row))
        return {
            "id": report.id,
            "prompt": report.prompt,
            "article_digest": article_digest(report.article),
            **found.model_dump(),
            "knowledge_units_created": len(found.created),
            "knowledge_units_reused": len(found.reused),
            "complexity_adaptability": adaptability,
            "reasons": {"complexity_adaptability": why} if why else {},
        }

    def write(results: Sequence[dict[str, Any] | AgentbenchError | None]) -> tuple[Path, ...]:
        document = outcome_document(model, rows, results, "strategic_error", _MEANS)
        return (write_document(output / REPORT, document),)

    numbered = list(enumerate(rows))
    await call.score("strategic", numbered, score, label=lambda each: label(each[1]), write=write)


def _adaptability(call: Call, tasks: Tasks, stages: StageResults, row: ReportRow) -> tuple[float | None, str]:
    """A report's adaptability to complexity, or None and why."""
    from pytest_agentbench.research.annotated import task_of
    from pytest_agentbench.research.strategic_scores import SHORTEST_HOURS, complexity_adaptability

    if tasks.annotations is None:
        return None, "there are no annotations"
    try:
        task = task_of(tasks.annotations, call.config, *tasks.placed(row))
    except AgentbenchError as error:
        return None, str(error)
    if task.expert.hours < SHORTEST_HOURS:
        return None, f"an expert needs {task.expert.hours:g} h, less than {SHORTEST_HOURS:g} h"
    quality, why = stages.quality(row, compat=call.args.compat)
    return complexity_adaptability(quality, task.difficulty, task.expert.hours), why


class _Turns:
    """Rows that are scored side by side enter the knowledge base in their order, so that results do not vary."""

    def __init__(self, count: int) -> None:
        self._over = [asyncio.Event() for _ in range(count)]
        self._next = 0

    @asynccontextmanager
    async def turn(self, number: int) -> AsyncIterator[None]:
        """Waits until all rows before have had theirs, or have failed."""
        while self._next < number:
            await self._over[self._next].wait()
            while self._next < number and self._over[self._next].is_set():
                self._next += 1
        yield
        self.over(number)

    def over(self, number: int) -> None:
        """The row has had its turn, or will not take it."""
        self._over[number].set()
