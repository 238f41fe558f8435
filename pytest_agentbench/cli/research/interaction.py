"""`agentbench research interaction`: says how an agent worked with the web, from what was recorded of its reports."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.cli.research.options import RESULTS, add, add_compat, add_config, add_rows
from pytest_agentbench.cli.research.valued import (
    add_tasks,
    outcome_document,
    read_tasks,
    report_of,
    tell_unused,
)
from pytest_agentbench.errors import AgentbenchError

if TYPE_CHECKING:
    from pytest_agentbench.cli.research.call import Call
    from pytest_agentbench.cli.research.valued import Tasks
    from pytest_agentbench.records import ReportRow
    from pytest_agentbench.sources.research_rows import GoodRow, LostRow

REPORT = "web_interaction_report.json"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command with its options."""
    parser = subparsers.add_parser(
        "interaction",
        help="say how the agent worked with the web",
        description="Score how an agent worked with the web by what was recorded of each report; what was not "
        f"recorded is null. Writes {REPORT}; asks no model. Exit status 0: every row could be read; 1: some could not; "
        "2: wrong usage.",
    )
    files = parser.add_argument_group("files")
    add(files, "--input_file", type=Path, required=True, metavar="FILE", help="reports with execution_metrics (JSONL)")
    add(
        files,
        "--output_dir",
        type=Path,
        metavar="DIR",
        help=f"(default: {RESULTS}/web_interaction/<name of the input>)",
    )
    add_tasks(files)
    add_config(files)
    add_compat(parser)
    add_rows(parser)


def run(args: argparse.Namespace) -> int:
    """Writes the report."""
    from pytest_agentbench.cli.research.call import Call

    call = Call("interaction", args)
    tell_unused(call)
    output = args.output_dir or RESULTS / "web_interaction" / args.input_file.stem
    return call.run(lambda: interaction(call, args.input_file, output))


async def interaction(call: Call, file: Path, output: Path) -> None:
    """Scores the reports of a file. Raises ConfigError where a file cannot be read."""
    from pytest_agentbench.cli.research.inputs import input_rows, label, value_of
    from pytest_agentbench.records import ReportRow
    from pytest_agentbench.research.files import write_document
    from pytest_agentbench.research.interaction_valuation import interaction_of

    tasks = read_tasks(call)
    rows = input_rows(call, file, ReportRow)

    async def score(row: GoodRow[ReportRow] | LostRow) -> dict[str, Any]:
        value = value_of(row)
        domain, level = _placed(tasks, value)
        found = interaction_of(
            report_of(value, file.stem),
            tasks.annotations,
            domain,
            level,
            call.config,
            value.model_extra or {},
            compat=call.args.compat,
        )
        return {"id": value.id, "prompt": value.prompt, **found.model_dump()}

    def write(results: Sequence[dict[str, Any] | AgentbenchError | None]) -> tuple[Path, ...]:
        document = outcome_document(file.stem, rows, results, "interaction_error")
        return (write_document(output / REPORT, document),)

    await call.score("interaction", rows, score, label=label, write=write)


def _placed(tasks: Tasks, row: ReportRow) -> tuple[str | None, int | str | None]:
    """Its domain and complexity level, as far as they are told; the original has them below `task_metadata`."""
    told = row.model_copy(update={name: value for name, value in _metadata(row).items() if getattr(row, name) is None})
    if told.domain is None and told.topic is None and tasks.queries is None:
        return None, told.complexity_level
    return tasks.placed(told)


def _metadata(row: ReportRow) -> dict[str, Any]:
    found = (row.model_extra or {}).get("task_metadata")
    return {name: found.get(name) for name in ("domain", "complexity_level")} if isinstance(found, dict) else {}
