"""`agentbench research poet`: puts the parts together and writes the business report of each model."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_agentbench.cli.research.efficiency import add_pricing
from pytest_agentbench.cli.research.options import RAW_DATA, add, add_compat, add_config, add_rows
from pytest_agentbench.cli.research.reporting import Outcome, add_report_language, compare, report_on
from pytest_agentbench.cli.research.valued import add_results, add_tasks, read_tasks, report_of, tell_unused
from pytest_agentbench.errors import AgentbenchError, ConfigError

if TYPE_CHECKING:
    from pytest_agentbench.cli.research.call import Call
    from pytest_agentbench.cli.research.results import StageResults
    from pytest_agentbench.cli.research.valued import Tasks
    from pytest_agentbench.models import Spent
    from pytest_agentbench.records import ReportRow
    from pytest_agentbench.research.poet_report.rows import PoetRow
    from pytest_agentbench.research.poet_valuation import Parts
    from pytest_agentbench.research.report import Report
    from pytest_agentbench.sources.research_rows import GoodRow, LostRow


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command with its options."""
    parser = subparsers.add_parser(
        "poet",
        help="put the parts together and write the business report",
        description="Put together what the other stages found out about the reports of a model, or of every model that "
        "has a file, compute efficiency, and write <model>_poet_detailed.json, _poet_summary.json, _poet_report.json, "
        "_poet_report.txt and _poet_report.html. A part that is missing leaves the composite null, with the reason. "
        "With --session the reports are those of a pytest session over reports.yaml. Asks no model. Exit status 0: "
        "every report has a composite; 1: some have none; 2: wrong usage.",
    )
    parser.add_argument("model", nargs="?", help="whose reports (default: of every file in --raw-data-dir)")
    files = parser.add_argument_group("files")
    add(files, "--raw_data_dir", type=Path, default=RAW_DATA, metavar="DIR", help="(default: %(default)s)")
    add(files, "--input_file", type=Path, metavar="FILE", help="reports (default: <raw_data_dir>/<model>.jsonl)")
    add(
        files,
        "--session",
        type=Path,
        metavar="PATH",
        help="the output folder of a pytest session over reports.yaml, or the report.json in it: its scores are taken, "
        "with the configuration that it had",
    )
    add(files, "--output_dir", type=Path, metavar="DIR", help="(default: <results_dir>/poet/<model>)")
    add_results(files)
    add_tasks(files)
    add_config(files)
    add_report_language(files)
    add_pricing(parser)
    add_compat(parser)
    add_rows(parser)


def run(args: argparse.Namespace) -> int:
    """Writes the report of one model, or of each."""
    from pytest_agentbench.cli.research.call import Call

    if args.session is not None:
        from pytest_agentbench.cli.research.session_reports import report_on_session

        return report_on_session(args)
    call = Call("poet", args)
    tell_unused(call)
    return call.run(lambda: _models(call))


async def _models(call: Call) -> None:
    args = call.args
    if args.model is not None or args.input_file is not None:
        file = args.input_file or args.raw_data_dir / f"{args.model}.jsonl"
        model = args.model or file.stem
        await poet(call, model, file, args.output_dir or args.results_dir / "poet" / model)
        return
    files = sorted(args.raw_data_dir.glob("*.jsonl"))
    if not files:
        raise ConfigError(f"{args.raw_data_dir}: found no file of reports <model>.jsonl; name one with --input-file")
    output = args.output_dir or args.results_dir / "poet"
    outcomes = {}
    for file in files:
        call.model = file.stem if len(files) > 1 else None
        outcomes[file.stem] = await poet(call, file.stem, file, output / file.stem)
    compare(call, outcomes, output)


async def poet(
    call: Call, model: str, file: Path, output: Path, spent: Mapping[str, Spent] = MappingProxyType({})
) -> Outcome:
    """Writes the business report on the reports of a file. `spent` is what judges cost for them, by stage.

    Raises ConfigError where a file cannot be read.
    """
    from pytest_agentbench.cli.research.inputs import input_rows, label, value_of
    from pytest_agentbench.cli.research.results import StageResults
    from pytest_agentbench.records import ReportRow
    from pytest_agentbench.research.poet_valuation import poet_of

    tasks, stages = read_tasks(call), StageResults(call, call.args.results_dir, model)

    def row_of(row: GoodRow[ReportRow] | LostRow) -> PoetRow:
        value = value_of(row)
        report = report_of(value, model)
        return poet_of(report, _parts(call, tasks, stages, value, report), call.config, compat=call.args.compat)

    return await report_on(call, model, input_rows(call, file, ReportRow), row_of, label, output, spent)


def _parts(call: Call, tasks: Tasks, stages: StageResults, row: ReportRow, report: Report) -> Parts:
    """What other stages found out, and the efficiency: computed where there are annotations, else as it is stored."""
    from pytest_agentbench.research.valuation import efficiency_of

    found = stages.parts(row, efficiency=tasks.annotations is None)
    if tasks.annotations is None:
        return found
    try:
        domain, level = tasks.placed(row)
        priced_as = call.args.model_pricing
        efficiency = efficiency_of(
            report, tasks.annotations, domain, level, call.config, priced_as=priced_as, compat=call.args.compat
        )
    except AgentbenchError as error:
        return replace(found, why={**(found.why or {}), "efficiency": str(error)})
    return replace(found, efficiency=efficiency)
