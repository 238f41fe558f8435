"""A JSON or JSONL file as a stream of values, each with the line it stands on. What the values mean is not known here.

A bad line of a JSONL file does not keep the others from being read; a JSON document is read up to its first error.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

from pytest_agentbench.errors import ConfigError

_SPACE = b" \t\r\n"
_BLANKS = re.compile(r"[ \t\r\n]*")
_UTF8_BOM = b"\xef\xbb\xbf"
UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
"""What a file of the wrong encoding begins with."""

_INCOMPLETE = object()


class Item(NamedTuple):
    """One value: its 1-based `line`, its `number` for a default id (that line in JSONL, a 0-based index in JSON)."""

    line: int
    number: int
    raw: bytes
    value: Any


class BadItem(NamedTuple):
    """A place that holds no value, 1-based, and why."""

    line: int
    column: int
    reason: str


def read_items(path: Path) -> Iterator[Item | BadItem]:
    """Every value of the file, in order and in one pass.

    JSONL is streamed line by line, a document is held whole. Raises ConfigError where the file cannot be read at all.
    """
    try:
        with path.open("rb") as file:
            start = _skip_bom(path, file)
            first, second = _two_lines(file)
            file.seek(start)
            yield from (_lines(file) if _holds_lines(first, second, path.suffix) else _document(file.read()))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error


def first_object(text: str) -> dict[str, Any] | None:
    """The first line of the text that is a whole JSON object."""
    for line in text.split("\n"):
        value = _parsed(line.strip())
        if isinstance(value, dict):
            return value
    return None


def first_element(text: str) -> dict[str, str] | None:
    """The keys of the first object in the list, or the `items`, of a document that may be cut off.

    Each with the character that its value begins with. None where the text shows no such object.
    """
    found: dict[str, str] = {}
    try:
        at = _list_start(text)
        if at is None or text[(at := _skip(text, at)) : at + 1] != "{":
            return None
        found.update((key, text[start : start + 1]) for key, start in _pairs(text, at))
    except (ValueError, RecursionError):
        pass  # the text ends here, or what follows is no JSON: what was seen so far decides
    return found


def _skip_bom(path: Path, file: BinaryIO) -> int:
    head = file.read(4)
    if head[:2] in UTF16_BOMS or b"\0" in head:
        raise ConfigError(f"{path}:1:1: found UTF-16 or binary data, expected UTF-8 text; save the file as UTF-8")
    file.seek(start := len(_UTF8_BOM) if head.startswith(_UTF8_BOM) else 0)
    return start


def _two_lines(file: BinaryIO) -> tuple[bytes, bytes]:
    """The first two lines that are not blank."""
    filled = (line for line in map(_strip, file) if line)
    return next(filled, b""), next(filled, b"")


def _strip(line: bytes) -> bytes:
    return line.strip(_SPACE)


def _holds_lines(first: bytes, second: bytes, suffix: str) -> bool:
    """Whether every line is a value of its own, told by the first two lines; the suffix decides only what is open."""
    jsonl = suffix == ".jsonl"
    value = _parsed(first)
    if value is not _INCOMPLETE:
        whole_file = isinstance(value, list) or (isinstance(value, dict) and isinstance(value.get("items"), list))
        return bool(second) or (jsonl and not whole_file)
    if first in (b"[", b"{"):
        return False
    if first.startswith(b"["):
        return jsonl and not first.endswith(b",") and isinstance(_parsed(second), dict)
    return jsonl or not first or isinstance(_parsed(second), dict)


def _parsed(line: bytes | str) -> Any:
    try:
        text = line.decode() if isinstance(line, bytes) else line
        value, end = _scan(text, 0)
        return value if end == len(text) else _INCOMPLETE
    except (ValueError, RecursionError):
        return _INCOMPLETE


def _lines(file: BinaryIO) -> Iterator[Item | BadItem]:
    for number, line in enumerate(file, 1):
        raw = line.strip(_SPACE)
        if not raw:
            continue
        try:
            text = raw.decode()
            value, end = _scan(text, 0)
        except (ValueError, RecursionError) as error:
            yield _bad_line(number, line, raw, error)
        else:
            if end == len(text):
                yield Item(number, number, raw, value)
            else:
                yield _bad_line(number, line, raw, json.JSONDecodeError("Extra data", text, end))


def _bad_line(number: int, line: bytes, raw: bytes, error: Exception) -> BadItem:
    offset, reason = _explain(error)
    return BadItem(number, line.index(raw) + offset + 1, reason)


def _document(content: bytes) -> Iterator[Item | BadItem]:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        yield BadItem(*_place(content[: error.start].decode(), error.start), _explain(error)[1])
        return
    line, seen = 1, 0
    try:
        for number, (start, end, value) in enumerate(_values(text)):
            line += text.count("\n", seen, start)
            seen = start
            yield Item(line, number, text[start:end].encode(), value)
    except (ValueError, RecursionError) as error:
        offset, reason = _explain(error)
        yield BadItem(*_place(text, offset or seen), reason)


def _values(text: str) -> Iterator[tuple[int, int, Any]]:
    """Start, end and value of each element of the document's list, else of the one value that it is."""
    start = _list_start(text)
    if start is None:
        start = _skip(text, 0)
        value, end = _scan(text, start)
        yield start, end, value
        _expect_end(text, end)
        return
    at = _skip(text, start)
    while text[at : at + 1] != "]":
        value, end = _scan(text, at)
        yield at, end, value
        at = _skip(text, end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != "]":
            raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
    if text[start - 1] == text[_skip(text, 0)]:  # the list is the document, not its `items`
        _expect_end(text, at + 1)


def _list_start(text: str) -> int | None:
    """Where the elements begin of the list that the document is, or has as its `items`. None: neither."""
    at = _skip(text, 0)
    if text[at : at + 1] == "[":
        return at + 1
    if text[at : at + 1] == "{":
        for key, start in _pairs(text, at):
            if key == "items" and text[start : start + 1] == "[":
                return start + 1
    return None


def _pairs(text: str, at: int) -> Iterator[tuple[str, int]]:
    """Each key of the object that begins at `at`, and where its value begins, up to what is no such pair."""
    at = _skip(text, at + 1)
    while text[at : at + 1] == '"':
        key, at = _scan(text, at)
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            return
        at = _skip(text, at + 1)
        yield key, at
        at = _skip(text, _scan(text, at)[1])
        if text[at : at + 1] != ",":
            return
        at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _expect_end(text: str, at: int) -> None:
    if (at := _skip(text, at)) != len(text):
        raise json.JSONDecodeError("Extra data", text, at)


def _place(text: str, offset: int) -> tuple[int, int]:
    """Line and column, 1-based."""
    offset = min(offset, len(text))
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def _explain(error: Exception) -> tuple[int, str]:
    """The 0-based offset of what is wrong (0 where unknown), and a reason for people."""
    match error:
        case json.JSONDecodeError():
            return error.pos, f"not valid JSON: {error.msg[:1].lower()}{error.msg[1:]}"
        case UnicodeDecodeError():
            return error.start, f"not UTF-8: found byte 0x{error.object[error.start]:02x}; save the file as UTF-8"
        case RecursionError():
            return 0, "not readable: nested too deeply"
        case _ if "set_int_max_str_digits" in str(error):
            return 0, f"not readable: an integer of more than {sys.get_int_max_str_digits()} digits"
        case _:
            return 0, f"not valid JSON: {error}"


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON value")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"the number {digits[:40]} is out of range")
    return value


_scan = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite).raw_decode
