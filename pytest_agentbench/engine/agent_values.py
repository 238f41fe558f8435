"""Read the plain values that an agent and its modules hold, as JSON that is equal in all processes.

Plain values are numbers, texts, paths, enum members, containers of them, dataclasses and pydantic models. All other
objects are left out. The user's code does not run. Secrets and temporary folders are replaced by fixed texts.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import Enum
from functools import partial
from inspect import getattr_static
from pathlib import Path, PurePath
from types import FunctionType, MemberDescriptorType, MethodType
from typing import Any

from pytest_agentbench.identity.fingerprints import canonical_json


class UnknownCode(Exception):
    """The sources or values of user code cannot be read; the text is the reason."""


NOTHING: Any = object()
"""The result for a value that is not plain."""

_CONTAINERS = (dict, list, tuple, set, frozenset)
_SECRET = re.compile(
    r"(^|[_.])(secrets?|passw(or)?ds?|passphrase|pwd|token|credentials?|auth|authorization|bearer|cookies?"
    r"|(api|access|private|secret|signing|encryption|subscription)_?key)$"
)
_MARK = re.compile(r"(^|_)(stop|start|end|begin|eos|bos|pad|unk|sep|cls|mask|special|image|think(ing)?)_token$")
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[-\s]+")
_PASSWORD = re.compile(r"(?<=://)[^/@\s]+@")
_TEMPORARY = re.compile(
    rf"(?:{re.escape(tempfile.gettempdir())}|{re.escape(os.path.realpath(tempfile.gettempdir()))})[/\\]"
    r"(?:pytest-of-[^/\s]+/pytest-\d+(?:/popen-gw\d+)?|tmp[a-z0-9_]{8})(?!\w)"
)
"""Folders with generated names: those of a pytest session and of `tempfile`."""


class Values:
    """Converts values to JSON. The text `<rootdir>` replaces the path of the checkout."""

    def __init__(self, rootdir: Path) -> None:
        roots = sorted({str(rootdir), str(rootdir.resolve())} - {os.sep}, key=len, reverse=True)
        self._root = re.compile(rf"(?<![\w.-])({'|'.join(map(re.escape, roots)) or '(?!)'})(?![\w.-])")

    def of_callable(self, thing: Any) -> dict[str, Any]:
        """Return a callable's name with its plain values: arguments, closure, defaults, attributes.

        Raises UnknownCode if values are nested too deeply.
        """
        kind = type(thing)
        if issubclass(kind, partial):
            return {"partial": self.of_callable(thing.func), **self.named({"args": thing.args, **thing.keywords})}
        if kind is MethodType:
            return {"method": thing.__func__.__qualname__, "of": self.of_callable(thing.__self__)}
        if kind is FunctionType:
            shown = {"function": _name(thing), **self.named(_held_by_function(thing))}
        else:
            cls = thing if issubclass(kind, type) else kind
            shown = {"class": _name(cls), **self.named(_held_by_object(cls, thing))}
        wrapped = getattr_static(thing, "__wrapped__", None)
        if wrapped is None:
            return shown
        return {**shown, "wraps": self.of_callable(wrapped)}

    def of_module(self, namespace: Mapping[str, Any]) -> dict[str, Any]:
        """Return the variables of a module and of its classes. Functions do not count: the source defines them."""
        values = _without_code(namespace)
        for name, kind in namespace.items():
            if issubclass(type(kind), type) and kind.__module__ == namespace["__name__"] and not issubclass(kind, Enum):
                values |= {f"{name}.{variable}": value for variable, value in _without_code(vars(kind)).items()}
        return self.named(values)

    def named(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return plain values by name, without secrets; a long value as its SHA-256."""
        try:
            items = self._items(values)
        except RecursionError as error:
            raise UnknownCode("its values are nested too deeply, or in a circle") from error
        return {name: _shorten(value) for name, value in items.items()}

    def _items(self, values: Mapping[str, Any]) -> dict[str, Any]:
        items: dict[str, Any] = {}
        for name in sorted(values):
            value = values[name]
            if is_secret(name) and issubclass(type(value), (str, bytes, *_CONTAINERS)):
                items[self._text(name)] = "(a secret)"
            elif (plain := self.plain(value)) is not NOTHING:
                items[self._text(name)] = plain
        return items

    def plain(self, value: Any) -> Any:
        """Return a value as JSON, or NOTHING if it is not plain."""
        kind = type(value)
        if value is None or kind in (bool, int, float):
            return value
        if issubclass(kind, Enum):
            return [_name(kind), self.plain(value._value_)]
        if issubclass(kind, str):
            return self._text(str.__str__(value))
        if issubclass(kind, PurePath):
            return self._text(value.as_posix())
        if issubclass(kind, bytes):
            return f"sha256:{short_hash(value)}"
        if issubclass(kind, dict):
            return self._items({key if type(key) is str else repr(key): held for key, held in dict.items(value)})
        if issubclass(kind, _CONTAINERS):
            items = [item for item in (self.plain(held) for held in value) if item is not NOTHING]
            if issubclass(kind, (set, frozenset)):
                return sorted(items, key=canonical_json)
            return items
        if kind is FunctionType and value.__code__.co_filename.startswith("<"):
            raise UnknownCode(f"{value.__qualname__} has no source file")
        if kind is FunctionType or issubclass(kind, type):
            return _name(value)
        fields = getattr(kind, "__dataclass_fields__", None) or getattr(kind, "model_fields", None)
        if fields:
            return {"class": _name(kind), **self._items(_attributes(value, fields))}
        return NOTHING

    def _text(self, text: str) -> str:
        text = _PASSWORD.sub("(a secret)@", text)
        return _TEMPORARY.sub("<temporary>", self._root.sub("<rootdir>", text))


