"""`agentbench research ...`: scores research reports, stage by stage or all at once by `run`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pytest_agentbench.cli.commands import add_commands, run_chosen
from pytest_agentbench.packs.research.stages import PART_STAGES, STAGES, Part
from pytest_agentbench.seams import Command

_COMMANDS = {
    "run": Command(
        "the whole pipeline: queries, criteria, RACE, FACT, efficiency, strategic, interaction, POET",
        f"{__package__}.pipeline",
    ),
    # In the order of the pipeline, as in the summary of `run`.
    **{stage.command or stage.name: Command(stage.summary, f"{__package__}.{stage.module}") for stage in STAGES},
    "convert": Command("turn Markdown into JSONL", f"{__package__}.convert"),
    "lint": Command("find problems in queries, criteria, annotations, references and reports", f"{__package__}.lint"),
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its own commands."""
    parser = subparsers.add_parser("research", help="research reports", description=__doc__)
    add_commands(parser, "research", _COMMANDS)


def run(args: argparse.Namespace) -> int:
    """Run one of them."""
    return run_chosen(_COMMANDS, args)


QUERIES = Path("data/prompt_data/query.jsonl")
CRITERIA = Path("data/criteria_data/criteria.jsonl")
REFERENCES = Path("data/reference/reference.jsonl")
RAW_DATA = Path("data/test_data/raw_data")
ANNOTATIONS = Path("data/annotation")
RESULTS = Path("results")
"""Folder of the seed's files, unless an option names another."""


def add(parser: argparse._ActionsContainer, *names: str, **settings: Any) -> None:
    """Add an option under each of its names, such as `--input_file`, also with dashes: `--input-file`."""
    # Seed 003 writes options with underscores; both spellings of each stay valid.
    spellings = [spelling for name in names for spelling in (name.replace("_", "-"), name)]
    parser.add_argument(*dict.fromkeys(spellings), **settings)


def add_part_parser(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
    part: Part,
    description: str,
    *,
    reports: str = "reports (JSONL)",
    results: str = "<results_dir>",
) -> tuple[argparse.ArgumentParser, argparse._ArgumentGroup]:
    """Add the command of a part that scores one file of reports; return its parser and the group of its files."""
    parser = subparsers.add_parser(part, description=description)
    files = parser.add_argument_group("files")
    add(files, "--input_file", type=Path, required=True, metavar="FILE", help=reports)
    output = f"(default: {results}/{PART_STAGES[part].folder}/<name of the input>)"
    add(files, "--output_dir", type=Path, metavar="DIR", help=output)
    return parser, files


def add_judge(parser: argparse.ArgumentParser) -> None:
    """Add the options for the judge, its cost limit and the folder of stored replies."""
    from pytest_agentbench.options import parse_money

    group = parser.add_argument_group("the judge")
    add(group, "--judge", metavar="MODEL", help="the model that judges (default: OPENAI_MODEL at OPENAI_BASE_URL)")
    add(group, "--profile", metavar="NAME", help="an evaluation profile whose first judge judges")
    add_script(group, "replies of a scripted judge: <name>.demo.yaml")
    text = "prompts in place of ours: <prompt>.<language>.txt, such as race_pairwise.en.txt"
    add(group, "--prompts", type=Path, metavar="DIR", help=text)
    add(group, "--max_cost", type=parse_money, metavar="USD", help="ask nothing more once this call has cost this much")
    add_output(group)


def add_script(parser: argparse._ActionsContainer, text: str) -> None:
    """Add the option for a script."""
    add(parser, "--script", type=Path, metavar="FILE", help=text)


def add_output(parser: argparse._ActionsContainer) -> None:
    """Add where replies and pages are kept."""
    add(
        parser,
        "--kept",
        type=Path,
        default=Path("outputs"),
        metavar="DIR",
        help="where replies and pages are kept, so that nothing is paid for or fetched twice (default: %(default)s)",
    )


def add_config(parser: argparse._ActionsContainer) -> None:
    """Add the file of weights, languages and workers."""
    add(parser, "--config", type=Path, metavar="FILE", help="poet_algorithm_config.json (default: its usual values)")


def add_compat(parser: argparse._ActionsContainer) -> None:
    """Add the switch to the formulas of the original of seed 003."""
    add(parser, "--compat", action="store_true", help="compute as the original does, where that differs")


def add_rows(parser: argparse.ArgumentParser) -> None:
    """Add which rows, and how many at once."""
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
    # Not a choice of languages, as the seed has two switches.
    languages = group.add_mutually_exclusive_group()
    add(languages, "--only_zh", action="store_const", const="zh", dest="only", help="only rows in Chinese")
    add(languages, "--only_en", action="store_const", const="en", dest="only", help="only rows in English")


def add_tasks(parser: argparse._ActionsContainer) -> None:
    """Add the options for annotations and queries, and for the defaults of domain and level."""
    from pytest_agentbench.options import parse_positive

    add(
        parser,
        "--annotation_dir",
        type=Path,
        metavar="DIR",
        help=f"domain_expert_data.json, complexity_level_data.json, token_pricing_data.json (default: {ANNOTATIONS})",
    )
    add(
        parser,
        "--query_file",
        type=Path,
        metavar="FILE",
        help=f"queries with the domain and complexity_level of reports without them (default: {QUERIES}, if any)",
    )
    add(
        parser,
        "--domain_map",
        type=_pair,
        action="append",
        metavar="TOPIC=DOMAIN",
        help="the annotations' name of a topic's domain; repeatable",
    )
    add(
        parser,
        "--default_domain",
        metavar="DOMAIN",
        help="the domain of reports without a known one (default: none; with --compat general)",
    )
    add(
        parser,
        "--default_complexity",
        type=parse_positive,
        metavar="LEVEL",
        help="the complexity level of reports without one (default: none; with --compat 3)",
    )


def add_results(parser: argparse._ActionsContainer) -> None:
    """Add where other stages have left theirs."""
    add(
        parser,
        "--results_dir",
        type=Path,
        default=RESULTS,
        metavar="DIR",
        help="results of other stages, such as <dir>/race/<model> (default: %(default)s)",
    )


def _pair(text: str) -> tuple[str, str]:
    # The last `=`: topics of queries are free text.
    topic, sign, domain = text.rpartition("=")
    if not sign or not topic.strip() or not domain.strip():
        raise argparse.ArgumentTypeError(f"found {text!r}, expected TOPIC=DOMAIN")
    return topic.strip(), domain.strip()
