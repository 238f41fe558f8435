"""Options that several stages share. Each has the seed's name; dashes are accepted too."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

QUERIES = Path("data/prompt_data/query.jsonl")
CRITERIA = Path("data/criteria_data/criteria.jsonl")
REFERENCES = Path("data/reference/reference.jsonl")
RAW_DATA = Path("data/test_data/raw_data")
ANNOTATIONS = Path("data/annotation")
RESULTS = Path("results")
"""Where the seed has its files, unless an option names another place."""


def add(parser: argparse._ActionsContainer, *names: str, **settings: Any) -> None:
    """Adds an option under each of its names, such as `--input_file`, and under the same with dashes."""
    spellings = [spelling for name in names for spelling in (name.replace("_", "-"), name)]
    settings.setdefault("dest", names[0].removeprefix("--"))
    parser.add_argument(*dict.fromkeys(spellings), **settings)


def add_judge(parser: argparse.ArgumentParser) -> None:
    """Who judges, what that may cost, where replies are kept."""
    from pytest_agentbench.options import parse_money

    group = parser.add_argument_group("the judge")
    add(group, "--judge", metavar="MODEL", help="the model that judges (default: OPENAI_MODEL at OPENAI_BASE_URL)")
    add(group, "--profile", metavar="NAME", help="an evaluation profile whose first judge judges")
    add_script(group, "what a scripted judge says: <name>.demo.yaml")
    add(group, "--max_cost", type=parse_money, metavar="USD", help="ask nothing more once this call has cost this much")
    add_output(group)


def add_script(parser: argparse._ActionsContainer, text: str) -> None:
    """Where a script is."""
    add(parser, "--script", type=Path, metavar="FILE", help=text)


def add_output(parser: argparse._ActionsContainer) -> None:
    """Where replies and pages are kept."""
    add(
        parser,
        "--kept",
        type=Path,
        default=Path("outputs"),
        metavar="DIR",
        help="where replies and pages are kept, so that nothing is paid for or fetched twice (default: %(default)s)",
    )


def add_config(parser: argparse._ActionsContainer) -> None:
    """Weights, languages and workers."""
    add(parser, "--config", type=Path, metavar="FILE", help="poet_algorithm_config.json (default: its usual values)")


def add_compat(parser: argparse._ActionsContainer) -> None:
    """What the original of seed 003 does otherwise."""
    add(parser, "--compat", action="store_true", help="compute as the original does, where that differs")


def add_rows(parser: argparse.ArgumentParser) -> None:
    """Which rows, and how many at once."""
    from pytest_agentbench.options import parse_positive

    group = parser.add_argument_group("the rows")
    add(
        group,
        "--max_workers",
        "--n_total_process",
        type=parse_positive,
        metavar="N",
        help="rows at once (default: the config's, else 10)",
    )
    add(group, "--limit", type=parse_positive, metavar="N", help="only the first N rows")
    languages = group.add_mutually_exclusive_group()
    add(languages, "--only_zh", action="store_const", const="zh", dest="only", help="only rows in Chinese")
    add(languages, "--only_en", action="store_const", const="en", dest="only", help="only rows in English")