def is_secret(name: str) -> bool:
    """Return whether a variable of this name holds a secret: `api_key`, `authToken`; not `max_tokens`, `stop_token`."""
    words = _WORDS.sub("_", name).lower()
    return _SECRET.search(words) is not None and _MARK.search(words) is None


def is_scalar(value: Any) -> bool:
    """Return whether a value is None, a number or a text."""
    return value is None or type(value) in (bool, int, float, str)


def short_hash(data: bytes) -> str:
    """Return the first 16 hex digits of the SHA-256."""
    return hashlib.sha256(data).hexdigest()[:16]


def _held_by_function(function: FunctionType, outer: tuple[FunctionType, ...] = ()) -> dict[str, Any]:
    """Return the defaults, attributes and closure of a function and of the functions in its closure."""
    held: dict[str, Any] = {"defaults": function.__defaults__ or ()} | (function.__kwdefaults__ or {}) | vars(function)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # the cell is still empty
            held[name] = inner = cell.cell_contents
            if type(inner) is FunctionType and inner not in (function, *outer):
                inner_values = _held_by_function(inner, (function, *outer))
                held |= {f"{name}.{variable}": value for variable, value in inner_values.items()}
    return held


def _held_by_object(cls: type, value: Any) -> dict[str, Any]:
    held: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        held |= _without_code(vars(base))
    if cls is value:
        return held
    slots = [name for base in cls.__mro__ for name in vars(base) if type(vars(base)[name]) is MemberDescriptorType]
    with suppress(AttributeError):  # an object with slots only
        held |= object.__getattribute__(value, "__dict__")
    return held | _attributes(value, slots)


def _attributes(value: Any, names: Iterable[str]) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for name in names:
        with suppress(AttributeError):  # the slot is still empty
            attributes[name] = object.__getattribute__(value, name)
    return attributes


def _without_code(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in values.items()
        if not name.startswith("__") and not issubclass(type(value), (FunctionType, type))
    }


def _name(thing: Any) -> str:
    """Return the full name of a function or class; of a lambda with its line, because several may have one name."""
    line = f":{thing.__code__.co_firstlineno}" if thing.__qualname__.endswith("<lambda>") else ""
    return f"{thing.__module__}.{thing.__qualname__}{line}"


def _shorten(value: Any) -> Any:
    text = canonical_json(value)
    if len(text) <= 200:
        return value
    return f"sha256:{short_hash(text)}"
