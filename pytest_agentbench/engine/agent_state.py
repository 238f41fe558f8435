"""Read what the objects of agents hold, as JSON that is equal in all processes: the part of their code that no source
shows.

No code of theirs is run. Left out are addresses, the order of sets, texts of secrets, and what differs between two
sessions of one code: the folder of the checkout, and temporary folders.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import sysconfig
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache, lru_cache, partial
from inspect import getattr_static
from pathlib import Path, PurePath
from types import FunctionType, MappingProxyType, MemberDescriptorType, MethodType, ModuleType
from typing import Any
from uuid import UUID

from pytest_agentbench.identity.fingerprints import canonical_json

MOST, DEEPEST = 100_000, 100
"""How many values are looked at for one identity, and how deep they may lie in one another."""

_NEVER = frozenset({"pytest_agentbench", "pytest", "_pytest", "pluggy", "builtins"})
_STDLIB = tuple({os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib")})
_NAMESPACES = frozenset({"argparse", "collections", "configparser", "string", "types"})
"""Python's own modules whose classes are what their attributes are: `Namespace`, `UserDict`, `ConfigParser` ..."""

_AS_TEXT = (bool, int, complex, float, Decimal, date, time, timedelta, UUID, range)
_SEQUENCES = (list, tuple, deque, set, frozenset)
_SECRET = re.compile(
    r"(^|[_.])(secrets?|passw(or)?ds?|passphrase|pwd|token|credentials?|auth|authorization|bearer|cookies?"
    r"|(api|access|private|secret|signing|encryption|subscription)_?key)$"
)
_MARK = re.compile(r"(^|_)(stop|start|end|begin|eos|bos|pad|unk|sep|cls|mask|special|image|think(ing)?)_token$")
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[-\s]+")
_TEMPORARY = re.compile(
    rf"(?:{re.escape(tempfile.gettempdir())}|{re.escape(os.path.realpath(tempfile.gettempdir()))})[/\\]"
    r"(?:pytest-of-[^/\s]+/pytest-\d+(?:/popen-gw\d+)?|tmp[a-z0-9_]{8})(?!\w)"
)
"""Folders of a name that was made up: pytest's of a session, and those of `tempfile`."""

_PASSWORD = re.compile(r"(?<=://)[^/@\s]+@")


class UnknownCode(Exception):
    """Nobody can tell what code or which values an agent is made of; the text says why."""


@dataclass(frozen=True, slots=True)
class Module:
    """A module: its name, its file (None: it has none), and what it holds where it is loaded."""

    name: str
    file: str | None
    namespace: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)

    @property
    def owner(self) -> str:
        """Return `own` for the user's files, `installed` for a distribution's, `other` for Python's, pytest's, ours."""
        return _owner(self.name, self.file)

    @property
    def has_source(self) -> bool:
        """Return whether there is a file to read, as there is none of what `exec` made."""
        return self.file is not None and not self.file.startswith("<")


