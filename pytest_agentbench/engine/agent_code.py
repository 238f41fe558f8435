"""The code of agents, checks and metrics as a part of fingerprints: what would be different if another one ran.

That is the source of the user's modules, the data that these hold, the versions of the packages they import, and the
state of the object. Equal in all processes and on all machines that have the same code.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from inspect import getattr_static
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from pytest_agentbench.bounded.files import read_file
from pytest_agentbench.engine.agent_state import Module, State, UnknownCode, data_of_module, module_of, module_of_names
from pytest_agentbench.identity.fingerprints import canonical_json, plain

Stamp = tuple[int, int]
"""When a file was changed (ns) and its size."""

Import = tuple[bool, int, str, tuple[str, ...]]
"""Whether only a function or a type checker does it, leading dots, dotted name, and the names imported from it."""

MOST_SHOWN = 100
"""How many modules, and how many of their variables, an identity names one by one."""

_IMPORTED_BY_NAME = re.compile(rb"""\bimport_module\(\s*["']([A-Za-z_][\w.]*)["']""", re.ASCII)


class Code(NamedTuple):
    """The identity of a piece of code, `shown` as JSON. It holds as long as the files `unloaded` do not change."""

    shown: Mapping[str, Any]
    unloaded: Mapping[str, Stamp]


class _Source(NamedTuple):
    """A module's file: its SHA-256 (16 hex digits), when it was changed, and what it imports."""

    sha256: str
    stamp: Stamp
    imports: tuple[Import, ...]


class CodeReader:
    """Tells the identity of code, for one session: a file is read once, and what a module holds is looked at once.

    `rootdir` is what paths are relative to, `began` when the session did, in ns since the epoch.
    """

    def __init__(self, rootdir: Path, began: int) -> None:
        self.rootdir, self.began = rootdir, began
        self._sources: dict[str, _Source] = {}
        self._held: dict[str, tuple[dict[str, Any], list[Module]]] = {}
        self._reached: dict[tuple[frozenset[Module], frozenset[Module]], Code] = {}

    def read(self, thing: Any, made_by: Iterable[Callable[..., Any]] = (), **given: Any) -> Code:
        """Return the identity of a callable, of the functions that made it, and of what these were `given`.

        Raises UnknownCode where it cannot be told: there is no source, or too much state.
        """
        state = State(self.rootdir)
        makers = [each for each in made_by if any(module.owner != "other" for module in _called(each))]
        shown: dict[str, Any] = {"callable": state.of(thing)}
        if makers:
            shown["made_by"] = [state.of(each) for each in makers]
        shown |= state.named(given)
        called = frozenset(module for each in (thing, *makers) for module in _called(each))
        key = called, frozenset(state.modules)
        if key not in self._reached:
            self._reached[key] = self._follow(called, sorted(called | key[1], key=lambda each: each.name))
        code = self._reached[key]
        return Code(plain({**shown, **code.shown}), code.unloaded)

    def read_file(self, file: Path) -> Code:
        """Return the identity of a Python file that another process runs, with what it imports, also from beside it."""
        return self._follow(frozenset({Module(file.stem, str(file))}), beside=str(file.parent))

    def read_module(self, name: str) -> Code:
        """Return that of a module that another process imports."""
        module = _find(name)
        return Code({"missing": name}, {}) if module is None else self._follow(frozenset({module}))

    def _follow(self, called: frozenset[Module], now: Sequence[Module] = (), beside: str | None = None) -> Code:
        """Read modules and all that they import: first those that are loaded for certain, which hold values that count,
        then those that functions may import when they run. Of installed code only what is `called` is read.
        """
        parts: dict[str, dict[str, Any]] = {"modules": {}, "values": {}, "packages": {}}
        unloaded: dict[str, Stamp] = {}
        seen: set[Module] = set()
        loaded, later = list(now), [] if now else list(called)
        while loaded or later:
            is_loaded, module = bool(loaded), (loaded or later).pop()
            if module in seen or module.owner == "other":
                continue
            seen.add(module)
            installed, top = module.owner == "installed", module.name.partition(".")[0]
            if installed and top not in parts["packages"]:
                parts["packages"][top] = _version_of(top)
            if module not in called and (installed or module.file is None):
                continue
            source, name = self._source(module), module.name if installed else _name_of_file(module.file or "")
            before = parts["modules"].get(name)  # two conftest.py have one name
            parts["modules"][name] = source.sha256 if before is None else "+".join(sorted({before, source.sha256}))
            if installed:
                continue
            is_loaded = is_loaded and module.namespace is not None
            for wanted in source.imports:
                (loaded if is_loaded and not wanted[0] else later).extend(_imported(wanted, module, beside))
            if is_loaded:
                values, led_to = self._values(module)
                parts["values"] |= {f"{name}: {key}": value for key, value in values.items()}
                loaded += led_to
            else:
                unloaded[module.file or ""] = source.stamp
        shown = {"modules": _sum(parts["modules"]), "values": _sum(parts["values"]), "packages": parts["packages"]}
        return Code(plain({name: part for name, part in shown.items() if part}), unloaded)

    def _source(self, module: Module) -> _Source:
        """Return a file as it was when the session began. Raises UnknownCode where that cannot be known."""
        file = module.file
        if file is None:
            raise UnknownCode(f"there is no source to read of {module.name}")
        if file not in self._sources:
            try:
                data, status = read_file(file), os.stat(file)
            except OSError as error:
                raise UnknownCode(f"there is no source to read at {file} ({error.strerror})") from error
            if status.st_mtime_ns > self.began:
                name = os.path.relpath(os.path.realpath(file), os.path.realpath(self.rootdir))
                raise UnknownCode(f"{name} was changed after the session had begun: it may have run as it was before")
            imports = tuple(find_imports(data)) if file.endswith(".py") else ()
            self._sources[file] = _Source(_sha256(data), (status.st_mtime_ns, status.st_size), imports)
        return self._sources[file]

    def _values(self, module: Module) -> tuple[dict[str, Any], list[Module]]:
        """Return the data that a module holds, and the modules that these lead to."""
        assert module.file is not None
        if module.file not in self._held:
            imports, state = self._source(module).imports, State(self.rootdir)
            imported = frozenset(name for late, *_, names in imports if not late for name in names)
            found = dict(data_of_module(module, imported))
            self._held[module.file] = state.named(found), list(state.modules)
        return self._held[module.file]


def find_changed(files: Mapping[str, Stamp]) -> str | None:
    """Return the first file that is not as it was, None where all are."""
    for file, stamp in files.items():
        try:
            status = os.stat(file)
        except OSError:
            return file
        if (status.st_mtime_ns, status.st_size) != stamp:
            return file
    return None


def find_imports(source: bytes) -> Iterator[Import]:
    """Yield what a module's source imports, wherever in it; nothing where it is not Python."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError):  # what cannot be loaded runs nowhere
        return
    todo: list[tuple[ast.stmt, bool]] = [(node, False) for node in body]
    while todo:
        node, late = todo.pop()
        if isinstance(node, ast.Import):
            yield from ((late, 0, alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield late, node.level, node.module or "", tuple(alias.name for alias in node.names)
        test = getattr(node, "test", None)
        for_types = getattr(test, "attr", getattr(test, "id", None)) == "TYPE_CHECKING"
        late = late or for_types or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        parts = (node, *getattr(node, "handlers", ()), *getattr(node, "cases", ()))
        inner = (getattr(part, name, ()) for part in parts for name in ("body", "orelse", "finalbody"))
        todo += [(each, late) for block in inner for each in block]
    yield from ((True, 0, name.decode(), ()) for name in _IMPORTED_BY_NAME.findall(source))


def _imported(wanted: Import, importer: Module, beside: str | None) -> Iterator[Module]:
    """Yield the modules that an import names: every package on the way, and names that are modules themselves."""
    _, level, start, names = wanted
    if level:
        package = _package_of(importer)
        base = package.rsplit(".", level - 1)[0] if level > 1 else package
        start = f"{base}.{start}".strip(".") if base else ""
    parts = start.split(".")
    way = [".".join(parts[:count]) for count in range(1, len(parts) + 1) if start]
    for name in [*way, *(f"{start}.{each}" for each in names if way)]:
        module = _find(name, beside)
        if module is not None:
            yield module
        if (module is None and name in way) or (module is not None and module.owner != "own"):
            return


def _package_of(module: Module) -> str:
    """Return what its relative imports start from."""
    declared = (module.namespace or {}).get("__package__")
    if isinstance(declared, str):
        return declared
    return module.name if os.path.basename(module.file or "") == "__init__.py" else module.name.rpartition(".")[0]


def _find(name: str, beside: str | None = None) -> Module | None:
    """Return the module of a dotted name, loaded or not, without running its code; None where there is none.

    `beside` is a folder that it may lie in, too, unless it is Python's own or installed.
    """
    loaded = sys.modules.get(name)
    spec = None if loaded is not None else _spec(name)
    found = module_of_names(vars(loaded)) if isinstance(loaded, ModuleType) else _unloaded(name, spec)
    if beside is None or (found is not None and found.owner != "own"):
        return found
    return _unloaded(name, _spec(name, beside)) or found


def _unloaded(name: str, spec: ModuleSpec | None) -> Module | None:
    return None if spec is None else Module(name, spec.origin if spec.has_location else None)


def _spec(name: str, beside: str | None = None) -> ModuleSpec | None:
    parent = name.rpartition(".")[0]
    if not parent:
        return importlib.util.find_spec(name) if beside is None else PathFinder.find_spec(name, [beside])
    loaded = None if beside is not None else sys.modules.get(parent)
    above = _spec(parent, beside) if loaded is None else None
    folders = getattr(loaded, "__path__", None) if above is None else above.submodule_search_locations
    return None if folders is None else PathFinder.find_spec(name, list(folders))


def _called(thing: Any) -> list[Module]:
    """Return the modules whose code is called. Raises UnknownCode for what is not written in Python."""
    if isinstance(thing, partial):
        return _called(thing.func)
    if isinstance(thing, MethodType):
        return _called(thing.__func__)
    if not isinstance(thing, type) and getattr_static(thing, "__wrapped__", None) is not None:
        outer = [module_of(thing)] if isinstance(thing, FunctionType) else []
        return [*outer, *_called(thing.__wrapped__)]
    module = module_of(thing)
    is_told = isinstance(thing, FunctionType | type) or module.owner == "own"
    if not is_told and not isinstance(getattr_static(type(thing), "__call__", None), FunctionType):
        raise UnknownCode(f"{type(thing).__qualname__} is not written in Python")
    return [module]


def _version_of(top: str) -> str | None:
    """Return the version of the distribution that a module is installed from, None where there is none.

    Where distribution and module differ in name, `<distribution> <version>`, or several of them.
    """
    try:
        return metadata.version(top)
    except metadata.PackageNotFoundError:
        found = sorted(set(_distributions().get(top, ())))
        return ", ".join(f"{each} {metadata.version(each)}" for each in found) or None


@cache
def _distributions() -> Mapping[str, Sequence[str]]:
    return metadata.packages_distributions()


def _name_of_file(path: str) -> str:
    """Return the path from the outermost package that holds it: the same wherever a project lies, and whatever folder
    pytest takes for its root, which without an ini file depends on the command line.
    """
    folder, name = os.path.split(path)
    while os.path.isfile(os.path.join(folder, "__init__.py")):
        folder, package = os.path.split(folder)
        name = f"{package}/{name}"
    return name


def _sum(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what was found by module; where that is much, a hash for each folder, so that an identity stays small."""
    if len(found) <= MOST_SHOWN:
        return found
    folders: dict[str, list[Any]] = {}
    for name in sorted(found):
        folders.setdefault(f"{name.rpartition('/')[0] or '.'}/", []).append([name, found[name]])
    return {folder: f"{len(each)} in all, {_sha256(canonical_json(each))}" for folder, each in folders.items()}


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
