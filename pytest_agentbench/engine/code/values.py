"""What objects hold, as JSON that is equal in all processes: no addresses, no order of sets, no folder of a checkout.

Secrets are left out: texts whose name says that they are one, and private attributes of other people's objects.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import hashlib
import inspect
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from numbers import Number
from pathlib import Path, PurePath
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any
from uuid import UUID

from pytest_agentbench.engine.code.places import Place, kind_of, place_of, place_of_class, place_of_function
from pytest_agentbench.store import canonical_json

MOST, DEEPEST = 100_000, 100
"""How many values are looked at for one identity, and how deep they may lie in one another."""

_LONGEST = 200
_SECRET = re.compile(
    r"(^|_)(secrets?|passw(or)?ds?|passphrase|pwd|token|credentials?|auth|authorization|bearer|cookies?"
    r"|(api|access|private|secret|signing|encryption|subscription)_?key)$"
)
_OF_TEXTS = re.compile(r"(^|_)(stop|start|end|begin|eos|bos|pad|unk|sep|cls|mask|special|image|think(ing)?)_token$")
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[-\s]+")
_AS_TEXT = (date, time, timedelta, Decimal, Fraction, UUID, range, Number)
_NAMESPACES = (SimpleNamespace, argparse.Namespace)


class Untold(Exception):
    """There is no telling what code or which values an agent is made of; the text says why."""


class Values:
    """Describes objects. `reached` are the modules that functions, classes and objects led to.

    `rootdir` is left out of paths and texts.
    """

    def __init__(self, rootdir: Path) -> None:
        self.reached: dict[Place, None] = {}
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
        if value is None or kind is bool or kind is int or kind is float:
            return value
        if isinstance(value, str) and not isinstance(value, Enum):
            return self._text(str.__str__(value))
        known = self._known.get(id(value))
        if known is not None:
            return known[1]
        if self._depth == DEEPEST:
            raise Untold(f"what it holds lies more than {DEEPEST} deep")
        self._known[id(value)] = (value, "(itself)")
        self._depth += 1
        described = self._described(value)
        self._depth -= 1
        self._known[id(value)] = (value, described)
        return described

    def named(self, items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        """Values by name, without the texts of secrets; a long one as its SHA-256."""
        found = {}
        for name, value in sorted(items, key=lambda item: item[0]):
            found[name] = _short(self._unless_secret(name, value))
        return found

    def _unless_secret(self, name: str, value: Any) -> Any:
        holds_text = isinstance(value, str | bytes | list | tuple | set | frozenset | dict)
        return "(a secret)" if holds_text and is_secret(name) else self.of(value)

    def _described(self, value: Any) -> Any:
        if isinstance(value, bytes | bytearray):
            return {"bytes": _sha256(bytes(value))}
        if isinstance(value, dict | MappingProxyType):
            return self._mapping(value)
        if isinstance(value, list | tuple | deque):
            return [self.of(each) for each in value]
        if isinstance(value, set | frozenset):
            return sorted(map(self.of, value), key=canonical_json)
        if isinstance(value, PurePath):
            return self._text(value.as_posix())
        if isinstance(value, Enum):
            return f"{_name(type(value))}.{value.name}"
        if isinstance(value, _AS_TEXT):
            return str(value)
        if isinstance(value, re.Pattern):
            return [value.pattern if isinstance(value.pattern, str) else value.pattern.hex(), int(value.flags)]
        if isinstance(value, ModuleType):
            self._reach(vars(value))
            return {"module": value.__name__}
        if isinstance(value, type):
            self._reach_class(value)
            return {"class": _name(value)}
        return self._callable(value) or self._object(value)

    def _callable(self, value: Any) -> Any:
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, MethodType):
            return {"method": self.of(value.__func__), "of": self.of(value.__self__)}
        if isinstance(value, functools.partial):
            found = {"partial": self.of(value.func), "args": _short(self.of(value.args))}
            return found | {"keywords": self.named(value.keywords.items())} | self._put_on(vars(value))
        if isinstance(value, BuiltinFunctionType):
            return {"function": value.__qualname__, "of": self.of(value.__self__)}
        return None

    def _function(self, function: FunctionType) -> dict[str, Any]:
        code = function.__code__
        self.reached[place_of_function(function)] = None
        found: dict[str, Any] = {"function": f"{function.__module__}.{function.__qualname__}", "at": _position(code)}
        if closure := dict(_cells(function)):
            found["closure"] = self.named(closure.items())
        if defaults := dict(_defaults(function)):
            found["defaults"] = self.named(defaults.items())
        return found | self._put_on(vars(function))

    def _put_on(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes of a function, where it has any."""
        return {"attributes": self.named(attributes.items())} if attributes else {}

    def _object(self, value: Any) -> Any:
        kind = type(value)
        self._reach_class(kind)
        found: dict[str, Any] = {"class": _name(kind)}
        if isinstance(value, _NAMESPACES):
            return found | self.named(vars(value).items())
        whose = _whose(kind)
        if whose == "own":
            return found | self.named(_attributes(value).items())
        if inspect.getattr_static(value, "__wrapped__", None) is not None:
            found["wraps"] = self.of(value.__wrapped__)
        if whose == "installed":
            public = {name: each for name, each in _attributes(value).items() if not name.startswith("_")}
            shown = public if _is_data(kind) else {name: each for name, each in public.items() if is_plain(each)}
            found |= self.named(shown.items())
        return found

    def _mapping(self, value: Mapping[Any, Any]) -> Any:
        if all(isinstance(key, str) for key in value):
            return {self._text(key): self._unless_secret(key, value[key]) for key in sorted(value)}
        return sorted(([self.of(key), self.of(each)] for key, each in value.items()), key=canonical_json)

    def _text(self, text: str) -> str:
        for root in self._roots:
            if root in text:
                text = re.sub(rf"(?<![\w.-]){re.escape(root)}(?![\w.-])", "<rootdir>", text)
        return text

    def _reach(self, namespace: Mapping[str, Any]) -> None:
        self.reached[place_of(namespace)] = None

    def _reach_class(self, kind: type) -> None:
        for each in kind.__mro__:
            self.reached[place_of_class(each)] = None


