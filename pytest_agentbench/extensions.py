"""The table of packs: what distributions add under a seam and a name, imported when a file first asks for it.

A pack is a set of entry points of the group `pytest_agentbench.packs`. The name of each is `SEAM NAME`, its value
`module:object`, so that all names are known without importing anything::

    [project.entry-points."pytest_agentbench.packs"]
    "runner my_agent" = "my_package.runner:RUNNER"
    "command score" = "my_package.command:COMMAND"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from pytest_agentbench.errors import ConfigError

T = TypeVar("T")

GROUP = "pytest_agentbench.packs"


def extension_names(seam: str) -> frozenset[str]:
    """Return the names that packs claim under a seam; imports none of them. Raises ConfigError as `find_extension`."""
    return frozenset(_table().get(seam, ()))


def find_extension(seam: str, name: str) -> Any | None:
    """Return what a pack adds under this name, None where none does.

    Raises ConfigError where it cannot be imported, and where two distributions claim one name.
    """
    entry = _table().get(seam, {}).get(name)
    return None if entry is None else _load(entry)


def load_extensions(seam: str) -> Mapping[str, Any]:
    """Return all that packs add under a seam, by name, imported. Raises ConfigError as `find_extension` does."""
    return {name: _load(entry) for name, entry in sorted(_table().get(seam, {}).items())}


@cache
def _table() -> dict[str, dict[str, EntryPoint]]:
    table: dict[str, dict[str, EntryPoint]] = {}
    for entry in entry_points(group=GROUP):
        seam, _, name = entry.name.partition(" ")
        if not name:
            raise ConfigError(f"{_origin(entry)}: found the entry point {entry.name!r}, expected 'SEAM NAME'")
        first = table.setdefault(seam, {}).setdefault(name, entry)
        # One distribution can be found twice on sys.path (an editable install beside a wheel): that is no conflict.
        if first.value != entry.value:
            raise ConfigError(
                f"the {seam} {name!r} is claimed by {_origin(first)} ({first.value}) and by {_origin(entry)} "
                f"({entry.value}); uninstall one of them"
            )
    return table


@cache
def _load(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{_origin(entry)}: cannot import {entry.value} ({entry.name}): {error}") from error


def _origin(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "a distribution"


class WithExtensions(Mapping[str, T]):
    """Things by name: those that are given, and those of packs under a seam, imported when one is first asked for."""

    def __init__(self, seam: str, given: Mapping[str, T]) -> None:
        self._seam, self._given = seam, given

    def __getitem__(self, name: str) -> T:
        if name in self._given:
            return self._given[name]
        found: T | None = find_extension(self._seam, name)
        if found is None:
            raise KeyError(name)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._given or name in extension_names(self._seam)

    def __iter__(self) -> Iterator[str]:
        yield from self._given
        yield from sorted(extension_names(self._seam) - self._given.keys())

    def __len__(self) -> int:
        return len(self._given.keys() | extension_names(self._seam))
