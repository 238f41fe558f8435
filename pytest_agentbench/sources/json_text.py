"""JSON text by hand: where in it each value begins and ends. For files whose values are errors, or cases, of their own.

All offsets are 0-based. What is no JSON raises ValueError, or RecursionError where it is nested too deeply.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Generator, Iterable, Iterator
from typing import Any, NoReturn

_BLANKS = re.compile(r"[ \t\r\n]*")
_STRING_OR_CONSTANT = re.compile(r'"(?:[^"\\]|\\.)*"|(NaN|-?Infinity)')


def skip(text: str, at: int) -> int:
    """Where what comes next begins, behind white space."""
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def scan(text: str, at: int) -> tuple[Any, int]:
    """The value that begins at `at`, and where it ends."""
    try:
        return FAST.raw_decode(text, at)
    except ValueError as error:
        if not is_of_digits(error):
            raise
        return _LONG.raw_decode(text, at)


def expect_end(text: str, at: int) -> None:
    """Raises where more than white space follows."""
    if (at := skip(text, at)) != len(text):
        raise json.JSONDecodeError("Extra data", text, at)


def pairs(text: str, at: int) -> Iterator[tuple[str, int]]:
    """Each key of the object that begins at `at`, and where its value begins, up to what is no such pair."""
    at = skip(text, at + 1)
    while text[at : at + 1] == '"':
        key, at = scan(text, at)
        at = skip(text, at)
        if text[at : at + 1] != ":":
            return
        at = skip(text, at + 1)
        yield key, at
        at = skip(text, scan(text, at)[1])
        if text[at : at + 1] != ",":
            return
        at = skip(text, at + 1)


def elements(text: str, at: int) -> Generator[tuple[int, int, Any], None, int]:
    """Start, end and value of each element of the list that begins at `at`. Returns where the list ends."""
    at = skip(text, at + 1)
    while text[at : at + 1] != "]":
        value, end = scan(text, at)
        yield at, end, value
        at = skip(text, end)
        if text[at : at + 1] == ",":
            at = skip(text, at + 1)
        elif text[at : at + 1] != "]":
            raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
    return at + 1


def locate(text: str, at: int, way: tuple[int | str, ...]) -> int:
    """Where the value begins that keys and indexes lead to from the one at `at`, or as near to it as they get."""
    for part in way:
        if isinstance(part, int):
            starts = [start for start, _, _ in elements(text, at)] if text[at] == "[" else []
            if part >= len(starts):
                return at
            at = starts[part]
        else:
            keys = dict(pairs(text, at)) if text[at] == "{" else {}
            if part not in keys:
                return at
            at = keys[part]
    return at


def constant(text: str, start: int) -> int:
    """Where the first NaN or infinity stands that is in no string; `start` is outside of strings."""
    return next((found.start() for found in _STRING_OR_CONSTANT.finditer(text, start) if found[1]), start)


def place(text: str, offset: int) -> tuple[int, int]:
    """Line and column, 1-based."""
    offset = min(offset, len(text))
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def explain(error: Exception) -> tuple[int, str]:
    """The offset of what is wrong (0 where unknown), and a reason for people."""
    match error:
        case json.JSONDecodeError():
            message = re.sub(r"( starting)? at$", "", error.msg)
            return error.pos, f"not valid JSON: {message[:1].lower()}{message[1:]}"
        case UnicodeDecodeError():
            return error.start, f"not UTF-8: found byte 0x{error.object[error.start]:02x}; save the file as UTF-8"
        case RecursionError():
            return 0, "not readable: nested too deeply"
        case _:
            return 0, f"not valid JSON: {error}"


def is_of_digits(error: Exception) -> bool:
    """Whether Python refused an integer for its length."""
    return type(error) is ValueError and "set_int_max_str_digits" in str(error)


def lies_deep(value: object, levels: int) -> bool:
    """Whether a JSON value holds others so many levels below itself. What goes through it by recursion asks first."""
    level = [value]
    for _ in range(levels):
        level = [child for each in level for child in _children(each)]
        if not level:
            return False
    return True


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


class NoJSONValueError(ValueError):
    """NaN or an infinity: Python's parser takes them and does not say where they are."""


def _refuse(constant: str) -> NoReturn:
    raise NoJSONValueError(f"{constant} is no JSON value")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"the number {digits[:40]} is out of range")
    return value


def _integer(digits: str) -> int | str:
    """Python takes 4300 digits by default; longer ones stay text, which an answer becomes anyway."""
    try:
        return int(digits)
    except ValueError:
        return digits


FAST = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
"""What `scan` tries first."""

_LONG = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite, parse_int=_integer)
