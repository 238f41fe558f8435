"""Names that conftest files and plugins of a session may add, found by reading their text. Nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from pytest_agentbench.bounded.files import MAX_TEXT, read_file
from pytest_agentbench.cli.places import project_folder
from pytest_agentbench.config.base import Known
from pytest_agentbench.config.folders import visited_folders, walk_folders

_CONFTEST = "conftest.py"
_DISTRIBUTION = "pytest-agentbench"
_PREFIX = "pytest_agentbench_"
_PACKS = f"{_PREFIX}packs"
_HOOKS = ("runners", "tools", "checks", "metrics", "judges", "graders", "case_sources", "file_kinds")
AGENT, SERVERS = "agentbench_runner", "agentbench_mcp_servers"
"""Fixtures that a conftest may override."""
_WORDS = {
    **{f"{_PREFIX}{name}": name for name in _HOOKS},
    "metric": "metrics",  # the decorator registers one wherever it is imported
    AGENT: AGENT,
    SERVERS: SERVERS,
}
_EVERYTHING = frozenset(_WORDS.values())


@cache
def additions_for(folder: Path) -> frozenset[str]:
    """Return which names a session may know more of for cases in a folder: fields of Known, hooks, fixtures.

    They come from conftest files there and above, up to the project's folder, and from installed plugins.
    """
    return _of_plugins() | _of_files(conftests_above(folder))


@cache
def additions_below(root: Path) -> frozenset[str]:
    """Return the same for a whole config root: of conftest files below it too."""
    return additions_for(root) | _of_files(conftests_below(root))


def verified_names(known: Known, additions: frozenset[str]) -> Known:
    """Return the names that a file can be verified against: None for those that a session may know more of."""
    unverified: dict[str, Any] = dict.fromkeys(additions & {*Known._fields})
    return known._replace(**unverified)


def add_declared(known: Known, folder: Path) -> Known:
    """Return the names with those that conftest files for a folder register in plain sight.

    That is a hook that returns mappings with literal keys, `return {"look_up": LookUp()}`, or a Pack that has such
    mappings, `Pack("mine", tools={"look_up": LookUp()})`.
    """
    declared = _declared_for(folder)
    names = {field: getattr(known, field) | declared[field] for field in declared if getattr(known, field) is not None}
    return known._replace(**names)


@cache
def _declared_for(folder: Path) -> dict[str, frozenset[str]]:
    """Return the registered names by field of Known."""
    declared: dict[str, frozenset[str]] = {}
    for path in conftests_above(folder):
        for field, names in list_declared(path).items():
            if field in Known._fields:
                declared[field] = declared.get(field, frozenset()) | names
    return declared


@cache  # a project of 10,000 case folders has one conftest above them all
def list_declared(path: Path) -> dict[str, frozenset[str]]:
    """Return the names that one conftest file registers in plain sight, by hook or by the field of a Pack."""
    try:
        tree = ast.parse(read_file(path, MAX_TEXT))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return {}  # there is no such file, or pytest reports its error
    declared: dict[str, frozenset[str]] = {}
    for field, mapping in (*_list_returned(tree), *_list_in_packs(tree)):
        names = {key.value for key in mapping.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
        declared[field] = declared.get(field, frozenset()) | names
    return declared


def _list_returned(tree: ast.Module) -> Iterator[tuple[str, ast.Dict]]:
    """Yield the mappings that hooks return, each with the field of a Pack that has the same things."""
    for function in tree.body:
        if isinstance(function, ast.FunctionDef) and function.name.startswith(_PREFIX):
            for node in ast.walk(function):
                if isinstance(node, ast.Return) and isinstance(node.value, ast.Dict):
                    yield function.name.removeprefix(_PREFIX), node.value


def _list_in_packs(tree: ast.Module) -> Iterator[tuple[str, ast.Dict]]:
    """Yield the mappings among the arguments of `Pack(...)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Pack":
            for argument in node.keywords:
                if argument.arg is not None and isinstance(argument.value, ast.Dict):
                    yield argument.arg, argument.value


def conftests_above(folder: Path) -> list[Path]:
    """Return the places of conftest files for a folder: there and above, up to the project's folder."""
    top = project_folder(folder)
    return [each / _CONFTEST for each in (folder, *folder.parents) if each == top or each.is_relative_to(top)]


def conftests_below(root: Path) -> Iterator[Path]:
    """Yield the conftest files below a folder."""
    for place, folders, files in walk_folders(root):
        folders[:] = visited_folders(folders)
        if _CONFTEST in files:
            yield Path(place, _CONFTEST)


def _of_files(paths: Iterable[Path]) -> frozenset[str]:
    found: set[str] = set()
    for path in paths:
        try:
            text = read_file(path, MAX_TEXT).decode("utf-8", "replace")
        except OSError:
            continue  # there is no such file, or pytest reports its error
        # It imports modules that are not read here, and these may add anything.
        if "pytest_plugins" in text:
            return _EVERYTHING
        if _PACKS in text:
            found.update(_HOOKS)
        found.update(name for word, name in _WORDS.items() if word in text)
    return frozenset(found)


@cache
def _of_plugins() -> frozenset[str]:
    """Return everything where another distribution's pytest plugin needs this package: it may add anything."""
    for entry in entry_points(group="pytest11"):
        needed = (entry.dist.requires if entry.dist is not None else None) or ()
        if any(text.lower().replace("_", "-").startswith(_DISTRIBUTION) for text in needed):
            return _EVERYTHING
    return frozenset()
