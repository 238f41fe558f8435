"""Modules that strings name exist: a renamed module leaves no string behind that silently names nothing."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from test_rooms import NAME, PACKAGE, PROJECT, module_files, rooms

from pytest_agentbench.extensions import LazyTable
from pytest_agentbench.metrics.registry import METRICS
from pytest_agentbench.packs.research.stages import STAGES
from pytest_agentbench.runners.base import BUILTIN_RUNNERS
from pytest_agentbench.seams import SEAMS
from pytest_agentbench.sources.names import BUILTIN_SOURCES
from pytest_agentbench.tools.builtin import BUILTIN_TOOLS

_DOTTED = re.compile(rf"(?<![\w.-]){NAME}((?:\.(?!__)[A-Za-z_]\w*)+)(?::(\w+))?")
_FILE = re.compile(r"(?<![\w./-])(?:pytest_agentbench/)?((?:[a-z_0-9]+/)+[a-z_0-9]+\.py)\b")
_TEXTS = {
    "package": [file for suffix in ("py", "pyi", "toml", "txt") for file in PACKAGE.rglob(f"*.{suffix}")],
    "tests": list((PROJECT / "tests").rglob("*.py")),
    "benchmarks": list((PROJECT / "benchmarks").rglob("*.py")),
    "docs": list((PROJECT / "docs").rglob("*.md")),
    "project": [PROJECT / name for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md", "conftest.py")],
}
"""Files whose text may name a module in dotted form. The changelog names modules that are gone."""


def texts(files: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each file but this one, which names modules that do not exist."""
    for file in files:
        if file != Path(__file__):
            yield str(file.relative_to(PROJECT)), file.read_text(encoding="utf-8")


def unresolved(text: str) -> list[str]:
    """Return the dotted names in a text that name neither a module nor something that a module defines."""
    return [found[0] for found in _DOTTED.finditer(text) if not resolves(found[1][1:], found[2])]


def resolves(dotted: str, attribute: str | None) -> bool:
    """Return whether a name below the package is a module, or a module and names inside of it."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        if (file := module_files().get(".".join(parts[:count]))) is not None:
            wanted = [*parts[count:], *filter(None, [attribute])]
            return not wanted or wanted[0] in defined(file)
    return parts[0] in defined(PACKAGE / "__init__.pyi")


@cache
def defined(file: Path) -> frozenset[str]:
    """Return the names that a module's top level binds."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return frozenset(names)


@pytest.mark.parametrize("folder", _TEXTS)
def test_dotted_names_name_what_exists(folder: str) -> None:
    assert not [f"{path}: {name}" for path, text in texts(_TEXTS[folder]) for name in unresolved(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pytest_agentbench.engine.running", []),
        ("pytest_agentbench.engine.run", ["pytest_agentbench.engine.run"]),
        ("see `pytest_agentbench.checks.run:run_checks`.", []),
        ("pytest_agentbench.checks.run:gone", ["pytest_agentbench.checks.run:gone"]),
        ("pytest_agentbench.checks.run.gone", ["pytest_agentbench.checks.run.gone"]),
        ("pytest_agentbench.metrics.", []),
        ("pytest_agentbench.score and pytest_agentbench.scores", ["pytest_agentbench.scores"]),
    ],
)
def test_a_name_of_nothing_is_noticed(text: str, expected: list[str]) -> None:
    assert unresolved(text) == expected


def test_paths_name_files_that_exist() -> None:
    folders = {room.replace(".", "/") for room in rooms()} - {"testing"}
    files = [*PACKAGE.rglob("*.py"), *(PROJECT / "tests" / "bounded").glob("*.py"), PROJECT / "CONTRIBUTING.md"]
    for file, text in texts(files):
        for path in _FILE.findall(text):
            if path.split("/")[0] in folders:
                assert (PACKAGE / path).exists() or (PROJECT / "tests" / path).exists(), f"{file}: {path}"


def lazy_homes() -> Iterator[tuple[str, str]]:
    """Yield the table and the module of everything that is imported by a name in a table."""
    tables: Mapping[str, Any] = {"runners": BUILTIN_RUNNERS, "tools": BUILTIN_TOOLS}
    for label, table in tables.items():
        assert isinstance(table, LazyTable)
        yield from ((label, home) for home in table._homes.values())
    yield from (("metrics", f"{NAME}.metrics.{home}") for home in METRICS._homes.values())
    yield from (("stages", f"{NAME}.packs.research.{stage.module}") for stage in STAGES)
    yield from (("sources", files.source) for files in BUILTIN_SOURCES.values())
    for seam in SEAMS.values():
        yield from ((f"seam {seam.key}", home) for home in (*seam.ours, seam.kind) if home.startswith(NAME))


def test_tables_name_modules_that_exist() -> None:
    for table, home in lazy_homes():
        module, _, attribute = home.partition(":")
        assert resolves(module.removeprefix(f"{NAME}."), attribute or None), f"{table}: {home}"


def test_files_beside_a_module_exist() -> None:
    beside = re.compile(r"Path\(__file__\)\.with_name\(\"([^\"]+)\"\)")
    for file in PACKAGE.rglob("*.py"):
        for name in beside.findall(file.read_text(encoding="utf-8")):
            assert file.with_name(name).exists(), f"{file}: {name}"


def test_files_of_packages_exist() -> None:
    of_package = re.compile(r"files\((__package__|\"[\w.]+\")\)(?:\.joinpath\(\"([\w.]+)\"| / \"([\w.]+)\")")
    for file in PACKAGE.rglob("*.py"):
        for package, joined, divided in of_package.findall(file.read_text(encoding="utf-8")):
            folder = file.parent
            if package != "__package__":
                folder = PROJECT.joinpath(*package.strip('"').split("."))
            assert folder.joinpath(joined or divided).exists(), f"{file}: {joined or divided}"
