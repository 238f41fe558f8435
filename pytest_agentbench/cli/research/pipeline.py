"""`agentbench research run`: the whole pipeline (seed 003, run_benchmark.sh), with one judge and one end summary."""

from __future__ import annotations

import argparse
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_agentbench.cli.research.efficiency import add_pricing
from pytest_agentbench.cli.research.fact_pages import add_pages
from pytest_agentbench.cli.research.options import (
    CRITERIA,
    QUERIES,
    RAW_DATA,
    REFERENCES,
    RESULTS,
    add,
    add_config,
    add_judge,
    add_rows,
)
from pytest_agentbench.cli.research.race import add_judging
from pytest_agentbench.cli.research.reporting import add_report_language
from pytest_agentbench.cli.research.select_queries import SELECTED, add_threshold
from pytest_agentbench.cli.research.strategic import add_knowledge_base
from pytest_agentbench.cli.research.valued import add_tasks
from pytest_agentbench.errors import AgentbenchError

if TYPE_CHECKING:
    from pytest_agentbench.cli.research.call import Call
    from pytest_agentbench.cli.research.reporting import Outcome

T = TypeVar("T")

RAW_QUERIES = Path("query_analysis/raw_query.md")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command with its options."""
    parser = subparsers.add_parser(
        "run",
        help="the whole pipeline",
        description="Make criteria, then judge the reports of each model by RACE and FACT, compute efficiency, judge "
        "their strategic value, score how the agent worked with the web, and write the business report. What fails is "
        "told, and the rest goes on; the same command takes up what is missing and pays for nothing twice. Exit status "
        "0: all reports have all scores; 1: some do not; 2: wrong usage; 130: interrupted.",
        epilog="Environment, where the option is not given: TARGET_MODELS, ENABLE_QUERY_SELECTION, N_TOTAL_PROCESS, "
        "LIMIT, SKIP_CLEANING, ONLY_ZH, ONLY_EN.",
    )
    add(
        parser,
        "--target_models",
        nargs="+",
        metavar="MODEL",
        help="whose reports: the files <raw_data_dir>/<model>.jsonl (default: all that are there)",
    )
    _add_selection(parser)
    _add_files(parser)
    add_judging(parser)
    add_pricing(parser)
    add_pages(parser)
    add_rows(parser)
    add_judge(parser)


def _add_selection(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the selection of queries")
    add(group, "--enable_query_selection", action="store_true", help="score raw queries first and keep valuable ones")
    add(
        group,
        "--raw_query_file",
        type=Path,
        default=RAW_QUERIES,
        metavar="FILE",
        help="raw queries; scores are written beside them (default: %(default)s)",
    )
    add_threshold(group)


def _add_files(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("files")
    add(group, "--raw_data_dir", type=Path, default=RAW_DATA, metavar="DIR", help="(default: %(default)s)")
    add(
        group,
        "--criteria_file",
        type=Path,
        default=CRITERIA,
        metavar="FILE",
        help="criteria that are there are used, others made (default: %(default)s)",
    )
    add(group, "--reference_file", type=Path, metavar="FILE", help=f"(default: {REFERENCES})")
    add_tasks(group)
    add_knowledge_base(group)
    add(group, "--output_dir", type=Path, default=RESULTS, metavar="DIR", help="results (default: %(default)s)")
    add_config(group)
    add_report_language(group)


def run(args: argparse.Namespace) -> int:
    """Runs the pipeline."""
    from pytest_agentbench.cli.research.call import Call
    from pytest_agentbench.cli.research.environment import heed_environment
    from pytest_agentbench.cli.research.needs import require_inputs, target_models
    from pytest_agentbench.cli.research.valued import tell_unused

    heed_environment(args, os.environ)
    args.results_dir = args.output_dir
    args.query_file = args.query_file or QUERIES
    args.reference_file = None if args.pointwise else args.reference_file or REFERENCES
    call = Call("run", args)
    if args.threshold is None:
        args.threshold = call.config.query_selection.threshold
    models = target_models(args)
    require_inputs(call, models)
    tell_unused(call)
    return call.run(lambda: _pipeline(call, models))


async def _pipeline(call: Call, models: list[str]) -> None:
    from pytest_agentbench.cli.research.reporting import compare

    args = call.args
    await call.asking(args.raw_data_dir / f"{models[0]}.jsonl")
    if args.enable_query_selection:
        await _select(call)
    await _criteria(call)
    outcomes = {}
    for model in models:
        call.model = model if len(models) > 1 else None
        if (outcome := await _score(call, model)) is not None:
            outcomes[model] = outcome
    compare(call, outcomes, args.output_dir / "poet")


async def _select(call: Call) -> None:
    """Writes query.jsonl; what follows reads selected_queries.jsonl, which has domains and levels too."""
    from pytest_agentbench.cli.research.select_queries import score_queries

    args = call.args
    args.export_selected, args.convert_to_jsonl = True, args.query_file
    await score_queries(call, args.raw_query_file, args.raw_query_file.parent)
    args.query_file = args.raw_query_file.with_name(SELECTED)


async def _criteria(call: Call) -> None:
    """Makes those that the file of criteria lacks."""
    from pytest_agentbench.cli.research.criteria import make_criteria_file

    made = make_criteria_file(call, call.args.query_file, call.args.criteria_file)
    await _stage(call, "criteria", made)


async def _score(call: Call, model: str) -> Outcome | None:
    """All parts of one model's reports, of which one that cannot be had keeps no other from being scored."""
    from pytest_agentbench.cli.research.efficiency import efficiency
    from pytest_agentbench.cli.research.fact_stages import all_stages
    from pytest_agentbench.cli.research.interaction import interaction
    from pytest_agentbench.cli.research.poet import poet
    from pytest_agentbench.cli.research.race import judge_reports
    from pytest_agentbench.cli.research.strategic import strategic

    args = call.args
    reports, results = args.raw_data_dir / f"{model}.jsonl", args.output_dir
    before = call.ledger.snapshot()
    await _stage(call, "race", judge_reports(call, model, results / "race" / model))
    await _stage(call, "fact", all_stages(call, reports, results / "fact" / model, args.query_file))
    await _stage(call, "efficiency", efficiency(call, reports, results / "efficiency" / model))
    await _stage(call, "strategic", strategic(call, reports, results / "strategic" / model))
    await _stage(call, "interaction", interaction(call, reports, results / "web_interaction" / model))
    return await _stage(call, "poet", poet(call, model, reports, results / "poet" / model, call.ledger.since(before)))


async def _stage(call: Call, name: str, stage: Coroutine[Any, Any, T]) -> T | None:
    """What a stage gives; None, once it is told, where it could not be run."""
    try:
        return await stage
    except AgentbenchError as error:
        call.lost(name, error)
        return None
