"""`agentbench research ...`: scores research reports, stage by stage or all at once by `run`."""

from __future__ import annotations

import argparse

from pytest_agentbench.cli.chosen import add_commands, run_chosen

_COMMANDS = {
    "run": "the whole pipeline: queries, criteria, RACE, FACT, efficiency, strategic, interaction, POET",
    "select-queries": "score queries by seven dimensions and keep the valuable ones",
    "criteria": "make RACE's criteria for queries",
    "race": "judge the quality of reports, against references or alone",
    "fact": "say whether the citations of reports hold: extract, deduplicate, scrape, validate, stat",
    "efficiency": "compare the time and cost of reports with an expert's",
    "strategic": "judge what reports are worth beyond their task",
    "interaction": "say how the agent worked with the web",
    "poet": "put the parts together and write the business report",
    "convert": "turn Markdown into JSONL",
    "lint": "find what is wrong with queries, criteria, annotations, references and reports",
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command with its own commands."""
    parser = subparsers.add_parser("research", help="research reports", description=__doc__)
    add_commands(parser, "research", _COMMANDS)


def run(args: argparse.Namespace) -> int:
    """Runs one of them."""
    return run_chosen("research", args)
