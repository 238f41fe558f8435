"""JSON in texts that agents wrote, and equality as JSON has it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from pytest_agentbench.sources import lies_deep

MAX_DEPTH = 64
"""How deep a text's JSON may nest: what looks into it recurses, and no agent shall break a check by its answer."""

_FENCE = re.compile(r"^[ \t]*```[ \t]*(?:json)?[ \t]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE | re.IGNORECASE)


def parse_json(text: str) -> Any:
    """The text as JSON, or the last fenced block of it. Raises ValueError with the reason where there is none."""
    try:
        return loads(text)
    except ValueError as error:
        fenced = _FENCE.findall(text)
        if not fenced:
            raise ValueError(f"not JSON: {error}") from error
    try:
        return loads(fenced[-1])
    except ValueError as error:
        raise ValueError(f"its last fenced block is not JSON: {error}") from error


def json_equal(one: Any, other: Any) -> bool:
    """Equality of JSON values: 1 equals 1.0, but true is no number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(json_equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(json_equal, one, other))
    return bool(one == other)


def includes(whole: Any, part: Any) -> bool:
    """Whether `whole` has every pair of the mapping `part`, at any depth; other values must be equal."""
    if isinstance(part, Mapping):
        return isinstance(whole, Mapping) and all(
            key in whole and includes(whole[key], value) for key, value in part.items()
        )
    return json_equal(whole, part)


def compact(value: Any) -> str:
    """The value on one line, for messages."""
    return json.dumps(value, ensure_ascii=False, default=str)


def loads(text: str) -> Any:
    """The text as JSON: no NaN, nothing that nests too deep. Raises ValueError."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if lies_deep(value, MAX_DEPTH):
        raise ValueError("nested too deeply")
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON value")
