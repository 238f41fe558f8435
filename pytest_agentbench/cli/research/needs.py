"""What the pipeline reads, looked for before anything is paid for."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_agentbench.cli.research.call import Call
from pytest_agentbench.cli.research.options import ANNOTATIONS
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.research.annotated import annotations_of


def target_models(args: argparse.Namespace) -> list[str]:
    """The models that are named, each once, else all that have a file of reports."""
    named = list(dict.fromkeys(args.target_models or ()))
    return named or sorted(file.stem for file in args.raw_data_dir.glob("*.jsonl"))


def require_inputs(call: Call, models: Sequence[str]) -> None:
    """Raises ConfigError with every file that is missing: which stage needs it, and how it comes about."""
    if problems := list(_problems(call, models)):
        raise ConfigError("\n".join(problems))


def _problems(call: Call, models: Sequence[str]) -> Iterator[str]:
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
    else:
        yield from _missing(
            args.query_file,
            "criteria are made for these queries: JSONL with id, prompt, domain and complexity_level, which "
            "--enable-query-selection makes of raw queries",
        )
    if args.reference_file is not None:
        yield from _missing(
            args.reference_file,
            "RACE compares reports with these: JSONL with id, prompt and article; --pointwise judges without",
        )
    folder = args.annotation_dir or ANNOTATIONS
    if not folder.is_dir():
        yield f"{folder}: there is no such folder; efficiency needs its annotations; name it: --annotation-dir"
        return
    try:
        annotations_of(folder, call.config)
    except ConfigError as error:
        yield str(error)


def _missing(path: Path, need: str) -> Iterator[str]:
    if not path.is_file():
        yield f"{path}: there is no such file; {need}"
