"""`agentbench init FOLDER`: a new project. `agentbench init dataset FILE`: a `dataset.yaml`, guessed from the rows."""

from __future__ import annotations

import argparse
import os
import shlex
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_agentbench.cli.guessing import DatasetGuess

DATASET = "dataset"
ROWS = 200
"""How many rows are looked at."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command with what it can begin."""
    parser = subparsers.add_parser(
        "init",
        help="begin a project, or a dataset's descriptor",
        usage="agentbench init FOLDER\n       agentbench init dataset FILE [--output PATH]",
        description="FOLDER: write a project that runs at once: a case with its script, models, profiles, conftest.py, "
        "a CI workflow, JSON Schemas for editors. `dataset FILE`: look at the first rows of a JSONL or JSON file and "
        "write a dataset.yaml that says which field is the question, the answer and so on, with comments on what is "
        "guessed. Nothing is overwritten. A folder of the name dataset is ./dataset.",
    )
    parser.set_defaults(show_help=parser.print_help, refuse=parser.error)
    parser.add_argument("what", nargs="?", metavar="FOLDER", help="where the project begins, or `dataset`")
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="JSONL, or JSON with a list of objects")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="PATH",
        help="of dataset: default: dataset.yaml beside FILE, <its name>.dataset.yaml where there is one already",
    )


def run(args: argparse.Namespace) -> int:
    """Begins what is asked for and prints what it says; without anything, prints the help."""
    if args.what is None:
        args.show_help()
    elif args.what == DATASET:
        if args.file is None:
            args.refuse("dataset: found no FILE, expected a JSONL or JSON file")
        _begin_dataset(args.file, args.output)
    else:
        if args.file is not None or args.output is not None:
            args.refuse(f"found {args.what!r}, expected `dataset` before a FILE or --output, or a FOLDER alone")
        from pytest_agentbench.cli.beginning import begin_project

        begin_project(Path(args.what))
    return 0


def _begin_dataset(given: Path, to: Path | None) -> None:
    from pytest_agentbench.cli.describing import describe
    from pytest_agentbench.cli.editor import schema_line
    from pytest_agentbench.cli.places import existing
    from pytest_agentbench.errors import ConfigError

    (file,) = existing([given])
    rows = _first_rows(file)
    guess = _guess(file, rows)
    output = _output(file, to)
    _refuse_second(file)
    text = schema_line("dataset", output) + describe(guess, os.path.relpath(file, output.parent), len(rows))
    try:
        with output.open("x", encoding="utf-8") as target:
            target.write(text)
    except OSError as error:
        raise ConfigError(f"{output}: cannot be written: {error.strerror or error}") from error
    _print_guess(guess, output, len(rows))


def _first_rows(file: Path) -> list[dict[str, Any]]:
    """The first objects of the file. Raises ConfigError where there is none."""
    from pytest_agentbench.errors import ConfigError
    from pytest_agentbench.sources import BadItem, read_items

    if file.suffix not in (".json", ".jsonl"):
        raise ConfigError(
            f"{file}: expected a .jsonl or .json file; a dataset.yaml reads CSV and Parquet with `source: hf:./<path>`"
        )
    items = list(islice(read_items(file), ROWS))
    rows = [item.value for item in items if not isinstance(item, BadItem) and isinstance(item.value, dict)]
    if rows:
        return rows
    first = items[0] if items else BadItem(1, 1, "found no row")
    place, reason = (
        (f"{first.line}:{first.column}", first.reason) if isinstance(first, BadItem) else (f"{first.line}:1", "")
    )
    raise ConfigError(
        f"{file}:{place}: {reason or 'found no object'}, expected rows that are objects with a question each"
    )


def _guess(file: Path, rows: list[dict[str, Any]]) -> DatasetGuess:
    """Raises ConfigError where nothing could be a question, or the rows stand below a key."""
    from pytest_agentbench.cli.guessing import guess_dataset
    from pytest_agentbench.errors import ConfigError

    guess = guess_dataset(rows)
    if guess is None:
        raise ConfigError(
            f"{file}:1:1: found no field with texts that could be questions in the first {len(rows)} rows; "
            f"they have {', '.join(map(repr, list(rows[0])[:10])) or 'no field'}"
        )
    key, _, inner = guess.question.field.partition(".")
    if file.suffix == ".json" and len(rows) == 1 and inner.startswith("0."):
        raise ConfigError(
            f"{file}:1:1: found one object with rows below {key!r}, expected a list of rows or {{items: [...]}}; "
            "write that list to a file of its own"
        )
    return guess


def _refuse_second(file: Path) -> None:
    """Raises ConfigError where a descriptor lists the file already: with two, none would hold."""
    from pytest_agentbench.cli.places import root_around
    from pytest_agentbench.errors import ConfigError
    from pytest_agentbench.sources import open_dataset

    described = open_dataset(file, root_around(file)).recipe
    if described is not None:
        raise ConfigError(f"{file}: {described.path} describes it already; edit that, or take the file out of it")


def _output(file: Path, given: Path | None) -> Path:
    """Where the descriptor goes. Raises ConfigError for what is there already, or could not be a descriptor."""
    from pytest_agentbench.config import is_descriptor_name
    from pytest_agentbench.errors import ConfigError

    beside = file.with_name("dataset.yaml")
    output = given.absolute() if given is not None else beside
    if given is None and beside.exists():
        output = file.with_name(f"{file.stem}.dataset.yaml")
    if not is_descriptor_name(output.name):
        raise ConfigError(f"{output}: expected the name dataset.yaml or <something>.dataset.yaml")
    if output.exists():
        raise ConfigError(f"{output}: exists already and is not overwritten; remove it, or name another with --output")
    if not output.parent.is_dir():
        raise ConfigError(f"{output}: there is no folder {output.parent}")
    return output


def _print_guess(guess: DatasetGuess, output: Path, rows: int) -> None:
    from pytest_agentbench.cli.describing import metric_of, shown

    path = shlex.quote(os.path.relpath(output))
    print(f"{path} written, from {'the first ' if rows == ROWS else ''}{rows} row{'' if rows == 1 else 's'}:")
    for name, found in guess.parts.items():
        print(f"  {name:<10} {shown(found.field)}{f' (not sure: {found.doubt})' if found.doubt else ''}")
    if guess.answer is None:
        print("  answer     none found: name it in fields.answer, or let a judge decide")
    if guess.choices is not None:
        print(f"  choices    {shown(guess.choices.field)}")
    if guess.unshown is not None:
        print(f"  not shown  {shown(guess.unshown)}: it is no text")
    if guess.tags_from:
        print(f"  tags from  {', '.join(map(shown, guess.tags_from))}")
    if (metric := metric_of(guess)) is not None:
        print(f"  metric     {metric['name']} >= {metric['threshold']:g}")
    print(f"read it, then:\n  agentbench validate {path}\n  pytest {path} --model <id>")
