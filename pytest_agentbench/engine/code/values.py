"""What objects hold, as JSON that is equal in all processes: no addresses, no order of sets, no folder of a checkout.

Secrets are left out: texts whose name says that they are one, and what of other people's private attributes may be one.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import inspect
import re
import tempfile
from collections import ChainMap, UserDict, UserList, UserString
from collections.abc import Callable, Iterable, Iterator, Mapping
from configparser import RawConfigParser, SectionProxy
from datetime import datetime
from enum import Enum
from pathlib import Path, PurePath
from string import Template
from time import time_ns
from types import BuiltinFunctionType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType, SimpleNamespace
from typing import Any

from pytest_agentbench.engine.code.members import (
    AS_TEXT,
    SEQUENCES,
    attributes,
    class_data,
    is_record,
    is_secret,
    is_value,
    put_on,
    telling,
    whose,
)
from pytest_agentbench.engine.code.places import Place, has_source, place_of, place_of_class, place_of_function
from pytest_agentbench.store.fingerprints import canonical_json

MOST, DEEPEST = 100_000, 100
"""How many values are looked at for one identity, and how deep they may lie in one another."""

MOST_BYTES = 256 * 1024 * 1024
"""How large an array may be."""

_LONGEST = 200
_NAMESPACES = (SimpleNamespace, argparse.Namespace, Template, ChainMap, UserDict, UserList, UserString)
"""Classes of Python's own whose attributes are what they are."""

_PASSWORD = re.compile(r"(?<=://)[^/@\s]+@")
_NOW = "(since the session began)"
"""Stands for a time that nobody can have chosen, as it is that of the session itself."""


class Untold(Exception):
    """There is no telling what code or which values an agent is made of; the text says why."""