class State:
    """Describes the objects of one agent. `modules` are those that functions, classes and objects led to."""

    def __init__(self, rootdir: Path) -> None:
        self.modules: dict[Module, None] = {}
        self._root = _pattern_of(rootdir)
        self._known: dict[int, tuple[object, Any]] = {}
        self._count = self._depth = 0

    def of(self, value: Any) -> Any:
        """Return `value` as JSON. Raises UnknownCode for more than MOST values, or some that lie too deep."""
        self._count += 1
        if self._count > MOST:
            raise UnknownCode(f"it holds more than {MOST:,} values")
        kind = type(value)
        if value is None or kind in (bool, int, float):
            return value
        if kind is str:
            return self._text(value)
        if id(value) not in self._known:
            if self._depth == DEEPEST:
                raise UnknownCode(f"what it holds lies more than {DEEPEST} deep")
            self._known[id(value)] = (value, "(itself)")
            self._depth += 1
            told = self._data(kind, value)
            if told is None:
                told = self._code(kind, value)
            elif (further := _put_on(value)) and not issubclass(kind, Enum):
                told = {"class": _name(kind), "is": told, **self.named(further)}
            self._known[id(value)] = (value, told)
            self._depth -= 1
        return self._known[id(value)][1]

    def named(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """Return values by name, without the texts of secrets; a long one as its SHA-256."""
        return {name: _shorten(self._unless_secret(name, found[name])) for name in sorted(found)}

    def _unless_secret(self, name: str, value: Any) -> Any:
        holds_text = issubclass(type(value), (str, bytes, dict, *_SEQUENCES))
        return "(a secret)" if holds_text and is_secret(name) else self.of(value)

    def _text(self, text: str) -> str:
        text = _PASSWORD.sub("(a secret)@", text)
        return _TEMPORARY.sub("<temporary>", self._root.sub("<rootdir>", text))

    def _data(self, kind: type, value: Any) -> Any:
        """Return what data hold, None for what is none."""
        if issubclass(kind, Enum):
            return [f"{_name(kind)}.{value._name_}", self.of(value._value_)]
        if issubclass(kind, str | PurePath):
            return self._text(str.__str__(value) if issubclass(kind, str) else value.as_posix())
        if issubclass(kind, re.Pattern):
            return [str(value.pattern), value.flags]
        if issubclass(kind, dict | MappingProxyType):
            return self._mapping(dict(dict.items(value) if issubclass(kind, dict) else value))
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return self._mapping(dict(zip(kind._fields, value, strict=False)))
        for base in (each for each in _SEQUENCES if issubclass(kind, each)):
            told = [self.of(each) for each in base.__iter__(value)]
            return sorted(told, key=canonical_json) if base in (set, frozenset) else told
        if _is_number(kind) or _is_url(kind):
            return self._text(str(value))
        if _module_of_class(kind).owner == "own":
            return None
        with suppress(TypeError, ValueError, BufferError), memoryview(value) as view:  # bytes, arrays
            return {"bytes": _sha256(view.tobytes()), "shape": [view.format, *(view.shape or ())]}
        return None

    def _mapping(self, found: Mapping[Any, Any]) -> Any:
        if all(issubclass(type(key), str) for key in found):
            return {self._text(key): self._unless_secret(key, found[key]) for key in sorted(found)}
        return sorted(([self.of(key), self.of(each)] for key, each in found.items()), key=canonical_json)

    def _code(self, kind: type, value: Any) -> dict[str, Any]:
        """Return the name of what is no data, with what a function was made with, or what an object holds."""
        if issubclass(kind, ModuleType):
            self.modules[module_of_names(vars(value))] = None
            return {"module": value.__name__}
        if kind is FunctionType:
            return self._function(value)
        if kind is MethodType:
            return {"method": self.of(value.__func__), "of": self.of(value.__self__)}
        if issubclass(kind, partial):
            given = {"args": _shorten(self.of(value.args)), "keywords": self.named(value.keywords)}
            return {"partial": self.of(value.func), **given}
        cls = value if issubclass(kind, type) else kind
        self.modules |= dict.fromkeys(map(_module_of_class, cls.__mro__))
        if cls is value:
            return {"class": _name(cls)}
        found = {"class": _name(kind), **self.named(_attributes(kind, value))}
        if getattr_static(value, "__wrapped__", None) is not None:
            found["wraps"] = self.of(value.__wrapped__)
        return found

    def _function(self, function: FunctionType) -> dict[str, Any]:
        code, module = function.__code__, module_of(function)
        if module.owner == "own" and not module.has_source:
            raise UnknownCode(f"there is no source to read of {function.__qualname__}")
        self.modules[module] = None
        given = function.__defaults__ or ()
        names = code.co_varnames[code.co_argcount - len(given) : code.co_argcount]
        parts = {
            "closure": dict(_cells(function)),
            "defaults": {**dict(zip(names, given, strict=True)), **(function.__kwdefaults__ or {})},
            "attributes": vars(function),
        }
        found = {"function": f"{function.__module__}.{function.__qualname__}", "at": _position(function)}
        return found | {name: self.named(part) for name, part in parts.items() if part}


def data_of_module(module: Module, imported: frozenset[str]) -> Iterator[tuple[str, Any]]:
    """Yield the data and objects that a module and its classes hold; of what is `imported` the data alone."""
    for name, value in (module.namespace or {}).items():
        if name.startswith("__"):
            continue
        if issubclass(type(value), type) and value.__module__ == module.name and not issubclass(value, Enum):
            yield from ((f"{name}.{each}", held) for each, held in _class_data(value))
        elif _is_data(value) and is_plain(value, _is_nothing if name in imported else _is_telling):
            yield name, value


def _is_nothing(value: Any) -> bool:
    return False


def _is_telling(value: Any) -> bool:
    return module_of(value).owner != "other" or _is_namespace(value)


def is_plain(value: Any, also: Callable[[Any], bool] = _is_nothing, depth: int = 4) -> bool:
    """Return whether it is a number, a text or the like, what `also` holds of, or a container of nothing else."""
    kind = type(value)
    if issubclass(kind, dict):
        inside = [*dict.keys(value), *dict.values(value)]
    elif issubclass(kind, _SEQUENCES):
        inside = list(value)
    else:
        return issubclass(kind, (type(None), str, bytes, PurePath, Enum)) or _is_number(kind) or also(value)
    return depth > 0 and all(is_plain(each, also, depth - 1) for each in inside)


def _is_number(kind: type) -> bool:
    """Return whether values of the type are told by their texts: numbers, times and the like."""
    # Importing fractions takes 4 ms, which every session with an agent would pay; whoever has one has imported it
    fractions = sys.modules.get("fractions")
    return issubclass(kind, _AS_TEXT) or (fractions is not None and issubclass(kind, fractions.Fraction))


def is_secret(name: str) -> bool:
    """Return whether what has this name is a secret: `api_key`, `authToken`; not `max_tokens`, `stop_token`, `key`."""
    words = _WORDS.sub("_", name).lower()
    return _SECRET.search(words) is not None and _MARK.search(words) is None


def module_of(thing: Any) -> Module:
    """Return the module that defines a function or a class, or the class of an object."""
    kind = type(thing)
    if issubclass(kind, partial):
        return module_of(thing.func)
    if kind is MethodType:
        return module_of(thing.__func__)
    if kind is not FunctionType:
        return _module_of_class(thing if issubclass(kind, type) else kind)
    module, file = module_of_names(thing.__globals__), thing.__code__.co_filename
    if file == module.file or module.owner != "own":
        return module
    return Module(module.name, file, module.namespace)  # other text was run in it


def module_of_names(namespace: Mapping[str, Any]) -> Module:
    """Return the module that has this namespace."""
    name, file = namespace.get("__name__", "?"), namespace.get("__file__")
    return Module(str(name), file if isinstance(file, str) else None, namespace)


def _module_of_class(kind: type) -> Module:
    """Return the module that a class is defined in, also where another of its name was imported since (`conftest`)."""
    for each in vars(kind).values():
        function = each.__func__ if type(each) in (staticmethod, classmethod) else each
        if type(function) is FunctionType and function.__globals__.get("__name__") == kind.__module__:
            return module_of_names(function.__globals__)
    module = sys.modules.get(kind.__module__)
    return Module(kind.__module__, None) if module is None else module_of_names(vars(module))


@lru_cache(maxsize=4096)
def _owner(name: str, file: str | None) -> str:
    top = name.partition(".")[0]
    if top in _NEVER:
        return "other"
    if file is None or not os.path.isabs(file):
        return "other" if top in sys.stdlib_module_names else "own"
    path = os.path.realpath(file)
    if not {"site-packages", "dist-packages"}.isdisjoint(path.split(os.sep)):
        return "installed"
    return "other" if path.startswith(_STDLIB) else "own"


def _attributes(kind: type, value: Any) -> dict[str, Any]:
    """Return all that the user's own object holds; of an installed library's what is public and plain, or the user's
    own, URLs, and all that is public of a dataclass or a model; nothing of Python's, but for namespaces.
    """
    found: dict[str, Any] = {}
    for each in reversed(kind.__mro__):
        if _module_of_class(each).owner == "own":
            found |= dict(_class_data(each))
        for slot in [held for held in vars(each).values() if isinstance(held, MemberDescriptorType)]:
            with suppress(AttributeError):  # nothing is in it yet
                found[slot.__name__] = slot.__get__(value)
    found |= _put_on(value)
    owner = _module_of_class(kind).owner
    call = vars(kind).get("__call__")
    if owner == "own" and type(call) is FunctionType and (call.__closure__ or call.__defaults__ or call.__kwdefaults__):
        found["__call__"] = call  # of a class that a function has made, or with defaults that are computed
    if owner == "own" or _is_namespace(value):
        return found
    is_record = is_dataclass(kind) or any(hasattr(kind, name) for name in ("__attrs_attrs__", "model_fields"))
    return {name: each for name, each in found.items() if owner == "installed" and _tells(name, each, is_record)}


def _put_on(value: Any) -> dict[str, Any]:
    with suppress(AttributeError):  # it has slots alone
        return dict(object.__getattribute__(value, "__dict__"))
    return {}


def _tells(name: str, value: Any, is_record: bool) -> bool:
    if name.startswith("_"):
        return _is_url(type(value))
    return is_record or is_plain(value, lambda each: _is_url(type(each)) or module_of(each).owner == "own")


def _is_namespace(value: Any) -> bool:
    return type(value).__module__ in _NAMESPACES


def _is_url(kind: type) -> bool:
    return kind.__name__.lower().endswith("url") and _module_of_class(kind).owner == "installed"


def _class_data(kind: type) -> Iterator[tuple[str, Any]]:
    return (
        (name, each) for name, each in vars(kind).items() if not name.startswith(("__", "_abc_")) and _is_data(each)
    )


def _is_data(value: Any) -> bool:
    """Return whether it is neither a module, a class, a function nor a property: these are told by their source."""
    kind = type(value)
    return kind is partial or not (issubclass(kind, type | ModuleType) or hasattr(kind, "__get__"))


def _cells(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # nothing is in it yet
            yield name, cell.cell_contents


def _position(function: FunctionType) -> str:
    """Return its line; of a lambda, the columns too, for there may be several in a line."""
    code = function.__code__
    spans = [(start, end) for _, _, start, end in code.co_positions() if start is not None and end]
    if code.co_name != "<lambda>" or not spans:
        return str(code.co_firstlineno)
    return f"{code.co_firstlineno}:{min(start for start, _ in spans)}-{max(end for _, end in spans)}"


@cache
def _pattern_of(rootdir: Path) -> re.Pattern[str]:
    roots = sorted({str(rootdir), str(rootdir.resolve())} - {os.sep}, key=len, reverse=True)
    return re.compile(rf"(?<![\w.-])({'|'.join(map(re.escape, roots)) or '(?!)'})(?![\w.-])")


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _shorten(told: Any) -> Any:
    text = canonical_json(told)
    return told if len(text) <= 200 else f"sha256:{_sha256(text)}"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
