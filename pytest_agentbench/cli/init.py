"""`agentbench init FOLDER`: a new project. `agentbench init dataset FILE`: a `dataset.yaml`, guessed from rows."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.cli.output import list_first
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.terminal_text import count_text

if TYPE_CHECKING:
    from pytest_agentbench.cli.dataset_guesses import DatasetGuess


_TEMPLATES = Path(__file__).with_name("project")
_FILES = {
    "pyproject.toml": "pyproject.toml.txt",
    "conftest.py": "conftest.py.txt",
    ".gitignore": "gitignore.txt",
    ".github/workflows/agentbench.yml": "ci.yml",
    "cases/models.yaml": "models.yaml",
    "cases/run_profiles/standard.yaml": "run_profile.yaml",
    "cases/evaluation_profiles/standard.yaml": "evaluation_profile.yaml",
    "cases/late_refund/test.yaml": "test.yaml",
    "cases/late_refund/demo.yaml": "demo.yaml",
}
"""The file of `project/` for each one of a new project; by these names pytest, git and ruff leave them alone."""

_NAMED = 5
"""The most files in the way that are named."""

_NEXT = """\
next:
  cd {folder}
  pytest --model demo                   # the case on scripted answers: offline, nothing is paid
  agentbench review                     # label the run as passed or failed, to compare it with the judge
  agentbench validate                   # after each edit; editors complete and check by {schemas}/
then uncomment the models in cases/models.yaml, and set the variable of their key:
  pytest --model gpt4o"""

_NESTED = """\
GitHub reads the workflows of a repository's own folder: move .github there, and let its commands run in {folder}
  (defaults.run.working-directory) and the upload take {folder}/outputs"""


def begin_project(folder: Path) -> None:
    """Write the files and print the next steps. Raises ConfigError if one of the files exists already."""
    from pytest_agentbench.cli.schema import SCHEMAS

    # All texts are made first: if one fails, nothing is written.
    texts = _make_project_files(folder)
    _refuse_existing(folder, texts)
    try:
        for name, text in texts.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            # "x" and not "w": a file that came meanwhile is not overwritten.
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise ConfigError(f"{error.filename or folder}: cannot be written: {error.strerror or error}") from error
    print(f"{folder} is a project with one case:")
    for name in _FILES:
        print(f"  {name}")
    print(_NEXT.format(folder=shlex.quote(str(folder)), schemas=SCHEMAS))
    if (below := _find_place_in_repository(folder)) is not None:
        print(_NESTED.format(folder=below.as_posix()))


def _find_place_in_repository(folder: Path) -> Path | None:
    """Return the folder relative to the enclosing git repository; None without one, or if the folder is its root."""
    here = folder.resolve()
    above = next((parent for parent in (here, *here.parents) if os.path.lexists(parent / ".git")), here)
    if above == here:
        return None
    return here.relative_to(above)


def _refuse_existing(folder: Path, names: Iterable[str]) -> None:
    """Raise ConfigError where something would be overwritten."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(
            f"{folder}: found a file, expected a new folder; agentbench init dataset FILE describes a file of questions"
        )
    # lexists, for a link that leads nowhere would be written through.
    existing = [name for name in names if os.path.lexists(folder / name)]
    if existing:
        raise ConfigError(f"{folder}: found {list_first(existing, _NAMED)}; nothing is overwritten, name a new folder")


def _make_project_files(folder: Path) -> dict[str, str]:
    """Return every file of the project, by its place in it."""
    from pytest_agentbench.cli.schema import SCHEMAS, all_schemas, schema_text

    texts = {name: (_TEMPLATES / source).read_text(encoding="utf-8") for name, source in _FILES.items()}
    project = texts["pyproject.toml"].replace("{name}", _make_project_name(folder))
    texts["pyproject.toml"] = project.replace("{requirement}", _write_requirement())
    return texts | {f"{SCHEMAS}/{name}.schema.json": schema_text(schema) for name, schema in all_schemas().items()}


def _write_requirement() -> str:
    """Return the requirement by which a project installs this package: the source that installers record (PEP 610).

    The bare name is used only if the package came from an index, where nobody else can register that name.
    """
    package = "pytest-agentbench"
    noted = distribution(package).read_text("direct_url.json")
    if noted is None:
        return package
    origin = json.loads(noted)
    repository = origin.get("vcs_info")
    address = f"{repository['vcs']}+{origin['url']}@{repository['commit_id']}" if repository else origin["url"]
    return f"{package} @ {address}"


def _make_project_name(folder: Path) -> str:
    """Return the folder's name as a Python project may be called (PyPA, "Names and normalization")."""
    name = re.sub(r"[^a-z0-9]+", "-", folder.absolute().name.lower()).strip("-")
    return name or "benchmark"


DATASET = "dataset"
ROWS = 200
"""The number of rows that are looked at."""

_MOST_UNUSED = 10
"""Maximum unused fields that are printed; the descriptor names all."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its subcommands."""
    parser = subparsers.add_parser(
        "init",
        help="begin a project, or a dataset's descriptor",
        usage="agentbench init FOLDER\n       agentbench init dataset FILE [--output PATH]",
        description="FOLDER: write a project that runs at once: a case with its script, models, profiles, conftest.py, "
        "a CI workflow, JSON Schemas for editors. `dataset FILE`: look at the first rows of a JSONL or JSON file and "
        "write a dataset.yaml that names the fields of question, answer and so on, with comments on the "
        "guesses. Nothing is overwritten. A folder of the name dataset is ./dataset.",
    )
    parser.set_defaults(show_help=parser.print_help, refuse=parser.error)
    parser.add_argument("what", nargs="?", metavar="FOLDER", help="the folder of the new project, or `dataset`")
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="JSONL, or JSON with a list of objects")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="PATH",
        help="of dataset: default: dataset.yaml in the folder of FILE, <its name>.dataset.yaml if that exists",
    )


def run(args: argparse.Namespace) -> int:
    """Run the chosen subcommand, or print the help without one."""
    if args.what is None:
        args.show_help()
    elif args.what == DATASET:
        if args.file is None:
            args.refuse("dataset: found no FILE, expected a JSONL or JSON file")
        _begin_dataset(args.file, args.output)
    else:
        if args.file is not None or args.output is not None:
            args.refuse(f"found {args.what!r}, expected `dataset` before a FILE or --output, or a FOLDER alone")

        begin_project(Path(args.what))
    return 0


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
    try:
        with output.open("x", encoding="utf-8") as target:
            target.write(text)
    except OSError as error:
        raise ConfigError(f"{output}: cannot be written: {error.strerror or error}") from error
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
