"""The source that code consists of: its module, the user's own modules below it, and the versions of others."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from pytest_agentbench.bounded.files import read_file
from pytest_agentbench.engine.code.outline import Import, Outline, outline
from pytest_agentbench.engine.code.places import Place, find, kind_of, name_of_file, shown, version_of, ways
from pytest_agentbench.engine.code.values import Untold, Values
from pytest_agentbench.store.fingerprints import canonical_json

Stamp = tuple[int, int]
"""When a file was changed (ns) and its size."""


MOST_SHOWN = 100
"""How many modules, and how many of their variables, an identity names one by one."""


@dataclass(frozen=True, slots=True)
class Source:
    """A module's file: its SHA-256 (16 hex digits), what its code imports and names, and when it was read."""

    sha256: str
    outline: Outline
    stamp: Stamp


@dataclass(slots=True)
class Reached:
    """All that code leads to.

    `modules` maps paths from the outermost package, and names of what is installed, to hashes; `values` is what modules
    hold that their source does not show; `packages` are versions of distributions. `unloaded` are files that may be
    read yet.
    """

    modules: dict[str, str] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    packages: dict[str, str | None] = field(default_factory=dict)
    unloaded: dict[str, Stamp] = field(default_factory=dict)


class Modules:
    """A session's memory of the modules it has looked at. `began` is when it did, in ns since the epoch."""

    def __init__(self, rootdir: Path, began: int) -> None:
        self.rootdir, self.began = rootdir, began
        self._sources: dict[str, Source] = {}
        self._held: dict[str, tuple[dict[str, Any], tuple[Place, ...]]] = {}
        self._reached: dict[tuple[frozenset[Place], frozenset[Place]], Reached] = {}

    def reached(self, roots: Iterable[Place], others: Iterable[Place] = ()) -> Reached:
        """What modules lead to; the `roots` themselves are read wherever they lie.

        Raises Untold where there is no source of code that may run, or it was changed after the session had begun.
        """
        wanted, further = (frozenset(filter(_counts, places)) for places in (roots, others))
        key = (wanted, further - wanted)
        if key not in self._reached:
            self._reached[key] = _Walk(self, wanted).over(sorted(wanted | further, key=_order))
        return self._reached[key]

    def reached_elsewhere(self, place: Place, beside: str | None) -> Reached:
        """What a module leads to that another process runs, which may import from the folder `beside`, too."""
        return _Walk(self, frozenset({place}), beside).over([], later=[place])

    def source(self, file: str) -> Source:
        """A file as it was when the session began. Raises Untold where that cannot be known."""
        if file not in self._sources:
            try:
                data, status = read_file(file), os.stat(file)
            except OSError as error:
                raise Untold(f"there is no source to read at {file} ({error.strerror})") from error
            if status.st_mtime_ns > self.began:
                name = shown(file, self.rootdir) or file
                raise Untold(f"{name} was changed after the session had begun, so it may have run as it was before")
            self._sources[file] = Source(
                _sha256(data),
                outline(data) if file.endswith(".py") else Outline(),
                (status.st_mtime_ns, status.st_size),
            )
        return self._sources[file]

    def values(self, place: Place, names: Outline) -> tuple[dict[str, Any], tuple[Place, ...]]:
        """What the module holds under names that its source does not give the value of: looked at once, at first.

        With the modules that these values lead to.
        """
        assert place.file is not None
        if place.file not in self._held:
            values = Values(self.rootdir, self.began)
            held = values.named(_held(place.namespace or {}, names)).items()
            told = {name: each for name, each in held if not _tells_nothing(each)}
            self._held[place.file] = told, tuple(values.reached)
        return self._held[place.file]


