"""`agentbench research efficiency`: compares what reports took with what an expert would have taken."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.cli.research.options import add, add_compat, add_config, add_rows
from pytest_agentbench.cli.research.valued import (
    Incomplete,
    add_results,
    add_tasks,
    need_annotations,
    outcome_document,
    read_tasks,
    report_of,
    tell_unused,
)
from pytest_agentbench.errors import AgentbenchError

if TYPE_CHECKING:
    from pytest_agentbench.cli.research.call import Call
    from pytest_agentbench.records import ReportRow
    from pytest_agentbench.sources.research_rows import GoodRow, LostRow

REPORT = "efficiency_report.json"
_MEANS = (
    "efficiency_score",
    "time_saving",
    "time_saving_hours",
    "cost_saving_usd",
    "automation_rate",
    "resource_efficiency",
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command with its options."""
    parser = subparsers.add_parser(
        "efficiency",
        help="compare the time and cost of reports with an expert's",
        description="Compare the time, cost and automation of reports with what an expert of their domain would have "
        f"taken. Writes {REPORT}; asks no model. Exit status 0: every report is scored; 1: some are not; 2: wrong "
        "usage.",
    )
    files = parser.add_argument_group("files")
    add(files, "--input_file", type=Path, required=True, metavar="FILE", help="reports with execution_metrics (JSONL)")
    add(files, "--output_dir", type=Path, metavar="DIR", help="(default: <results_dir>/efficiency/<name of the input>)")
    add_tasks(files)
    add_results(files)
    add_config(files)
    add_pricing(parser)
    add_compat(parser)
    add_rows(parser)


def add_pricing(parser: argparse._ActionsContainer) -> None:
    """What tokens cost where reports do not tell their cost."""
    add(
        parser,
        "--model_pricing",
        metavar="NAME",
        help="price tokens as this model's of token_pricing_data.json (default: the name of the input)",
    )


def run(args: argparse.Namespace) -> int:
    """Writes the report."""
    from pytest_agentbench.cli.research.call import Call

    call = Call("efficiency", args)
    tell_unused(call)
    output = args.output_dir or args.results_dir / "efficiency" / args.input_file.stem
    return call.run(lambda: efficiency(call, args.input_file, output))


async def efficiency(call: Call, file: Path, output: Path) -> None:
    """Scores the reports of a file. Raises ConfigError where it, or an annotation file, cannot be read."""
    from pytest_agentbench.cli.research.inputs import input_rows, label, value_of
    from pytest_agentbench.cli.research.results import StageResults
    from pytest_agentbench.records import ReportRow
    from pytest_agentbench.research.files import write_document
    from pytest_agentbench.research.valuation import efficiency_of, resource_efficiency

    args, model = call.args, file.stem
    tasks = read_tasks(call)
    annotations, stages = need_annotations(tasks), StageResults(call, args.results_dir, model)
    rows = input_rows(call, file, ReportRow)

    async def score(row: GoodRow[ReportRow] | LostRow) -> dict[str, Any]:
        report = report_of(value_of(row), model)
        domain, level = tasks.placed(value_of(row))
        found = efficiency_of(
            report, annotations, domain, level, call.config, priced_as=args.model_pricing, compat=args.compat
        )
        quality, why = stages.quality(value_of(row), compat=args.compat)
        per_token = resource_efficiency(quality, report.metrics.token_usage)
        value = {
            "id": report.id,
            "prompt": report.prompt,
            **found.model_dump(),
            "resource_efficiency": per_token,
        }
        if per_token is None:
            why = why or "execution_metrics.token_usage has no numbers of tokens"
            value["reasons"] = {**found.reasons, "resource_efficiency": why}
        if found.missing is not None:
            raise Incomplete(found.missing, value)
        return value

    def write(results: Sequence[dict[str, Any] | AgentbenchError | None]) -> tuple[Path, ...]:
        document = outcome_document(model, rows, results, "efficiency_error", _MEANS)
        return (write_document(output / REPORT, document),)

    await call.score("efficiency", rows, score, label=label, write=write)
