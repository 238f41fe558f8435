"""A table of extensions: the things that packs and a session's plugins add, by seam and name.

A pack is a set of entry points of the group `pytest_agentbench.packs`. An entry point has the name `SEAM NAME` and the
value `module:object`. So all names are known without an import; an object is imported when a file first uses it::

    [project.entry-points."pytest_agentbench.packs"]
    "runner my_agent" = "my_package.runner:RUNNER"
    "command score" = "my_package.command:COMMAND"

Plugins and conftest files of a session add by hooks (hookspecs.py) to the same table, until the session ends.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from importlib import import_module
from types import ModuleType

from pytest_agentbench.errors import ConfigError

TYPE_CHECKING = False  # not from typing: `agentbench --help` would take a quarter longer
if TYPE_CHECKING:
    from typing import Any, TypeVar

    T = TypeVar("T")
    F = TypeVar("F", bound=Callable[..., Any])

GROUP = "pytest_agentbench.packs"
SEAMS = frozenset(
    {
        *("agent", "case_part", "check", "command", "doctor", "driver", "evaluation_part"),
        *("evaluation_profile", "file", "grader", "image", "judge", "metric"),
        *("model_provider", "report_format", "report_section", "run_profile", "runner", "sandbox"),
        *("schema", "script", "scripted_verdict", "source", "suite", "tool"),
    }
)
"""The seams that the package looks up. Others are ignored: a plugin may name seams of a later version."""

_SANDBOXES = "pytest_agentbench.workspaces.sandboxes.kinds"
OWN: Mapping[str, Mapping[str, str]] = {
    "sandbox": {
        "docker": f"{_SANDBOXES}:DOCKER",
        "bubblewrap": f"{_SANDBOXES}:BUBBLEWRAP",
        "local": f"{_SANDBOXES}:LOCAL",
    },
}
"""Things of the package that are in the table without an entry point, in the order in which messages name them."""

_sessions: list[SessionExtensions] = []
"""Extensions of the sessions that run in this process, the innermost last."""
_caches: list[Callable[[], None]] = []
_changes = 0


def cache_extensions(function: F) -> F:
    """Cache a function of extensions like functools.cache, until a session's plugins add or remove things."""
    cached = cache(function)
    _caches.append(cached.cache_clear)
    return cached  # type: ignore[return-value]


def count_changes() -> int:
    """Return the number of changes by sessions' plugins. It is part of the keys of caches, because files depend on
    it.
    """
    return _changes


def _forget() -> None:
    global _changes
    _changes += 1
    for clear in _caches:
        clear()


def extension_names(seam: str) -> frozenset[str]:
    """Return the names that are claimed under a seam; imports nothing. Raises ConfigError as `find_extension`."""
    names = installed_names(seam)
    for session in _sessions:  # mostly none has any of the seam: this is asked for each record that is written
        if added := session.of(seam):
            names |= added.keys()
    return names


def installed_names(seam: str) -> frozenset[str]:
    """Return the names that packs claim under a seam, without a session's plugins. Raises as `find_extension`."""
    return frozenset(_table().get(seam, ()))


def ordered_names(seam: str) -> list[str]:
    """Return the names that are claimed under a seam for messages: the package's own first, the others sorted."""
    own = OWN.get(seam, {})
    return [*own, *sorted(extension_names(seam) - own.keys())]


def ignored_entry_points() -> list[EntryPoint]:
    """Return the entry points of seams that this version does not look up. Raises ConfigError as `find_extension`."""
    return [entry for seam, entries in _table().items() if seam not in SEAMS for entry in entries.values()]


def find_extension(seam: str, name: str) -> Any | None:
    """Return the thing with this name, None if nothing has it.

    Raises ConfigError for a thing that cannot be imported, and for a name that two distributions claim.
    """
    for session in reversed(_sessions):  # the innermost first
        if name in (added := session.of(seam)):
            return added[name]
    entry = _table().get(seam, {}).get(name)
    if entry is None:
        return None
    return _load(entry)


def load_extensions(seam: str) -> Mapping[str, Any]:
    """Return all that is added under a seam, by name, imported. Raises ConfigError as `find_extension` does."""
    return {name: find_extension(seam, name) for name in sorted(extension_names(seam))}


def session_extensions(seam: str) -> Mapping[str, Any]:
    """Return the things that plugins of the running session add under a seam, {} without a session."""
    if _sessions:
        return dict(_sessions[-1].of(seam))
    return {}


