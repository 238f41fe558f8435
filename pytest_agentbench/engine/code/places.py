"""Where code lies: the user's own files, an installed distribution, or what never changes an agent."""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Literal

Kind = Literal["own", "installed", "other"]
"""The user's own files; those of a distribution, which its version tells; Python's, pytest's and ours."""

_NEVER = frozenset({"pytest_agentbench", "pytest", "_pytest", "pluggy", "builtins"})
_INSTALLED = ("site-packages", "dist-packages")
_STDLIB = tuple({os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib")})


@dataclass(frozen=True, slots=True)
class Place:
    """A module: its name, its file (None: it has none), and what it holds where it is loaded."""

    name: str
    file: str | None
    namespace: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)

    @property
    def package(self) -> str:
        """What its relative imports start from."""
        declared = (self.namespace or {}).get("__package__")
        if isinstance(declared, str):
            return declared
        is_package = self.file is not None and os.path.basename(self.file) == "__init__.py"
        return self.name if is_package else self.name.rpartition(".")[0]


def place_of(namespace: Mapping[str, Any]) -> Place:
    """The place of a module's namespace."""
    name, file = namespace.get("__name__", "?"), namespace.get("__file__")
    return Place(str(name), file if isinstance(file, str) else None, namespace)


def place_of_function(function: FunctionType) -> Place:
    """Where a function's code comes from: its module, unless that is the user's own and other text was run in it."""
    place, file = place_of(function.__globals__), function.__code__.co_filename
    if file == place.file or kind_of(place.name, place.file) != "own":
        return place
    return Place(place.name, file, place.namespace)


def has_source(place: Place) -> bool:
    """Whether there is a file to look into, as there is none of what `exec` made."""
    return place.file is not None and not place.file.startswith("<")


def place_of_class(kind: type) -> Place:
    """The module that a class is defined in, also where another of its name was imported since (`conftest`)."""
    for each in vars(kind).values():
        function = each.__func__ if type(each) in (staticmethod, classmethod) else each
        if type(function) is FunctionType and function.__globals__.get("__name__") == kind.__module__:
            return place_of(function.__globals__)
    module = sys.modules.get(kind.__module__)
    return Place(kind.__module__, None) if module is None else place_of(vars(module))


@lru_cache(maxsize=4096)
def kind_of(name: str, file: str | None) -> Kind:
    """Whose code a module of that name and file is."""
    top = name.partition(".")[0]
    if top in _NEVER:
        return "other"
    if file is None or not os.path.isabs(file):
        return "other" if top in sys.stdlib_module_names else "own"
    path = os.path.realpath(file)
    if any(part in _INSTALLED for part in path.split(os.sep)):
        return "installed"
    return "other" if path.startswith(_STDLIB) else "own"


def find(name: str, beside: str | None = None) -> Place | None:
    """The module of a dotted name, loaded or not. Runs none of its code; None where there is no such module.

    `beside` is a folder that it may lie in, too, unless it is Python's own or installed.
    """
    found = _find(name)
    if beside is None or (found is not None and kind_of(found.name, found.file) != "own"):
        return found
    spec, folders = None, [beside]
    for part in ways(name):
        spec = PathFinder.find_spec(part, folders)
        if spec is None:
            return found
        folders = list(spec.submodule_search_locations or ())
    return found if spec is None else _place(name, spec)


def _find(name: str) -> Place | None:
    loaded = sys.modules.get(name)
    if loaded is not None:
        return place_of(vars(loaded)) if isinstance(loaded, ModuleType) else None
    spec = _spec(name)
    return None if spec is None else _place(name, spec)


def _place(name: str, spec: ModuleSpec) -> Place:
    return Place(name, spec.origin if spec.has_location else None)


def ways(name: str) -> list[str]:
    """`a`, `a.b`, `a.b.c`."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _spec(name: str) -> ModuleSpec | None:
    parent, _, _ = name.rpartition(".")
    if not parent:
        return importlib.util.find_spec(name)
    loaded = sys.modules.get(parent)
    if loaded is not None:
        folders: Sequence[str] | None = getattr(loaded, "__path__", None)
    else:
        above = _spec(parent)
        folders = None if above is None else above.submodule_search_locations
    return None if folders is None else PathFinder.find_spec(name, list(folders))


def version_of(name: str) -> str | None:
    """The version of the distribution that a module is installed from, None where there is none.

    Where distribution and module differ in name, `<distribution> <version>`, or several of them.
    """
    top = name.partition(".")[0]
    try:
        return metadata.version(top)
    except metadata.PackageNotFoundError:
        found = sorted(set(_distributions().get(top, ())))
        return ", ".join(f"{each} {metadata.version(each)}" for each in found) or None


@cache
def _distributions() -> Mapping[str, Sequence[str]]:
    return metadata.packages_distributions()


def name_of_file(path: str) -> str:
    """The path from the outermost package that holds it: the same wherever a project lies, and whatever folder pytest
    takes for its root, which without an ini file depends on the command line.
    """
    folder, name = os.path.split(path)
    while os.path.isfile(os.path.join(folder, "__init__.py")):
        folder, package = os.path.split(folder)
        name = f"{package}/{name}"
    return name


def shown(path: str, rootdir: Path) -> str | None:
    """The path as seen from the root directory, None where it lies elsewhere."""
    for root in (rootdir, rootdir.resolve()):
        if path.startswith(str(root) + os.sep):
            return Path(path).relative_to(root).as_posix()
    real = os.path.realpath(path)
    root = rootdir.resolve()
    return Path(real).relative_to(root).as_posix() if real.startswith(str(root) + os.sep) else None
