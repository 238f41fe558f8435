"""Names that conftest files and plugins of a session may add, found by reading their text. Nothing is imported."""

from __future__ import annotations

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
_HOOKS = ("runners", "tools", "checks", "metrics", "judges", "graders")
AGENT, SERVERS = "agentbench_runner", "agentbench_mcp_servers"
"""Fixtures that a conftest may override."""
_WORDS = {
    **{f"pytest_agentbench_{name}": name for name in _HOOKS},
    "metric": "metrics",  # the decorator registers one wherever it is imported
    AGENT: AGENT,
    SERVERS: SERVERS,
}
_EVERYTHING = frozenset(_WORDS.values())


@cache
def additions_for(folder: Path) -> frozenset[str]:
    """Return which names a session may know more of for cases in a folder: fields of Known, `graders`, fixtures.

    They come from conftest files there and above, up to the project's folder, and from installed plugins.
    """
    top = project_folder(folder)
    above = [each for each in (folder, *folder.parents) if each == top or each.is_relative_to(top)]
    return _of_plugins() | _of_files(each / _CONFTEST for each in above)


@cache
def additions_below(root: Path) -> frozenset[str]:
    """Return the same for a whole config root: of conftest files below it too."""
    return additions_for(root) | _of_files(_find_conftests(root))


def verified_names(known: Known, additions: frozenset[str]) -> Known:
    """Return the names that a file can be verified against: None for those that a session may know more of."""
    unverified: dict[str, Any] = dict.fromkeys(additions & {*Known._fields})
    return known._replace(**unverified)


def _find_conftests(root: Path) -> Iterator[Path]:
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