class SessionExtensions:
    """Additions of one session's plugins, until `close`.

    The state belongs to the process, because files are validated deep inside of models that do not get the session.
    Nested sessions (pytester's) have their own additions: a name of the inner session hides the outer one's.
    """

    def __init__(self) -> None:
        self._added: dict[str, dict[str, Any]] = {}
        _sessions.append(self)

    def of(self, seam: str) -> Mapping[str, Any]:
        """Return the things that this session's plugins add under a seam."""
        return self._added.get(seam, {})

    def add(self, seam: str, name: str, thing: Any, *, what: str, ours: Collection[str] = ()) -> None:
        """Add a thing. `what` is its kind in messages, `ours` are the names that this package has itself.

        Raises ConfigError for a name that exists already.
        """
        # Additions of an outer session are no conflict: a project's tests may run its own conftest in an inner session.
        if name in ours or name in installed_names(seam) or name in self.of(seam):
            raise ConfigError(f"a plugin adds the {what} {name!r}, which exists already; choose another name")
        self._added.setdefault(seam, {})[name] = thing
        _forget()

    def close(self) -> None:
        """Remove the additions. May be called twice."""
        if self in _sessions:
            _sessions.remove(self)
            _forget()


class EntryPoint:
    """One line of an `entry_points.txt`, `name = value`, and the distribution that has it."""

    def __init__(self, name: str, value: str, distribution: str) -> None:
        self.name, self.value, self.distribution = name, value, distribution

    def load(self) -> Any:
        """Return the object of the entry point. Raises ConfigError if it cannot be imported."""
        module, _, names = self.value.partition(":")
        try:
            loaded: Any = import_module(module.strip())
            for name in filter(None, names.partition("[")[0].strip().split(".")):
                loaded = getattr(loaded, name)
        except (ImportError, AttributeError) as error:
            message = f"{self.distribution}: cannot import {self.value} ({self.name}): {error}"
            raise ConfigError(message) from error
        return loaded


def _entry_points() -> Iterator[EntryPoint]:
    """Yield the entry points of packs. Of a distribution that is on the path twice, only the first is imported.

    importlib.metadata returns the same, but importing it and reading all groups of all distributions takes
    `agentbench --help` from 34 to 84 ms of CPU. It is asked only if a distribution may be outside of a folder.
    """
    places = [place or "." for place in sys.path]
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_distributions")]
    if len(finders) != 1 or any(place.endswith(".egg") or os.path.isfile(place) for place in places):
        from importlib.metadata import entry_points

        for entry in entry_points(group=GROUP):
            yield EntryPoint(entry.name, entry.value, entry.dist.name if entry.dist else "a distribution")
        return
    seen = set[str]()
    for place in places:
        try:
            folders = [name for name in os.listdir(place) if name.endswith((".dist-info", ".egg-info"))]
        except OSError:
            continue
        for folder in folders:
            name = os.path.splitext(folder)[0].partition("-")[0]
            if (normal := re.sub("[-_.]+", "-", name).lower()) not in seen:
                seen.add(normal)
                for key, value in _read_group(os.path.join(place, folder, "entry_points.txt")):
                    yield EntryPoint(key, value, normal)


def _read_group(path: str) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of the packs' entry points in a file; nothing if there is no file."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError):
        return
    section = ""
    for line in map(str.strip, lines):
        if line.startswith("["):
            section = line
        elif section == f"[{GROUP}]" and "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            yield name.strip(), value.strip()


@cache
def _table() -> dict[str, dict[str, EntryPoint]]:
    table = {
        seam: {name: EntryPoint(f"{seam} {name}", value, "pytest-agentbench") for name, value in things.items()}
        for seam, things in OWN.items()
    }
    for entry in _entry_points():
        seam, _, name = entry.name.partition(" ")
        if not name:
            raise ConfigError(f"{entry.distribution}: found the entry point {entry.name!r}, expected 'SEAM NAME'")
        first = table.setdefault(seam, {}).setdefault(name, entry)
        # An editable install next to a wheel shows one distribution twice on sys.path, which is no conflict.
        if first.value != entry.value:
            raise ConfigError(
                f"the {seam} {name!r} is claimed by {first.distribution} ({first.value}) and by {entry.distribution} "
                f"({entry.value}); uninstall one of them"
            )
    return table


_load = cache(EntryPoint.load)


class WithExtensions(Mapping[str, "T"]):
    """Things by name: those that are given, and those added under a seam, imported when one is first asked for."""

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


class LazyTable(Mapping[str, "T"]):
    """Things of this package by name, each in the module that `homes` names, imported when it is first asked for."""

    def __init__(self, homes: Mapping[str, str], find: Callable[[ModuleType, str], T] = getattr) -> None:
        self._homes, self._find = homes, find

    def __getitem__(self, name: str) -> T:
        return self._find(import_module(self._homes[name]), name)

    def __contains__(self, name: object) -> bool:
        return name in self._homes

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)
