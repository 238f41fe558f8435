"""`agentbench new case|judge|dataset`: files of a project, which run or validate as they are written."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.terminal_text import count_text

if TYPE_CHECKING:
    from pytest_agentbench.cli.dataset_guesses import DatasetGuess

_TEMPLATES = Path(__file__).with_name("project")
_SCRIPTED = "demo"
ROWS = 200
"""The number of rows that are looked at."""

_MOST_UNUSED = 10
"""Maximum unused fields that are printed; the descriptor names all."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its subcommands."""
    parser = subparsers.add_parser(
        "new",
        help="add a case, a judge or a dataset to a project",
        description="Write a file of a project. It asks nothing and overwrites nothing.",
    )
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    case = kinds.add_parser("case", help="a case with the script by which it passes offline")
    case.add_argument("name", metavar="NAME", help="the id of the case, and its folder")
    case.add_argument("--cases", type=Path, default=Path("cases"), metavar="DIR", help="(default: cases)")
    judge = kinds.add_parser("judge", help="an evaluation profile whose judge scores answers")
    judge.add_argument("name", metavar="NAME", help="the id of the evaluation profile")
    judge.add_argument("--cases", type=Path, default=Path("cases"), metavar="DIR", help="(default: cases)")
    judge.add_argument("--model", metavar="ID", help="the judge (default: the first model of models.yaml)")
    dataset = kinds.add_parser(
        "dataset",
        help="a dataset.yaml for a file of questions, guessed from its rows",
        description="Look at the first rows of a JSONL or JSON file and write a dataset.yaml that names the fields of "
        "question, answer and so on, with comments on the guesses.",
    )
    dataset.add_argument("file", type=Path, metavar="FILE", help="JSONL, or JSON with a list of objects")
    dataset.add_argument(
        "--output",
        type=Path,
        metavar="PATH",
        help="default: dataset.yaml in the folder of FILE, <its name>.dataset.yaml if that exists",
    )


def run(args: argparse.Namespace) -> int:
    """Write the files of the chosen kind."""
    if args.kind == "case":
        _begin_case(args.name, args.cases)
    elif args.kind == "judge":
        _begin_judge(args.name, args.cases, args.model)
    else:
        _begin_dataset(args.file, args.output)
    return 0


def _begin_case(name: str, cases: Path) -> None:
    _refuse_name(name)
    folder = cases / name
    texts = {
        "test.yaml": _fill("new_case.yaml", "test_case", folder / "test.yaml", {"name": name}),
        "demo.yaml": _fill("new_demo.yaml", "demo", folder / "demo.yaml", {}),
    }
    _write({folder / file: text for file, text in texts.items()})
    print(
        f"{folder}: a case with its script\nedit both, then:\n  pytest {shlex.quote(str(folder))} --model {_SCRIPTED}"
    )


def _begin_judge(name: str, cases: Path, model: str | None) -> None:
    _refuse_name(name)
    path = cases / "evaluation_profiles" / f"{name}.yaml"
    judge = model or _find_judge(cases)
    _write({path: _fill("new_judge.yaml", "evaluation_profile", path, {"name": name, "model": judge})})
    print(
        f"{path}: an evaluation profile whose judge is {judge}\nit scores cases with expectations or a rubric:\n"
        f"  pytest {shlex.quote(str(cases))} --model {_SCRIPTED} --agentbench-evaluation-profile {name}"
    )


def _refuse_name(name: str) -> None:
    """Raise ConfigError for a name that no case or profile can have."""
    from pytest_agentbench.bounded.folders import slug

    if not name or name != slug(name):
        raise ConfigError(f"found the name {name!r}, expected lower-case letters, digits, `-`, `_` and `.`")


def _find_judge(cases: Path) -> str:
    """Return the first model of models.yaml that is not scripted, else the scripted one."""
    from pytest_agentbench.cli.places import enclosing_root

    if not cases.is_dir():
        return _SCRIPTED
    models = enclosing_root(cases).models().models
    return next((model.model_id for model in models if not model.scripted), _SCRIPTED)


def _fill(template: str, kind: str, path: Path, values: Mapping[str, str]) -> str:
    """Return the template's text with the values in its places, and the line of its schema before it."""
    from pytest_agentbench.cli.schema import schema_line

    text = (_TEMPLATES / template).read_text(encoding="utf-8")
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return schema_line(kind, path) + text


def _write(texts: Mapping[Path, str]) -> None:
    """Write the files. Raises ConfigError if one of them exists; then none is written."""
    if existing := [path for path in texts if os.path.lexists(path)]:
        raise ConfigError(f"{existing[0]}: exists already and is not overwritten; choose another name")
    write_new_files(texts)


def write_new_files(texts: Mapping[Path, str]) -> None:
    """Write files that do not exist yet, with their folders. Raises ConfigError."""
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # "x" and not "w": a file that came meanwhile is not overwritten.
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise ConfigError(f"{error.filename or path}: cannot be written: {error.strerror or error}") from error


def _begin_dataset(given: Path, to: Path | None) -> None:
    from pytest_agentbench.cli.dataset_guesses import with_numbering
    from pytest_agentbench.cli.dataset_text import descriptor_text
    from pytest_agentbench.cli.places import require_existing
    from pytest_agentbench.cli.schema import schema_line

    (file,) = require_existing([given])
    rows = _read_first_rows(file)
    guess = with_numbering(_guess_rows(file, rows), _read_all_rows(file))
    output = _choose_output(file, to)
    _refuse_second(file)
    text = schema_line("dataset", output) + descriptor_text(guess, os.path.relpath(file, output.parent), len(rows))
    write_new_files({output: text})
    _print_guess(guess, output, len(rows))


