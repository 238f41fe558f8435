"""`agentbench init FOLDER`: a new project that runs at once."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path

from pytest_agentbench.cli.output import list_first
from pytest_agentbench.errors import ConfigError

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


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "init",
        help="begin a project",
        description="Write a project that runs at once: a case with its script, models, profiles, conftest.py, a CI "
        "workflow, JSON Schemas for editors. Nothing is overwritten. `agentbench new` adds cases, judges and datasets "
        "to a project.",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the folder of the new project")


def run(args: argparse.Namespace) -> int:
    """Write the project and print the next steps."""
    begin_project(args.folder)
    return 0


def begin_project(folder: Path) -> None:
    """Write the files and print the next steps. Raises ConfigError if one of the files exists already."""
    from pytest_agentbench.cli.new import write_new_files
    from pytest_agentbench.cli.schema import SCHEMAS

    # All texts are made first: if one fails, nothing is written.
    texts = _make_project_files(folder)
    _refuse_existing(folder, texts)
    write_new_files({folder / name: text for name, text in texts.items()})
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
            f"{folder}: found a file, expected a new folder; agentbench new dataset FILE describes a file of questions"
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
