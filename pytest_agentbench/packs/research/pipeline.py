"""`agentbench research run`: the whole pipeline (seed 003, run_benchmark.sh), with one judge and one end summary."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.research.business_report.writing import (
    Outcome,
    add_report_language,
    write_models_comparison,
)
from pytest_agentbench.packs.research.call import Call
from pytest_agentbench.packs.research.commands import (
    ANNOTATIONS,
    CRITERIA,
    QUERIES,
    RAW_DATA,
    REFERENCES,
    RESULTS,
    add,
    add_config,
    add_judge,
    add_rows,
    add_tasks,
)
from pytest_agentbench.packs.research.config import annotations_of
from pytest_agentbench.packs.research.efficiency import add_pricing
from pytest_agentbench.packs.research.fact.command import add_pages
from pytest_agentbench.packs.research.inputs import warn_of_unused
from pytest_agentbench.packs.research.race import add_judging
from pytest_agentbench.packs.research.select_queries import add_threshold
from pytest_agentbench.packs.research.stages import ANNOTATED, PART_STAGES, PARTS, STAGES, Part
from pytest_agentbench.packs.research.strategic import add_knowledge_base

# Shell scripts set flags in all of these ways, and to the option itself.
_YES, _NO = ("true", "1", "yes", "on"), ("", "false", "0", "no", "off")


def heed_environment(args: argparse.Namespace, environ: Mapping[str, str]) -> None:
    """Set missing options from the environment. Raises ConfigError for invalid values."""
    args.target_models = args.target_models or _names(environ.get("TARGET_MODELS", ""))
    args.enable_query_selection = args.enable_query_selection or _flag(environ, "ENABLE_QUERY_SELECTION")
    if not args.model_cleaning:
        args.skip_cleaning = args.skip_cleaning or _flag(environ, "SKIP_CLEANING")
    args.max_workers = args.max_workers or _number(environ, "N_TOTAL_PROCESS")
    args.limit = args.limit or _number(environ, "LIMIT")
    if args.only is None:
        # Both together would mean no rows at all.
        languages = [name for name in ("zh", "en") if _flag(environ, f"ONLY_{name.upper()}")]
        if len(languages) > 1:
            raise ConfigError("found both ONLY_ZH and ONLY_EN, expected at most one")
        args.only = languages[0] if languages else None


def _names(text: str) -> list[str]:
    """Return as a shell writes them: `a b`, `("a" "b")`, `a,b`."""
    return [name for name in re.split(r"[\s,\"'()]+", text) if name]


def _flag(environ: Mapping[str, str], name: str) -> bool:
    """Return whether a variable is `true`, or the option itself, as in the seed's SKIP_CLEANING="--skip_cleaning"."""
    text = environ.get(name, "").strip()
    if text.lower() in _NO:
        return False
    if text.lower() in _YES or text.replace("-", "_").strip("_") == name.lower():
        return True
    raise ConfigError(f"{name}: found {text!r}, expected true or false")


def _number(environ: Mapping[str, str], name: str) -> int | None:
    """Return the number of a variable: `2`, or with its option as the seed writes it: LIMIT="--limit 2"."""
    text = environ.get(name, "").strip()
    if not text:
        return None
    number = re.fullmatch(rf"(?:--{name.lower().replace('_', '[-_]')}[ =])?\s*([1-9]\d{{0,8}})", text)
    if number is None:
        raise ConfigError(f"{name}: found {text!r}, expected a number of 1 or more")
    return int(number[1])


def target_models(args: argparse.Namespace) -> list[str]:
    """Return the models that are named, each once, else all that have a file of reports."""
    models = list(dict.fromkeys(args.target_models or ()))
    return models or sorted(file.stem for file in args.raw_data_dir.glob("*.jsonl"))


def plan_parts(call: Call, models: Sequence[str]) -> list[Part]:
    """Return the parts that can be run. Parts with a missing file are printed.

    Raises ConfigError with all missing files if one of these parts, or one of the files, was named in the command, or
    if a file is wrong: the omission of a named part or file would only be noticed after the others are paid for.
    """
    parts: Sequence[Part] = call.args.parts or PARTS
    problems, missing = list(_problems(call, models, parts)), list(_missing_inputs(call.args, parts))
    if problems or (missing and call.args.parts):
        raise ConfigError("\n".join([*problems, *(text for _, text in missing)]))
    for part, text in missing:
        call.warn(f"{part} is not run: {text}")
    return [part for part in parts if part not in dict(missing)]


def _problems(call: Call, models: Sequence[str], parts: Sequence[Part]) -> Iterator[str]:
    """Yield the problems of the files that the command names, or that every part reads."""
    args = call.args
    if not models:
        yield f"{args.raw_data_dir}: found no reports <model>.jsonl; name their folder: --raw-data-dir"
    for model in models:
        yield from _missing(
            args.raw_data_dir / f"{model}.jsonl",
            "every stage scores these reports: JSONL with id, prompt, article and execution_metrics, which "
            "`agentbench research convert` makes of Markdown",
        )
    if args.enable_query_selection:
        yield from _missing(args.raw_query_file, "the selection scores these raw queries; name them: --raw-query-file")
    elif args.query_file is not None:
        yield from _missing(args.query_file, _QUERIES_NEEDED)
    if args.reference_file is not None and "race" in parts:
        yield from _missing(args.reference_file, _REFERENCES_NEEDED)
    folder = args.annotation_dir or ANNOTATIONS
    if not set(parts) & set(ANNOTATED) or (args.annotation_dir is None and not folder.is_dir()):
        return
    try:
        annotations_of(folder, call.config)
    except ConfigError as error:
        yield str(error)