def _read_first_rows(file: Path) -> list[dict[str, Any]]:
    """Return the first objects of the file. Raises ConfigError if it has none."""
    from pytest_agentbench.bounded.json_files import BadItem, read_items
    from pytest_agentbench.sources.names import describe_expected_rows

    if file.suffix not in (".json", ".jsonl"):
        raise ConfigError(describe_expected_rows(str(file)))
    # Only as far as needed: the file may be large.
    items = list(islice(read_items(file), ROWS))
    rows = [item.value for item in items if not isinstance(item, BadItem) and isinstance(item.value, dict)]
    if rows:
        return rows
    first = items[0] if items else BadItem(1, 1, "found no row")
    if isinstance(first, BadItem):
        place, reason = (f"{first.line}:{first.column}", first.reason)
    else:
        place, reason = (f"{first.line}:1", "")
    raise ConfigError(f"{file}:{place}: {reason or 'found no object'}, expected rows that are objects with a question")


def _read_all_rows(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of the file, which is opened when the first one is asked for."""
    from pytest_agentbench.bounded.json_files import BadItem, read_items

    for item in read_items(file):
        if not isinstance(item, BadItem) and isinstance(item.value, dict):
            yield item.value


def _guess_rows(file: Path, rows: list[dict[str, Any]]) -> DatasetGuess:
    """Return a guess. Raises ConfigError if no field could be a question, or if the rows are below a key."""
    from pytest_agentbench.cli.dataset_guesses import guess_dataset

    guess = guess_dataset(rows)
    if guess is None:
        raise ConfigError(
            f"{file}:1:1: found no field with texts that could be questions in the first {len(rows)} rows; "
            f"they have {', '.join(map(repr, list(rows[0])[:10])) or 'no field'}"
        )
    key, _, inner = guess.question.field.partition(".")
    # {"data": [...]}: one object that looks like a row and holds all rows.
    if file.suffix == ".json" and len(rows) == 1 and inner.startswith("0."):
        raise ConfigError(
            f"{file}:1:1: found one object with rows below {key!r}, expected a list of rows or {{items: [...]}}; "
            "write that list to a separate file"
        )
    return guess


def _refuse_second(file: Path) -> None:
    """Raise ConfigError if a descriptor lists the file already: two descriptors of one file are an error."""
    from pytest_agentbench.cli.places import enclosing_root
    from pytest_agentbench.sources.dataset import open_dataset

    described = open_dataset(file, enclosing_root(file)).recipe
    if described is not None:
        raise ConfigError(f"{file}: {described.path} describes it already; edit that, or take the file out of it")


def _choose_output(file: Path, given: Path | None) -> Path:
    """Return the descriptor's path. Raises ConfigError if the path exists or cannot be a descriptor."""
    from pytest_agentbench.config.dataset_file import is_descriptor_name

    output = file.with_name("dataset.yaml")
    if given is not None:
        output = given.absolute()
    elif output.exists():
        output = file.with_name(f"{file.stem}.dataset.yaml")
    # Under another name pytest would not find it.
    if not is_descriptor_name(output.name):
        raise ConfigError(f"{output}: expected the name dataset.yaml or <something>.dataset.yaml")
    if output.exists():
        raise ConfigError(f"{output}: exists already and is not overwritten; remove it, or name another with --output")
    if not output.parent.is_dir():
        raise ConfigError(f"{output}: there is no folder {output.parent}")
    return output


def _print_guess(guess: DatasetGuess, output: Path, rows: int) -> None:
    from pytest_agentbench.cli.dataset_text import escape_name, metric_of, show_value

    path = shlex.quote(os.path.relpath(output))
    extent = "the first " if rows == ROWS else ""
    print(f"{path} written, from {extent}{count_text(rows, 'row')}:")
    for name, part in guess.parts.items():
        line = f"  {name:<10} {escape_name(part.field)}"
        if part.several:
            line += " (any of these is right)"
        elif part.doubt:
            line += f" (not sure: {part.doubt})"
        print(line)
    if guess.answer is None:
        print("  answer     not found: name it in fields.answer, or let a judge decide")
    for field in (guess.context, guess.input):
        if field is not None:
            print(f"  beside it  {escape_name(field)}")
    if guess.choices is not None:
        print(f"  choices    {escape_name(guess.choices.field)}")
    if guess.unshown is not None:
        print(f"  not shown  {escape_name(guess.unshown)}: it is no text")
    if guess.tags_from:
        print(f"  tags from  {', '.join(map(escape_name, guess.tags_from))}")
    if (metric := metric_of(guess)) is not None:
        print(f"  metric     {metric['name']} >= {metric['threshold']:g}")
    if guess.numbering is not None:
        print(f"  answer is  {guess.numbering.answer_is}: {guess.numbering.reason}")
    for field, value in guess.unused[:_MOST_UNUSED]:
        print(f"  unused     {escape_name(field)}, such as: {show_value(value)}")
    if len(guess.unused) > _MOST_UNUSED:
        print(f"  unused     and {len(guess.unused) - _MOST_UNUSED} more, which {path} names")
    print(f"read it, then:\n  agentbench validate {path}\n  pytest {path} --model <id>")