class _Walk:
    """From some modules to all that they import."""

    def __init__(self, modules: Modules, roots: frozenset[Place], beside: str | None = None) -> None:
        self.modules, self.roots, self.beside = modules, roots, beside
        self.found = Reached()
        self.seen: set[Place] = set()
        self.later: list[Place] = []

    def over(self, places: Sequence[Place], later: Iterable[Place] = ()) -> Reached:
        """First what is loaded for certain, then what functions may import when they run."""
        todo = list(places)
        self.later += later
        while todo:
            todo += self._visit(todo.pop(), loaded=True)
        while self.later:
            self.later += self._visit(self.later.pop(), loaded=False)
        return self.found

    def _visit(self, place: Place, *, loaded: bool) -> Iterable[Place]:
        """Adds a module; the modules that it leads to."""
        if place in self.seen or not _counts(place):
            return ()
        self.seen.add(place)
        installed = kind_of(place.name, place.file) == "installed"
        if installed and (top := place.name.partition(".")[0]) not in self.found.packages:
            self.found.packages[top] = version_of(top)
        if place not in self.roots and (installed or place.file is None):
            return ()
        if place.file is None:
            raise Untold(f"there is no source of {place.name}")
        source = self.modules.source(place.file)
        name = place.name if installed else name_of_file(place.file)
        self.found.modules[name] = _both(self.found.modules.get(name), source.sha256)
        return () if installed else self._below(place, name, source, loaded=loaded)

    def _below(self, place: Place, name: str, source: Source, *, loaded: bool) -> Iterable[Place]:
        imports = list(_imported(source.outline.imports, place, self.beside))
        later = _imported(source.outline.later, place, self.beside)
        if not loaded or place.namespace is None:
            self.found.unloaded[place.file or ""] = source.stamp
        if not loaded:
            return [*imports, *later]
        self.later += later
        values, led_to = self.modules.values(place, source.outline)
        self.found.values.update((f"{name}: {each}", value) for each, value in values.items())
        return [*imports, *led_to]


def _counts(place: Place) -> bool:
    return kind_of(place.name, place.file) != "other"


def _order(place: Place) -> tuple[str, str]:
    return place.name, place.file or ""


def changed(files: Mapping[str, Stamp]) -> str | None:
    """The first file that is not as it was, None where all are."""
    for file, stamp in files.items():
        try:
            status = os.stat(file)
        except OSError:
            return file
        if (status.st_mtime_ns, status.st_size) != stamp:
            return file
    return None


def _imported(imports: Iterable[Import], place: Place, beside: str | None) -> Iterator[Place]:
    """The modules that import statements name: every package on the way, and names that are modules themselves."""
    for level, module, names in imports:
        start = _absolute(level, module, place.package)
        if start is None:
            continue
        wanted = ways(start)
        for name in [*wanted, *(f"{start}.{each}" for each in names)]:
            found = find(name, beside)
            if found is None:
                if name in wanted:
                    break
                continue
            yield found
            if kind_of(found.name, found.file) != "own":
                break


def _absolute(level: int, module: str, package: str) -> str | None:
    """The dotted name of an import; None for a relative one outside any package."""
    if level == 0:
        return module
    base = package.rsplit(".", level - 1)[0] if level > 1 else package
    return f"{base}.{module}".strip(".") or None if base else None


def _held(namespace: Mapping[str, Any], names: Outline) -> Iterator[tuple[str, Any]]:
    if names.adds_names:
        yield from ((name, each) for name, each in namespace.items() if _is_added(name, each, names))
    for path in names.computed:
        found = _look_up(namespace, path)
        if found is not _MISSING:
            yield ".".join(path), found
    for path, literal in names.told.items():
        found = _look_up(namespace, path)
        same = found is _MISSING or isinstance(found, Enum) or (type(found) is type(literal) and found == literal)
        if not same:
            yield ".".join(path), found


def _is_added(name: str, value: Any, names: Outline) -> bool:
    """Whether it is data of which the source does not know the name."""
    known = (name,) in names.computed or (name,) in names.told or name.startswith("__")
    return not known and name.isidentifier() and not isinstance(value, ModuleType | FunctionType | type)


def _tells_nothing(described: Any) -> bool:
    """Whether all there is to tell is a class of Python's own, as of loggers and locks."""
    only_class = isinstance(described, dict) and list(described) == ["class"]
    return only_class and described["class"].partition(".")[0] in sys.stdlib_module_names


def _look_up(namespace: Mapping[str, Any], path: Sequence[str]) -> Any:
    *classes, name = path
    for each in classes:
        inner = namespace.get(each)
        if not isinstance(inner, type):
            return _MISSING
        namespace = vars(inner)
    return namespace.get(name, _MISSING)


def summed(found: Mapping[str, Any]) -> dict[str, Any]:
    """What was found by module; where that is much, a hash of it for each folder, so that an identity stays small."""
    if len(found) <= MOST_SHOWN:
        return dict(found)
    folders: dict[str, list[Any]] = {}
    for name in sorted(found):
        folders.setdefault(f"{name.rpartition('/')[0] or '.'}/", []).append([name, found[name]])
    return {folder: f"{len(each)} in all, {_sha256(canonical_json(each))}" for folder, each in folders.items()}


def _both(first: str | None, second: str) -> str:
    """Modules of one name: their hashes, in an order of their own."""
    return second if first is None else "+".join(sorted({*first.split("+"), second}))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


_MISSING = object()
