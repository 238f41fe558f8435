"""`agentbench research fact`: says whether the citations of reports hold, stage by stage or all at once (seed 003)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pytest_agentbench.cli.research.options import (
    RAW_DATA,
    RESULTS,
    add,
    add_config,
    add_judge,
    add_output,
    add_rows,
    add_script,
)

_USAGE = 2
_RESULTS = RESULTS / "fact"

_STAGES = {
    "extract": "list the statements of each report that cite something",
    "deduplicate": "of statements that cite one page and say the same keep one",
    "scrape": "fetch the pages that are cited",
    "validate": "say of each statement whether its page backs it",
    "stat": "count what holds; needs neither a model nor a network",
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command, and each of its stages as a command of its own."""
    whole = subparsers.add_parser(
        "fact",
        help="say whether the citations of reports hold",
        usage="%(prog)s {MODEL | --raw-data-path FILE} [options]\n       %(prog)s STAGE [options]",
        description="Say whether the citations of reports hold: extract, deduplicate, scrape,\n"
        "validate, stat. Writes extracted.jsonl, deduplicated.jsonl, scraped.jsonl,\n"
        "validated.jsonl and fact_result.txt. The same command goes on where it was\n"
        "interrupted. Exit status 0: all reports are through; 1: some are not; 2: wrong\n"
        "usage.",
        epilog="\n".join(["stages:", *(f"  {stage:<13}{summary}" for stage, summary in _STAGES.items())]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole.add_argument("model", nargs="?", help="whose reports: the file <raw_data_dir>/<model>.jsonl")
    files = whole.add_argument_group("files")
    add(files, "--raw_data_dir", type=Path, default=RAW_DATA, metavar="DIR", help="(default: %(default)s)")
    add(files, "--raw_data_path", "--input_file", type=Path, metavar="FILE", help="the reports, wherever they lie")
    add(files, "--output_dir", type=Path, metavar="DIR", help=f"(default: {_RESULTS}/<model>)")
    _add_queries(files)
    add_config(files)
    _add_compat(files)
    _add_network(whole)
    add_rows(whole)
    add_judge(whole)
    for stage, summary in _STAGES.items():
        _add_stage(subparsers, stage, summary)


def _add_stage(subparsers: argparse._SubParsersAction[argparse.ArgumentParser], stage: str, summary: str) -> None:
    parser = subparsers.add_parser(f"fact {stage}", help=summary, description=f"{summary.capitalize()}.")
    files = parser.add_argument_group("files")
    source = "--input_path" if stage == "stat" else "--raw_data_path"
    rows = "the reports" if stage == "extract" else "what the stage before has written"
    add(files, source, type=Path, required=True, dest="source", metavar="FILE", help=rows)
    add(files, "--output_path", type=Path, required=True, metavar="FILE", help="what to write")
    _add_queries(files)
    add_config(files)
    if stage == "stat":
        lacking = "the reports; one that the input has no row of counts as failed, by name"
        add(files, "--raw_data_path", type=Path, metavar="FILE", help=lacking)
        _add_compat(files)
    if stage == "scrape":
        _add_network(parser)
        add_script(files, "take the pages from this script, not from the web: <name>.demo.yaml")
        add_output(files)
    add_rows(parser)
    if stage not in ("scrape", "stat"):
        add_judge(parser)


def _add_queries(files: argparse._ArgumentGroup) -> None:
    text = "the queries, where they say which language each is in; every report needs its own then"
    add(files, "--query_data_path", "--query_file", type=Path, metavar="FILE", help=text)


def _add_compat(files: argparse._ArgumentGroup) -> None:
    add(files, "--compat", action="store_true", help="fact_result.txt has the original's three lines and no others")


def _add_network(parser: argparse.ArgumentParser) -> None:
    from pytest_agentbench.cli.research.fact_pages import add_pages

    add_pages(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the stage that is named, else all of them."""
    from pytest_agentbench.cli.research.call import Call
    from pytest_agentbench.cli.research.fact_stages import all_stages, count, one_stage

    stage = args.chosen.partition(" ")[2]
    if not stage and (args.model is None) == (args.raw_data_path is None):
        print("agentbench research fact: expected a MODEL or --raw-data-path FILE, one of them", file=sys.stderr)
        return _USAGE
    call = Call(args.chosen, args)
    if stage == "stat":
        return call.run(lambda: count(call, args.source, args.output_path, args.query_data_path, args.raw_data_path))
    if stage:
        return call.run(lambda: one_stage(call, stage, args.source, args.output_path, args.query_data_path))
    source = args.raw_data_path or args.raw_data_dir / f"{args.model}.jsonl"
    folder = args.output_dir or _RESULTS / source.stem
    return call.run(lambda: all_stages(call, source, folder, args.query_data_path))
