"""What an object consists of: its attributes, and what of other people's objects tells something."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections import deque
from collections.abc import Callable, Iterator
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import partial
from numbers import Number
from pathlib import PurePath
from types import FunctionType, MemberDescriptorType, MethodType
from typing import Any
from uuid import UUID

from pytest_agentbench.engine.code.places import Kind, kind_of, place_of_class, place_of_function

AS_TEXT = (date, time, timedelta, Decimal, Fraction, UUID, range, Number)
"""What its text says all of."""

_PLAIN = (type(None), str, bytes, PurePath, Enum, *AS_TEXT)
SEQUENCES = (list, tuple, set, frozenset, deque)
_SECRET = re.compile(
    r"(^|_)(secrets?|passw(or)?ds?|passphrase|pwd|token|credentials?|auth|authorization|bearer|cookies?"
    r"|(api|access|private|secret|signing|encryption|subscription)_?key)$"
)
_OF_TEXTS = re.compile(r"(^|_)(stop|start|end|begin|eos|bos|pad|unk|sep|cls|mask|special|image|think(ing)?)_token$")
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[-\s]+")
_MAYBE_SECRET = re.compile(r"secret|passw|passphrase|pwd|token|credential|auth|bearer|cookie|key", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Whether what has this name is a secret: `api_key`, `authToken`; not `max_tokens`, `stop_token`, `sort_key`."""
    words = _WORDS.sub("_", name).lower()
    return _SECRET.search(words) is not None and _OF_TEXTS.search(words) is None


def whose(kind: type) -> Kind:
    """Whose code a class is."""
    place = place_of_class(kind)
    return kind_of(place.name, place.file)


def attributes(value: Any) -> dict[str, Any]:
    """Those of the object, and of its classes as far as they are the user's own. Runs no code of theirs."""
    found: dict[str, Any] = {}
    for kind in reversed(type(value).__mro__):
        if whose(kind) == "own":
            found |= class_data(kind)
        for slot in [each for each in vars(kind).values() if isinstance(each, MemberDescriptorType)]:
            with contextlib.suppress(AttributeError):  # nothing is in it yet
                found[slot.__name__] = slot.__get__(value)
    return found | put_on(value)


def put_on(value: Any) -> dict[str, Any]:
    """The object's own attributes, its slots left out."""
    try:
        found: dict[str, Any] = object.__getattribute__(value, "__dict__")
    except AttributeError:  # it has none
        return {}
    return found if type(found) is dict else dict(found)


def class_data(kind: type) -> dict[str, Any]:
    """What of a class its source need not show: data, and what its functions were made with."""
    return {
        name: each
        for name, each in vars(kind).items()
        if (name == "__call__" or not name.startswith(("__", "_abc_"))) and (_is_data(each) or _is_made_with_data(each))
    }


def _is_data(value: Any) -> bool:
    return not issubclass(type(value), type) and not hasattr(type(value), "__get__")


def _is_made_with_data(value: Any) -> bool:
    """Whether it is a function that has defaults or remembers variables; not one that a library generated."""
    function = value.__func__ if type(value) in (staticmethod, classmethod) else value
    if type(function) is not FunctionType or function.__code__.co_filename != function.__globals__.get("__file__"):
        return False
    remembers = any(name != "__class__" for name in function.__code__.co_freevars)
    return remembers or bool(function.__defaults__ or function.__kwdefaults__)


def telling(value: Any) -> Iterator[tuple[str, Any]]:
    """What tells something of an object of other people's: all that is public of a dataclass or a model, and else what
    is plain, a value, or the user's own, but nothing private that may be a secret.
    """
    whole = is_record(type(value))
    for name, each in attributes(value).items():
        private = name.startswith("_")
        if private and (name.startswith("__") or _is_unset(each) or _MAYBE_SECRET.search(name)):
            continue
        if (whole and not private) or _tells(each):
            yield name, each


def is_record(kind: type) -> bool:
    """Whether its public attributes are what it is: a dataclass, an attrs class, a pydantic model."""
    return dataclasses.is_dataclass(kind) or any(hasattr(kind, name) for name in ("__attrs_attrs__", "model_fields"))


def is_value(kind: type) -> bool:
    """Whether its objects are values that their text tells, such as URLs: equal ones are the same to it."""
    if kind.__hash__ is None or any(hasattr(kind, name) for name in ("__iter__", "__enter__")):
        return False
    return all(getattr(kind, name) is not getattr(object, name) for name in ("__str__", "__eq__", "__hash__"))


def is_plain(value: Any) -> bool:
    """Whether it is a number, a text or the like, or a container of nothing else."""
    return _consists_of(value, lambda each: issubclass(type(each), _PLAIN))


def _tells(value: Any) -> bool:
    return _consists_of(value, lambda each: issubclass(type(each), _PLAIN) or is_value(type(each)) or _is_own(each))


def _consists_of(value: Any, fits: Callable[[Any], bool], depth: int = 4) -> bool:
    kind = type(value)
    if issubclass(kind, dict):
        keys, inside = list(dict.keys(value)), list(dict.values(value))
        told = all(issubclass(type(key), str) for key in keys)
    elif issubclass(kind, SEQUENCES):
        told, inside = True, list(value)
    else:
        return fits(value)
    return told and depth > 0 and all(_consists_of(each, fits, depth - 1) for each in inside)


def _is_unset(value: Any) -> bool:
    return value is None or (type(value) in (bool, int, str, dict, *SEQUENCES) and not value)


def _is_own(value: Any) -> bool:
    """Whether a function, a class or an object is the user's own."""
    kind = type(value)
    if kind is partial:
        return _is_own(value.func)
    if kind is MethodType:
        return _is_own(value.__func__)
    if kind is FunctionType:
        place = place_of_function(value)
        return kind_of(place.name, place.file) == "own"
    return whose(value if issubclass(kind, type) else kind) == "own"
