"""Compute the identity of user code: agents, and the checks, metrics and tools that plugins add.

An identity covers the sources of the user's modules, the plain values that the code and these modules hold, and the
versions of the imported packages. It is equal in all processes and on all machines that have the same code.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from inspect import getattr_static
from itertools import accumulate, takewhile
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any

from pytest_agentbench.bounded.files import read_file
from pytest_agentbench.engine.agent_values import UnknownCode, Values, is_scalar, short_hash
from pytest_agentbench.identity.fingerprints import canonical_json, plain

Shown = Mapping[str, Any]
"""An identity as JSON, a part of a fingerprint."""

Import = tuple[bool, int, str, tuple[str, ...]]
"""Whether the import is inside a function or for type checkers, its leading dots, dotted name, and imported names."""

MOST_SHOWN = 100
"""Maximum modules, and values of modules, that an identity lists one by one; more are hashed together."""

_OURS = frozenset({"pytest_agentbench", "pytest", "_pytest", "pluggy"})
_STDLIB = tuple({os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib")})
_IMPORTED_BY_NAME = re.compile(rb"""\bimport_module\(\s*["']([A-Za-z_][\w.]*)["']""", re.ASCII)


@dataclass(frozen=True, slots=True)
class Code:
    """The identity of a piece of code, `shown` as JSON. It holds as long as the files `late_files` do not change.

    These are the files that code may still import, or another process may run, while the session runs. A module that
    is loaded cannot change any more.
    """

    shown: Shown
    late_files: tuple[str, ...] = ()


class CodeReader:
    """Reads the identities of code in one session.

    `rootdir` is left out of paths that the code holds. `began` is the session's start in ns since the epoch. With
    `masks_parameters` the sources are read without the parameters of fixtures, whose values count by themselves.
    """

    def __init__(self, rootdir: Path, began: int, *, masks_parameters: bool = False) -> None:
        self.rootdir, self.began, self._masks_parameters = rootdir, began, masks_parameters
        self._values = Values(rootdir)
        self._sources: dict[str, tuple[str, tuple[Import, ...]]] = {}
        self._followed: dict[frozenset[str], Code] = {}

    def for_arms(self) -> CodeReader:
        """Return a reader for agents that differ in their fixtures' parameters: an edit of one changes only its own."""
        return CodeReader(self.rootdir, self.began, masks_parameters=True)

    def read(
        self,
        thing: Any,
        made_by: Iterable[Callable[..., Any]] = (),
        params: Mapping[str, tuple[Any, int]] | None = None,
    ) -> Code:
        """Return the identity of a callable, of the fixture functions that made it, and of their parameters.

        `params` maps a fixture's name to `(parameter, its place)`. Raises UnknownCode if there is no source.
        """
        makers = [maker for maker in made_by if any(_owner_of(module) != "other" for module in _modules_of(maker))]
        modules = [module for called in (thing, *makers) for module in _modules_of(called)]
        shown: dict[str, Any] = {"callable": self._values.of_callable(thing)}
        if makers:
            shown["made_by"] = [self._values.of_callable(maker) for maker in makers]
        if params:
            # Objects of a parametrised fixture may have equal values: their places in the list distinguish them
            places = {name: value if is_scalar(value) else [value, at] for name, (value, at) in params.items()}
            shown["params"] = self._values.named(places)
        own = {_file_of(module): module for module in modules if _owner_of(module) == "own"}
        packages = {module["__name__"].partition(".")[0] for module in modules if _owner_of(module) == "installed"}
        key = frozenset(own) | packages
        if key not in self._followed:
            self._followed[key] = self._follow(own, packages)
        code = self._followed[key]
        return Code(plain({**shown, **code.shown}), code.late_files)

    def read_file(self, file: Path) -> Code:
        """Return the identity of a Python file that another process runs. It may import from its own folder."""
        return self._follow({}, later=[str(file)], beside=str(file.parent))

    def read_module(self, name: str) -> Code:
        """Return the identity of a module that another process imports."""
        files = [spec.origin for spec in _specs((True, 0, name, ()), "", "") if spec.has_location and spec.origin]
        if files:
            return self._follow({}, later=files)
        return Code({"missing": name})

    def require_unchanged(self, file: str) -> None:
        """Raise UnknownCode if the file was changed since the session began: older code may be loaded."""
        try:
            changed = os.stat(file).st_mtime_ns > self.began
        except OSError as error:
            raise UnknownCode(f"{file} cannot be read ({error.strerror})") from error
        if changed:
            raise UnknownCode(f"{_name_of_file(file)} was changed while the session ran")

    def _follow(
        self,
        start: Mapping[str, Mapping[str, Any]],
        packages: Iterable[str] = (),
        later: Iterable[str] = (),
        beside: str = "",
    ) -> Code:
        """Read the user's files and all that they import. `start` maps loaded files to their variables.

        Files that are certainly loaded come first, and the values of their variables count. A module that a function
        imports may be loaded or not, depending on earlier runs. Only its source counts, as that of files in `later`.
        """
        digests: dict[str, str] = {}
        values: dict[str, Any] = {}
        versions = {name: _version_of(name) for name in packages}
        namespaces = start
        seen: set[str] = set()
        loaded, late, late_files = sorted(start), list(later), []
        while loaded or late:
            is_loaded, file = bool(loaded), (loaded or late).pop()
            if file in seen:
                continue
            seen.add(file)
            name, (digest, imports) = _name_of_file(file), self._source(file)
            # Two conftest.py may have the same name
            digests[name] = "+".join(sorted({digest, *filter(None, digests.get(name, "").split("+"))}))
            if is_loaded and file not in namespaces:  # most agents are one conftest.py, which `start` has
                namespaces = {**_loaded_files(), **start}
            is_loaded = is_loaded and file in namespaces
            if is_loaded:
                held = self._values.of_module(namespaces[file])
                values |= {f"{name}: {variable}": value for variable, value in held.items()}
                loaded.extend(_package_files(file))
            else:
                late_files.append(file)
                late.extend(_package_files(file))
            for wanted in imports:
                for spec in _specs(wanted, file, beside):
                    owner = _owner(spec.name, spec.origin)
                    if owner == "installed" and spec.name not in versions:
                        versions[spec.name] = _version_of(spec.name)
                    elif owner == "own" and spec.has_location and spec.origin:
                        files = loaded if is_loaded and not wanted[0] else late
                        files.append(spec.origin)
        shown = {"modules": _limited(digests), "values": _limited(values), "packages": versions}
        return Code(plain({name: part for name, part in shown.items() if part}), tuple(late_files))

    def _source(self, file: str) -> tuple[str, tuple[Import, ...]]:
        """Return a file's SHA-256 (16 hex digits) and its imports. Raises UnknownCode if it was changed."""
        if file not in self._sources:
            self.require_unchanged(file)
            data = read_file(file)
            if self._masks_parameters:
                data = mask_parameters(data)
            self._sources[file] = short_hash(data), tuple(find_imports(data)) if file.endswith(".py") else ()
        return self._sources[file]


def find_imports(source: bytes) -> Iterator[Import]:
    """Yield all imports of a module's source, those in functions too; none if it is not valid Python."""
    with suppress(SyntaxError, ValueError, RecursionError):  # Python cannot load it either
        yield from _imports_below(ast.parse(source), late=False)
    yield from ((True, 0, name.decode(), ()) for name in _IMPORTED_BY_NAME.findall(source))


def mask_parameters(source: bytes) -> bytes:
    """Return a module's source without the values of `params` and `ids` of fixtures' decorators."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return source
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    calls = (each for node in functions for each in node.decorator_list if isinstance(each, ast.Call))
    values = [
        keyword.value
        for call in calls
        if getattr(call.func, "attr", getattr(call.func, "id", None)) == "fixture"
        for keyword in call.keywords
        if keyword.arg in ("params", "ids")
    ]
    starts = [0, *accumulate(map(len, source.splitlines(keepends=True)))]
    for value in sorted(values, key=lambda value: (value.lineno, value.col_offset), reverse=True):
        begin = starts[value.lineno - 1] + value.col_offset
        end = starts[(value.end_lineno or value.lineno) - 1] + (value.end_col_offset or value.col_offset)
        source = source[:begin] + source[end:]
    return source


def _imports_below(node: ast.AST, late: bool) -> Iterator[Import]:
    test = getattr(node, "test", None)
    for_types = getattr(test, "attr", getattr(test, "id", None)) == "TYPE_CHECKING"
    late = late or for_types or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((late, 0, alias.name, ()) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield late, child.level, child.module or "", tuple(alias.name for alias in child.names)
        elif not isinstance(child, ast.expr):
            yield from _imports_below(child, late)


def _specs(wanted: Import, importer: str, beside: str) -> Iterator[ModuleSpec]:
    """Yield the specs of an import: each package of the dotted name, and imported names that are modules.

    No code of the modules runs. A module in the folder `beside` takes precedence over an own module of the same name.
    """
    _, level, dotted, names = wanted
    folders = [str(Path(importer).parents[level - 1])] if level else None
    for part in dotted.split(".") if dotted else ():
        spec = _top_spec(part, beside) if folders is None else PathFinder.find_spec(part, folders)
        if spec is None:
            return
        yield spec
        folders = list(spec.submodule_search_locations or ())
        if _owner(spec.name, spec.origin) != "own":
            return
    found = (PathFinder.find_spec(name, folders) for name in names if folders)
    yield from (spec for spec in found if spec is not None)


def _top_spec(name: str, beside: str) -> ModuleSpec | None:
    spec = None
    with suppress(ValueError):  # a loaded module without a spec, such as `__main__`
        spec = importlib.util.find_spec(name)
    if beside and (spec is None or _owner(spec.name, spec.origin) == "own"):
        return PathFinder.find_spec(name, [beside]) or spec
    return spec


def _loaded_files() -> dict[str, Mapping[str, Any]]:
    modules = [vars(module) for module in list(sys.modules.values()) if isinstance(module, ModuleType)]
    return {file: names for names in modules if isinstance(file := names.get("__file__"), str)}


def _has_methods(cls: type) -> bool:
    """Return whether a class or one of its bases has a method that is written in Python."""
    return any(isinstance(value, FunctionType) for base in cls.__mro__ for value in vars(base).values())


def _modules_of(thing: Any) -> list[Mapping[str, Any]]:
    """Return the namespaces of the modules that define a callable, its class and the functions that it wraps.

    Raises UnknownCode if the callable is not written in Python, or if its text was made by `eval` or `exec`.
    """
    if isinstance(thing, partial):
        return _modules_of(thing.func)
    if isinstance(thing, MethodType):
        return [*_modules_of_class(type(thing.__self__)), *_modules_of(thing.__func__)]
    if isinstance(thing, FunctionType):
        if thing.__code__.co_filename.startswith("<"):
            raise UnknownCode(f"{thing.__qualname__} has no source file")
        modules: list[Mapping[str, Any]] = [thing.__globals__]
    elif isinstance(thing, type):
        modules = _modules_of_class(thing)
    else:
        call = getattr_static(type(thing), "__call__", None)
        is_python = isinstance(call, FunctionType) or _has_methods(type(thing))  # a grader has no __call__
        if not is_python and getattr_static(thing, "__wrapped__", None) is None:
            raise UnknownCode(f"{type(thing).__qualname__} is not written in Python")
        modules = _modules_of_class(type(thing))
        if isinstance(call, FunctionType):
            modules += _modules_of(call)
    wrapped = getattr_static(thing, "__wrapped__", None)
    if wrapped is None:
        return modules
    return [*modules, *_modules_of(wrapped)]


def _modules_of_class(kind: type) -> list[Mapping[str, Any]]:
    modules: list[Mapping[str, Any]] = []
    for base in kind.__mro__:
        # By its functions first: another conftest.py may have taken the name `conftest` in sys.modules since
        globals_of_functions = (held.__globals__ for held in vars(base).values() if isinstance(held, FunctionType))
        loaded = sys.modules.get(base.__module__)
        found = [names for names in globals_of_functions if names.get("__name__") == base.__module__]
        modules += found[:1] or ([] if loaded is None else [vars(loaded)])
    return modules


def _file_of(namespace: Mapping[str, Any]) -> str:
    file = namespace.get("__file__")
    if not isinstance(file, str):
        raise UnknownCode(f"{namespace.get('__name__')} has no source file")
    return file


def _owner_of(namespace: Mapping[str, Any]) -> str:
    file = namespace.get("__file__")
    return _owner(str(namespace.get("__name__")), file if isinstance(file, str) else None)


@cache
def _owner(name: str, file: str | None) -> str:
    """Return `own` for the user's files, `installed` for a distribution's, `other` for Python's, pytest's, ours."""
    top = name.partition(".")[0]
    if top in _OURS:
        return "other"
    if file is None or not os.path.isabs(file):
        if top in sys.stdlib_module_names:
            return "other"
        return "own"
    path = os.path.realpath(file)
    if not {"site-packages", "dist-packages"}.isdisjoint(path.split(os.sep)):
        return "installed"
    if path.startswith(_STDLIB):
        return "other"
    return "own"


def _version_of(top: str) -> str | None:
    """Return the version of the distribution that installed a module, or None if there is none.

    If distribution and module differ in name, return `<distribution> <version>`, or several of them.
    """
    try:
        return metadata.version(top)
    except metadata.PackageNotFoundError:
        names = sorted(set(_distributions().get(top, ())))
        return ", ".join(f"{name} {metadata.version(name)}" for name in names) or None


@cache
def _distributions() -> Mapping[str, Sequence[str]]:
    return metadata.packages_distributions()


def _package_files(file: str) -> list[str]:
    """Return the `__init__.py` of each package that holds the file, from the inside."""
    files = [os.path.join(folder, "__init__.py") for folder in map(str, Path(file).parents)]
    return list(takewhile(os.path.isfile, files))


def _name_of_file(file: str) -> str:
    """Return the path from the outermost package that holds the file.

    The path from rootdir would not do: without an ini file, pytest's rootdir depends on the command line.
    """
    return "/".join(Path(file).parts[-1 - len(_package_files(file)) :])


def _limited(parts: Mapping[str, Any]) -> Any:
    """Return parts of an identity by name, or one hash of all if they are many, so that identities stay small."""
    if len(parts) <= MOST_SHOWN:
        return parts
    return f"{len(parts)} in all, sha256:{short_hash(canonical_json(parts))}"
