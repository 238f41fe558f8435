"""`agentbench init FOLDER`: a project that runs at once, offline, and what to do next."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path

from pytest_agentbench.cli.editor import SCHEMAS
from pytest_agentbench.cli.schema import all_schemas, schema_text
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
"""Where a project has each file of `project/`, whose names keep pytest, git and ruff from taking them for theirs."""

_NAMED = 5
"""How many of the files in the way are named."""

_NEXT = """\
next:
  cd {folder}
  pytest --model demo                   # the case on scripted answers: offline, nothing is paid
  agentbench review                     # say yourself whether the run passed, and see how the judge compares
  agentbench validate                   # after each edit; editors complete and check by {schemas}/
then take the models in cases/models.yaml out of their comments, and set the variable of their key:
  pytest --model gpt4o"""

_NESTED = """\
GitHub reads the workflows of a repository's own folder: move .github there, and let its commands run in {folder}
  (defaults.run.working-directory) and the upload take {folder}/outputs"""


def begin_project(folder: Path) -> None:
    """Writes the files and prints what to do next. Raises ConfigError where one of them is there already."""
    texts = _texts(folder)
    _refuse(folder, texts)
    try:
        for name, text in texts.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise ConfigError(f"{error.filename or folder}: cannot be written: {error.strerror or error}") from error
    print(f"{folder} is a project with one case:")
    for name in _FILES:
        print(f"  {name}")
    print(_NEXT.format(folder=shlex.quote(str(folder)), schemas=SCHEMAS))
    if (below := _below_repository(folder)) is not None:
        print(_NESTED.format(folder=below.as_posix()))


def _below_repository(folder: Path) -> Path | None:
    """The folder as seen from that of the git repository around it; None where there is none, or it is that."""
    here = folder.resolve()
    above = next((parent for parent in (here, *here.parents) if os.path.lexists(parent / ".git")), here)
    return None if above == here else here.relative_to(above)


def _refuse(folder: Path, names: Iterable[str]) -> None:
    """Raises ConfigError where something would be overwritten."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(
            f"{folder}: found a file, expected a new folder; agentbench init dataset FILE describes a file of questions"
        )
    taken = [name for name in names if os.path.lexists(folder / name)]
    if taken:
        more = f" and {len(taken) - _NAMED} more" if len(taken) > _NAMED else ""
        found = f"{', '.join(taken[:_NAMED])}{more}"
        raise ConfigError(f"{folder}: found {found}, and nothing is overwritten; name a new folder")


def _texts(folder: Path) -> dict[str, str]:
    """Every file of the project, by its place in it."""
    texts = {name: (_TEMPLATES / source).read_text(encoding="utf-8") for name, source in _FILES.items()}
    project = texts["pyproject.toml"].replace("{name}", _project_name(folder))
    texts["pyproject.toml"] = project.replace("{requirement}", _requirement())
    return texts | {f"{SCHEMAS}/{name}.schema.json": schema_text(schema) for name, schema in all_schemas().items()}


def _requirement() -> str:
    """Return how a project asks for this package: from where it was installed, which installers note (PEP 610).

    By its name alone only where an index gave it: a name that nobody holds there is anybody's to register.
    """
    package = "pytest-agentbench"
    noted = distribution(package).read_text("direct_url.json")
    if noted is None:
        return package
    origin = json.loads(noted)
    repository = origin.get("vcs_info")
    address = f"{repository['vcs']}+{origin['url']}@{repository['commit_id']}" if repository else origin["url"]
    return f"{package} @ {address}"


def _project_name(folder: Path) -> str:
    """The folder's name as a Python project may be called (PyPA, "Names and normalization")."""
    name = re.sub(r"[^a-z0-9]+", "-", folder.absolute().name.lower()).strip("-")
    return name or "benchmark"