def _missing_inputs(args: argparse.Namespace, parts: Sequence[Part]) -> Iterator[tuple[Part, str]]:
    """Yield the parts that cannot be run without a file of the usual place, with the file and how it comes about."""
    if "race" in parts:
        # Criteria that are there need no queries; others are made of them.
        if not (args.enable_query_selection or args.query_file or args.criteria_file.is_file()):
            for text in _missing(QUERIES, _QUERIES_NEEDED):
                yield "race", text
        if not (args.pointwise or args.reference_file):
            for text in _missing(REFERENCES, _REFERENCES_NEEDED):
                yield "race", text
    if "efficiency" in parts and args.annotation_dir is None and not ANNOTATIONS.is_dir():
        text = f"{ANNOTATIONS}: there is no such folder; efficiency needs its annotations; name it: --annotation-dir"
        yield "efficiency", text


def _missing(path: Path, need: str) -> Iterator[str]:
    if not path.is_file():
        yield f"{path}: there is no such file; {need}"


_QUERIES_NEEDED = (
    "criteria are made for these queries: JSONL with id, prompt, domain and complexity_level, which "
    "--enable-query-selection makes of raw queries"
)
_REFERENCES_NEEDED = (
    "RACE compares reports with these: JSONL with id, prompt and article; --pointwise judges without them"
)
RAW_QUERIES = Path("query_analysis/raw_query.md")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "run",
        description="Make criteria, then judge the reports of each model by RACE and FACT, compute efficiency, judge "
        "their strategic value, score the use of the web, and write the business report. Failures are printed, and "
        "the rest continues; the same command adds missing results and repeats no paid request. Exit status "
        "0: all reports have all scores; 1: some do not; 2: wrong usage; 130: interrupted.",
        epilog="Environment variables that replace missing options: TARGET_MODELS, ENABLE_QUERY_SELECTION, "
        "N_TOTAL_PROCESS, LIMIT, SKIP_CLEANING, ONLY_ZH, ONLY_EN.",
    )
    add(
        parser,
        "--target_models",
        nargs="+",
        metavar="MODEL",
        help="whose reports: the files <raw_data_dir>/<model>.jsonl (default: all existing files)",
    )
    add(
        parser,
        "--parts",
        type=_parts,
        metavar="PART,...",
        help=f"scored parts, of {', '.join(PARTS)} (default: all parts whose files exist)",
    )
    _add_selection(parser)
    _add_files(parser)
    add_judging(parser)
    add_pricing(parser)
    add_pages(parser)
    add_rows(parser)
    add_judge(parser)


def _parts(text: str) -> list[Part]:
    names = _names(text)
    if not names or not {*names} <= {*PARTS}:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected some of {','.join(PARTS)}")
    return [part for part in PARTS if part in names]


def _add_selection(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the selection of queries")
    add(group, "--enable_query_selection", action="store_true", help="score raw queries first and keep valuable ones")
    add(
        group,
        "--raw_query_file",
        type=Path,
        default=RAW_QUERIES,
        metavar="FILE",
        help="raw queries; scores are written next to them (default: %(default)s)",
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
        help="existing criteria are used, missing ones are made (default: %(default)s)",
    )
    add(group, "--reference_file", type=Path, metavar="FILE", help=f"(default: {REFERENCES})")
    add_tasks(group)
    add_knowledge_base(group)
    add(group, "--output_dir", type=Path, default=RESULTS, metavar="DIR", help="results (default: %(default)s)")
    add_config(group)
    add_report_language(group)


def run(args: argparse.Namespace) -> int:
    """Run the pipeline."""
    heed_environment(args, os.environ)
    # One folder: later stages read the files of earlier ones there.
    args.results_dir = args.output_dir
    call = Call("run", args)
    if args.threshold is None:
        args.threshold = call.config.query_selection.threshold
    args.target_models = models = target_models(args)
    # All that is missing in one go, before criteria are paid for that nothing can use.
    parts = plan_parts(call, models)
    # Not before: files of the usual places may be missing, named ones may not.
    if args.query_file is None and (args.enable_query_selection or QUERIES.is_file()):
        args.query_file = QUERIES
    args.reference_file = None if args.pointwise else args.reference_file or REFERENCES
    warn_of_unused(call)
    return call.run(lambda: _pipeline(call, models, parts))


async def _pipeline(call: Call, models: list[str], parts: Sequence[Part]) -> None:
    args = call.args
    if args.enable_query_selection or any(PART_STAGES[part].asks for part in parts):
        # The judge is opened once for all stages, by the reports: their folder's models and script count.
        await call.asking(args.raw_data_dir / f"{models[0]}.jsonl")
    for stage in STAGES:
        if stage.name not in PARTS and (stage.prepares is None or stage.prepares in parts):
            await stage.load().prepare_queries(call)
    outcomes = {}
    for model in models:
        call.begin_model(model, models=len(models))
        if (outcome := await _score(call, model, parts)) is not None:
            outcomes[model] = outcome
    write_models_comparison(call, outcomes, args.output_dir / PART_STAGES["poet"].folder)


async def _score(call: Call, model: str, parts: Sequence[Part]) -> Outcome | None:
    """Return the business report's rows of one model; a failed part does not prevent the others."""
    reports, results = call.args.raw_data_dir / f"{model}.jsonl", call.args.output_dir
    outcome = None
    for part in call.args.parts or PARTS:
        stage = PART_STAGES[part]
        if part not in parts:
            call.mark_skipped(part)
            continue
        # Each for itself: reports without references still get their citations checked.
        result = await call.attempt(part, stage.load().score_reports(call, reports, results / stage.folder / model))
        outcome = result if isinstance(result, Outcome) else None
    return outcome