class Values:
    """Describes objects. `reached` are the modules that functions, classes and objects led to.

    `rootdir` is left out of paths and texts, and so are temporary folders; of times, those from `began` on, in ns since
    the epoch.
    """

    def __init__(self, rootdir: Path, began: float = float("inf")) -> None:
        self.reached: dict[Place, None] = {}
        self.began = began
        roots = {form for root in (rootdir, rootdir.resolve()) for form in (str(root), root.as_posix())}
        self._roots = sorted(roots - {"/"}, key=len, reverse=True)
        self._known: dict[int, tuple[object, Any]] = {}
        self._count = self._depth = 0

    def of(self, value: Any) -> Any:
        """`value` as JSON. Raises Untold for more than MOST values, or some that lie too deep."""
        self._count += 1
        if self._count > MOST:
            raise Untold(f"it holds more than {MOST:,} values")
        kind = type(value)
        if value is None or kind is bool or kind is int:
            return value
        if kind is float:
            return _NOW if self._is_of_now(value) else value
        if kind is str:
            return self.text(value)
        known = self._known.get(id(value))
        if known is not None:
            return known[1]
        if self._depth == DEEPEST:
            raise Untold(f"what it holds lies more than {DEEPEST} deep")
        self._known[id(value)] = (value, "(itself)")
        self._depth += 1
        described = self._described(kind, value)
        self._depth -= 1
        self._known[id(value)] = (value, described)
        return described

    def named(self, items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        """Values by name, without the texts of secrets; a long one as its SHA-256."""
        found = {}
        for name, value in sorted(items, key=lambda item: item[0]):
            found[name] = _short(self._unless_secret(name, value))
        return found

    def mapping(self, items: Iterable[tuple[Any, Any]]) -> Any:
        """A mapping, in an order of its own."""
        pairs = list(items)
        if all(issubclass(type(key), str) for key, _ in pairs):
            return {self.text(key): self._unless_secret(key, each) for key, each in sorted(pairs, key=lambda p: p[0])}
        return sorted(([self.of(key), self.of(each)] for key, each in pairs), key=canonical_json)

    def text(self, text: str) -> str:
        """A text without passwords in URLs and without folders that are others elsewhere."""
        text = str.__str__(text)
        if "://" in text:
            text = _PASSWORD.sub("(a secret)@", text)
        for root in self._roots:
            if root in text:
                text = re.sub(rf"(?<![\w.-]){re.escape(root)}(?![\w.-])", "<rootdir>", text)
        return _temporary().sub("<temporary>", text)

    def when(self, value: Any) -> str:
        """A time or a number as its text."""
        with contextlib.suppress(OverflowError, OSError, ValueError):  # no time that clocks have
            if issubclass(type(value), datetime) and self._is_of_now(datetime.timestamp(value)):
                return _NOW
        return str(value)

    def _is_of_now(self, seconds: float) -> bool:
        return self.began <= seconds * 1e9 <= time_ns()

    def _unless_secret(self, name: str, value: Any) -> Any:
        holds_text = issubclass(type(value), (str, bytes, dict, *SEQUENCES))
        return "(a secret)" if holds_text and is_secret(name) else self.of(value)

    def _described(self, kind: type, value: Any) -> Any:
        for base, describe in _DATA:
            if issubclass(kind, base):
                return self._with_attributes(kind, value, describe(self, value))
        for base, describe in _CODE:
            if issubclass(kind, base):
                return describe(self, value)
        return self._object(kind, value)

    def _with_attributes(self, kind: type, value: Any, described: Any) -> Any:
        """A text, a list ... with what a class of its own has put on it."""
        if kind.__module__ == "builtins":
            return described
        self._reach_class(kind)
        further = {} if issubclass(kind, Enum) else put_on(value)
        return {"class": _name(kind), "is": described, **self.named(further.items())} if further else described

    def _object(self, kind: type, value: Any) -> dict[str, Any]:
        self._reach_class(kind)
        found: dict[str, Any] = {"class": _name(kind)}
        owner = whose(kind)
        if owner == "own" or issubclass(kind, _NAMESPACES):
            return found | self.named(attributes(value).items())
        if is_value(kind) and not is_record(kind) and (text := _text_of_value(value)) is not None:
            return found | {"text": _short(self.text(text))}
        if (array := _array(value)) is not None:
            found["array"] = array
        if inspect.getattr_static(value, "__wrapped__", None) is not None:
            found["wraps"] = self.of(value.__wrapped__)
        return found | self.named(telling(value)) if owner == "installed" else found

    def of_function(self, function: FunctionType) -> dict[str, Any]:
        """A function with what it was made with."""
        code, place = function.__code__, place_of_function(function)
        found: dict[str, Any] = {"function": f"{function.__module__}.{function.__qualname__}", "at": _position(code)}
        if has_source(place):
            self.reached[place] = None
        else:
            found["code"] = _sha256(canonical_json(_instructions(code)))
        if closure := dict(_cells(function)):
            found["closure"] = self.named(closure.items())
        if defaults := dict(_defaults(function)):
            found["defaults"] = self.named(defaults.items())
        return found | self._put_on(vars(function))

    def of_partial(self, value: functools.partial[Any]) -> dict[str, Any]:
        """What is called with what."""
        found = {"partial": self.of(value.func), "args": _short(self.of(value.args))}
        return found | {"keywords": self.named(value.keywords.items())} | self._put_on(vars(value))

    def of_class(self, kind: type) -> dict[str, Any]:
        """A class; one that a function has made with what it was made with."""
        self._reach_class(kind)
        made = "<locals>" in kind.__qualname__ and whose(kind) == "own"
        return {"class": _name(kind), **(self.named(class_data(kind).items()) if made else {})}

    def of_module(self, module: ModuleType) -> dict[str, Any]:
        """A module by its name: what it holds is looked at where modules are."""
        self.reached[place_of(vars(module))] = None
        return {"module": module.__name__}

    def _put_on(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes of a function, where it has any."""
        return {"attributes": self.named(found.items())} if found else {}

    def _reach_class(self, kind: type) -> None:
        for each in kind.__mro__:
            self.reached[place_of_class(each)] = None


def _sequence(values: Values, value: Any) -> Any:
    fields = getattr(type(value), "_fields", None)
    if issubclass(type(value), tuple) and fields is not None:
        return values.mapping(zip(fields, value, strict=False))
    return [values.of(each) for each in value]


def _sections(values: Values, config: RawConfigParser) -> Any:
    names = (config.default_section, *config.sections())
    return values.mapping((name, dict(config.items(name, raw=True))) for name in names)


_Form = tuple[type | tuple[type, ...], Callable[[Values, Any], Any]]

_DATA: tuple[_Form, ...] = (
    (Enum, lambda values, value: [f"{_name(type(value))}.{value._name_}", values.of(value._value_)]),
    (str, Values.text),
    ((bytes, bytearray), lambda values, value: {"bytes": _sha256(bytes(value))}),
    (dict, lambda values, value: values.mapping(dict.items(value))),
    (MappingProxyType, lambda values, value: values.mapping(value.items())),
    ((set, frozenset), lambda values, value: sorted(map(values.of, value), key=canonical_json)),
    (SEQUENCES, _sequence),
    (PurePath, lambda values, value: values.text(value.as_posix())),
    (AS_TEXT, Values.when),
    (re.Pattern, lambda values, value: [str(value.pattern), int(value.flags)]),
    (RawConfigParser, _sections),
    (SectionProxy, lambda values, value: values.mapping(value.parser.items(value.name, raw=True))),
)
_CODE: tuple[_Form, ...] = (
    (ModuleType, Values.of_module),
    (type, Values.of_class),
    (FunctionType, Values.of_function),
    (MethodType, lambda values, value: {"method": values.of(value.__func__), "of": values.of(value.__self__)}),
    (functools.partial, Values.of_partial),
    (BuiltinFunctionType, lambda values, value: {"function": value.__qualname__, "of": values.of(value.__self__)}),
)


def _text_of_value(value: Any) -> str | None:
    """What it says of itself; None where that is an address, or it stands for another that is not there yet."""
    with contextlib.suppress(Exception):
        text = str(value)
        return None if str(id(value)) in text or f"{id(value):x}" in text.lower() else text
    return None


def _array(value: Any) -> str | None:
    """The type, the shape and the bytes of what is an array. Raises Untold for a large one."""
    try:
        view = memoryview(value)
    except (TypeError, ValueError, BufferError):
        return None
    with view:
        if view.nbytes > MOST_BYTES:
            raise Untold(f"it holds an array of more than {MOST_BYTES // 1024**2} MB")
        return f"{view.format} {list(view.shape or ())} {_sha256(view.tobytes())}"


@functools.cache
def _temporary() -> re.Pattern[str]:
    """Folders of a name that was made up: pytest's of a session, and those of `tempfile`."""
    roots = {tempfile.gettempdir(), str(Path(tempfile.gettempdir()).resolve())}
    made_up = r"(pytest-of-[^/\s]+/pytest-\d+(/popen-gw\d+)?|tmp[a-z0-9_]{8})(?!\w)"
    return re.compile(f"({'|'.join(map(re.escape, roots))})[/\\\\]{made_up}")


def _cells(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # nothing is in it yet
            continue


def _defaults(function: FunctionType) -> Iterator[tuple[str, Any]]:
    code, values = function.__code__, function.__defaults__ or ()
    positional = code.co_varnames[: code.co_argcount]
    yield from zip(positional[len(positional) - len(values) :], values, strict=True)
    yield from (function.__kwdefaults__ or {}).items()


def _position(code: CodeType) -> str:
    """Its line; of a lambda, the columns too, for there may be several in a line."""
    line = str(code.co_firstlineno)
    if code.co_name != "<lambda>":
        return line
    spans = [(start, end) for _, _, start, end in code.co_positions() if start is not None and end]
    return f"{line}:{min(start for start, _ in spans)}-{max(end for _, end in spans)}" if spans else line


def _instructions(code: CodeType) -> list[Any]:
    """What a function does that a program has written, such as a template's: there is no file to read."""
    names = [code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars]
    return [code.co_code.hex(), names, [_constant(each) for each in code.co_consts]]


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _instructions(value)
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _short(described: Any) -> Any:
    text = canonical_json(described)
    return described if len(text) <= _LONGEST else f"sha256:{_sha256(text)}"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