def is_secret(name: str) -> bool:
    """Whether what has this name is a secret: `api_key`, `authToken`; not `max_tokens`, `stop_token`, `sort_key`."""
    words = _WORDS.sub("_", name).lower()
    return _SECRET.search(words) is not None and _OF_TEXTS.search(words) is None


def _whose(kind: type) -> str:
    place = place_of_class(kind)
    return kind_of(place.name, place.file)


def _is_data(kind: type) -> bool:
    """Whether its public attributes are what it is: a dataclass, an attrs class, a pydantic model."""
    return dataclasses.is_dataclass(kind) or any(hasattr(kind, name) for name in ("__attrs_attrs__", "model_fields"))


def _attributes(value: Any) -> dict[str, Any]:
    """Those of the object, and of its classes as far as they are data and the user's own. Runs no code of theirs."""
    found: dict[str, Any] = {}
    for kind in reversed(type(value).__mro__):
        if _whose(kind) == "own":
            found |= {name: each for name, each in vars(kind).items() if _is_class_data(name, each)}
        slots = [each for each in vars(kind).values() if isinstance(each, MemberDescriptorType)]
        for slot in slots:
            with contextlib.suppress(AttributeError):  # nothing is in it yet
                found[slot.__name__] = slot.__get__(value)
    with contextlib.suppress(AttributeError):  # it has slots only
        found |= object.__getattribute__(value, "__dict__")
    return found


def _is_class_data(name: str, value: Any) -> bool:
    return not name.startswith(("__", "_abc_")) and not isinstance(value, type) and not hasattr(type(value), "__get__")


def is_plain(value: Any, depth: int = 4) -> bool:
    """Whether it is a number, a text or the like, or a container of nothing else."""
    if isinstance(value, dict):
        return depth > 0 and all(isinstance(key, str) and is_plain(each, depth - 1) for key, each in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return depth > 0 and all(is_plain(each, depth - 1) for each in value)
    return value is None or isinstance(value, (str, bytes, PurePath, Enum, *_AS_TEXT))


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


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _short(described: Any) -> Any:
    text = canonical_json(described)
    return described if len(text) <= _LONGEST else f"sha256:{_sha256(text)}"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
