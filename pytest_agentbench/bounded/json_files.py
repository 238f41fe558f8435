"""JSON and JSONL files as streams of values with their lines, and positions of values in JSON text."""

from __future__ import annotations

import codecs
import errno
import json
import math
import re
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

from pytest_agentbench.bounded.files import (
    MAX_DOCUMENT,
    FileRefusedError,
    KeyTwiceError,
    open_file,
    pairs_without_repeats,
    read_lines,
)
from pytest_agentbench.errors import ConfigError

# Positions of values in JSON text, for files whose values are reported, or run, one by one.
#
# All offsets are 0-based. Malformed JSON raises ValueError, or RecursionError if it is nested too deeply.


_BLANKS = re.compile(r"[ \t\r\n]*")
_STRING_OR_CONSTANT = re.compile(r'"(?:[^"\\]|\\.)*"|(NaN|-?Infinity)')


def skip_blanks(text: str, at: int) -> int:
    """Return the offset of the next character that is not white space."""
    found = _BLANKS.match(text, at)
    if found:
        return found.end()
    return at


def scan_value(text: str, at: int) -> tuple[Any, int]:
    """Return the value that begins at `at`, and its end."""
    try:
        return FAST.raw_decode(text, at)
    except ValueError as error:
        if not is_long_integer(error):
            raise
        return _LONG.raw_decode(text, at)


def expect_end(text: str, at: int) -> None:
    """Raise where more than white space follows."""
    if (at := skip_blanks(text, at)) != len(text):
        raise json.JSONDecodeError("Extra data", text, at)


def list_pairs(text: str, at: int) -> Iterator[tuple[str, int]]:
    """Yield each key of the object that begins at `at`, and the offset of its value, up to the first malformed pair."""
    at = skip_blanks(text, at + 1)
    while text[at : at + 1] == '"':
        key, at = scan_value(text, at)
        at = skip_blanks(text, at)
        if text[at : at + 1] != ":":
            return
        at = skip_blanks(text, at + 1)
        yield key, at
        at = skip_blanks(text, scan_value(text, at)[1])
        if text[at : at + 1] != ",":
            return
        at = skip_blanks(text, at + 1)


def _scan_element(text: str, at: int) -> tuple[Any, int]:
    try:
        return _ROWS.raw_decode(text, at)
    except KeyTwiceError as error:
        raise json.JSONDecodeError(str(error), text, at) from error
    except ValueError:  # a long integer, or malformed JSON, which raises again
        return scan_value(text, at)


def list_elements(text: str, at: int) -> Generator[tuple[int, int, Any], None, int]:
    """Yield start, end and value of each element of the list that begins at `at`. Returns the end of the list."""
    at = skip_blanks(text, at + 1)
    while text[at : at + 1] != "]":
        value, end = _scan_element(text, at)
        yield at, end, value
        at = skip_blanks(text, end)
        if text[at : at + 1] == ",":
            at = skip_blanks(text, at + 1)
        elif text[at : at + 1] != "]":
            raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
    return at + 1


def locate_value(text: str, at: int, way: tuple[int | str, ...]) -> int:
    """Return the offset of the value at keys and indexes from the value at `at`, or of the nearest one on the way."""
    for part in way:
        if isinstance(part, int):
            starts = [start for start, _, _ in list_elements(text, at)] if text[at] == "[" else []
            if part >= len(starts):
                return at
            at = starts[part]
        else:
            keys = dict(list_pairs(text, at)) if text[at] == "{" else {}
            if part not in keys:
                return at
            at = keys[part]
    return at


def constant(text: str, start: int) -> int:
    """Return the offset of the first NaN or infinity outside of strings; `start` is outside of strings."""
    return next((found.start() for found in _STRING_OR_CONSTANT.finditer(text, start) if found[1]), start)


def place(text: str, offset: int) -> tuple[int, int]:
    """Return line and column, from 1."""
    offset = min(offset, len(text))
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def explain_error(error: Exception) -> tuple[int, str]:
    """Return the offset of an error (0 if unknown), and a reason for people."""
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


def is_long_integer(error: Exception) -> bool:
    """Return whether Python refused an integer for its length."""
    return type(error) is ValueError and "set_int_max_str_digits" in str(error)


def lies_deep(value: object, levels: int) -> bool:
    """Return whether a JSON value is nested at least so many levels deep. Check this before recursion."""
    # Keep only objects and lists, which usually are the smaller part of a document
    level = [value] if isinstance(value, _HOLDERS) else []
    for _ in range(levels - 1):
        level = [
            child
            for each in level
            for child in (each.values() if isinstance(each, dict) else each)
            if isinstance(child, _HOLDERS)
        ]
        if not level:
            return False
    return any(level)


_HOLDERS = (dict, list)


class NoJSONValueError(ValueError):
    """NaN or an infinity. Python's parser accepts them and does not report their offset."""


def _refuse(constant: str) -> NoReturn:
    raise NoJSONValueError(f"{constant} is no JSON value")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"the number {digits[:40]} is out of range")
    return value


def _integer(digits: str) -> int | str:
    """Return the number, or its text if it has more than the 4,300 digits that Python converts."""
    try:
        return int(digits)
    except ValueError:
        return digits


FAST = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
"""Decoder that `scan_value` tries first."""

_ROWS = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite, object_pairs_hook=pairs_without_repeats)

_LONG = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite, parse_int=_integer)


# A JSON or JSONL file as a stream of values, each with its line. The values are not interpreted here.
#
# A bad line of a JSONL file does not keep the others from being read; a JSON document is read up to its first error.


_SPACE = b" \t\r\n"
_UTF8_BOM = b"\xef\xbb\xbf"
UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
"""First bytes of files in the wrong encoding."""

_INCOMPLETE = object()


class Item(NamedTuple):
    """One value: its 1-based `line`, its `number` for a default id (that line in JSONL, its position from 1 in JSON).

    `raw` begins `offset` bytes after the beginning of its file, 0 for values of no file. `column`, 1-based, is set for
    the elements of a document.
    """

    line: int
    number: int
    raw: bytes
    value: Any
    offset: int = 0
    column: int = 1


class BadItem(NamedTuple):
    """A place that holds no value, 1-based, and why."""

    line: int
    column: int
    reason: str


def read_items(path: Path, inside: str = "items") -> Iterator[Item | BadItem]:
    """Yield every value of the file, in order and in one pass; for a document the elements of its list.

    The list is the document, or the value of the key `inside` of an object; without a list the document is the only
    value. JSONL is streamed line by line, a document is read whole. Raises ConfigError if the file cannot be read.
    """
    try:
        with open_file(path, limit=None) as file:
            start = _skip_bom(path, file)
            first, second = _two_lines(file)
            file.seek(start)
            lines = _holds_lines(first, second, path.suffix, inside)
            yield from _lines(file, start) if lines else _document(_whole(file), inside, start)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error


def parse_value(raw: bytes) -> Any:
    """Return the value of an item's `raw`. Raises ValueError or RecursionError if it is malformed."""
    text = raw.decode()
    value, end = scan_value(text, 0)
    expect_end(text, end)
    return value


def is_document(path: Path, inside: str = "items") -> bool:
    """Return whether `read_items` reads the file as one document, False for a file of lines.

    For files that `read_items` could read.
    """
    with open_file(path, limit=None) as file:
        _skip_bom(path, file)
        return not _holds_lines(*_two_lines(file), path.suffix, inside)


def first_character(path: Path) -> str:
    """Return the first character of the file's first value, or "" for an empty file.

    For files that `read_items` could read.
    """
    with open_file(path, limit=None) as file:
        _skip_bom(path, file)
        return _two_lines(file)[0][:1].decode(errors="replace")


def repeated_keys(item: Item) -> Iterator[tuple[str, int, int]]:
    """Yield each repeated key of an object, with the lines, from 1, of its first value and of this one."""
    text = item.raw.decode()
    firsts: dict[str, int] = {}
    for key, start in list_pairs(text, 0):
        first = firsts.setdefault(key, start)
        if first != start:
            yield key, item.line + text.count("\n", 0, first), item.line + text.count("\n", 0, start)


def first_object(text: str) -> dict[str, Any] | None:
    """Return the first line of the text that is a whole JSON object."""
    for line in text.split("\n"):
        value = _parsed(line.strip())
        if isinstance(value, dict):
            return value
    return None


def first_element(text: str) -> dict[str, str] | None:
    """Return the keys of the first object in the list, or in the `items`, of a document that may be truncated.

    Each key has the first character of its value. None if the text has no such object.
    """
    try:
        at = _list_start(text, "items")
    except (ValueError, RecursionError):
        return {}
    if at is None or text[(at := skip_blanks(text, at + 1)) : at + 1] != "{":
        return None
    return _keys(text, at)


def first_keys(text: str) -> dict[str, str]:
    """Return the keys of the top-level object like `first_element`, or {} if the document is not an object."""
    at = skip_blanks(text, 0)
    if text[at : at + 1] == "{":
        return _keys(text, at)
    return {}


def _keys(text: str, at: int) -> dict[str, str]:
    found: dict[str, str] = {}
    with suppress(ValueError, RecursionError):  # the text ends or is malformed: the pairs so far decide
        found.update((key, text[start : start + 1]) for key, start in list_pairs(text, at))
    return found


def _skip_bom(path: Path, file: BinaryIO) -> int:
    head = file.read(1024)
    if head[:2] in UTF16_BOMS or b"\0" in head[:4] or (b"\0" in head and not _is_utf8(head)):
        raise ConfigError(f"{path}:1:1: found UTF-16 or binary data, expected UTF-8 text; save the file as UTF-8")
    file.seek(start := len(_UTF8_BOM) if head.startswith(_UTF8_BOM) else 0)
    return start


def _is_utf8(head: bytes) -> bool:
    """Return whether bytes are the beginning of UTF-8 text; the last character may be cut off."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def _two_lines(file: BinaryIO) -> tuple[bytes, bytes]:
    """Return the first two lines that are not blank."""
    filled = (line for raw in read_lines(file) if (line := raw.strip(_SPACE)))
    return next(filled, b""), next(filled, b"")


def _whole(file: BinaryIO) -> bytes:
    """Return the rest of a document. Raises FileRefusedError if it is too large."""
    content = file.read(MAX_DOCUMENT + 1)
    if len(content) > MAX_DOCUMENT:
        reason = f"found a JSON document of more than {MAX_DOCUMENT:,} bytes; write it as JSONL, a line for each row"
        raise FileRefusedError(errno.EFBIG, reason, file.name)
    return content


def _holds_lines(first: bytes, second: bytes, suffix: str, inside: str) -> bool:
    """Return whether every line is a value, judging by the first two lines; the suffix decides ambiguous files."""
    jsonl = suffix == ".jsonl"
    value = _parsed(first)
    if value is not _INCOMPLETE:
        whole_file = isinstance(value, list) or (isinstance(value, dict) and isinstance(value.get(inside), list))
        return bool(second) or (jsonl and not whole_file)
    if first in (b"[", b"{"):
        return False
    if first.startswith(b"["):
        return jsonl and not first.endswith(b",") and isinstance(_parsed(second), dict)
    return jsonl or not first or isinstance(_parsed(second), dict)


def _parsed(line: bytes | str) -> Any:
    try:
        text = line.decode() if isinstance(line, bytes) else line
        value, end = scan_value(text, 0)
        if end == len(text):
            return value
        return _INCOMPLETE
    except (ValueError, RecursionError):
        return _INCOMPLETE


def _lines(file: BinaryIO, ahead: int) -> Iterator[Item | BadItem]:
    """Yield the items of JSON lines; `ahead` bytes of the file have been read."""
    fast = _ROWS.raw_decode
    for number, line in enumerate(read_lines(file), 1):
        offset, ahead = ahead, ahead + len(line)
        raw = line.strip(_SPACE)
        if not raw:
            continue
        if not line.startswith(raw):
            offset += line.index(raw)
        try:
            text = raw.decode()
            value, end = fast(text, 0)
            if end != len(text):
                raise json.JSONDecodeError("Extra data", text, end)
        except (ValueError, RecursionError) as error:
            yield _other_line(number, offset, line, raw, error)
        else:
            yield Item(number, number, raw, value, offset)


def _other_line(number: int, place: int, line: bytes, raw: bytes, error: Exception) -> Item | BadItem:
    """Return a line that the fast decoder refuses: with a long integer, or bad."""
    if is_long_integer(error):
        try:
            return Item(number, number, raw, parse_value(raw), place)
        except (ValueError, RecursionError) as later:
            error = later
    offset, reason = explain_error(error)
    if isinstance(error, NoJSONValueError):
        offset = constant(raw.decode(), 0)
    return BadItem(number, line.index(raw) + offset + 1, reason)


def _document(content: bytes, inside: str, ahead: int) -> Iterator[Item | BadItem]:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        yield BadItem(*place(content[: error.start].decode(), error.start), explain_error(error)[1])
        return
    line, line_start, seen, offset = 1, 0, 0, ahead
    try:
        for number, (start, end, value) in enumerate(_values(text, inside), 1):
            line += text.count("\n", seen, start)
            line_start = max(line_start, text.rfind("\n", seen, start) + 1)
            offset += len(text[seen:start].encode())
            seen = start
            yield Item(line, number, text[start:end].encode(), value, offset, start - line_start + 1)
    except (ValueError, RecursionError) as error:
        offset, reason = explain_error(error)
        if isinstance(error, NoJSONValueError):
            offset = constant(text, seen)
        yield BadItem(*place(text, offset or seen), reason)


def _values(text: str, inside: str) -> Iterator[tuple[int, int, Any]]:
    """Start, end and value of each element of the document's list, else of the one value that it is."""
    start = _list_start(text, inside)
    if start is None:
        start = skip_blanks(text, 0)
        value, end = scan_value(text, start)
        yield start, end, value
        expect_end(text, end)
        return
    end = yield from list_elements(text, start)
    if start == skip_blanks(text, 0):  # the list is the document, not one inside it
        expect_end(text, end)


def _list_start(text: str, inside: str) -> int | None:
    """Return the offset of the document's list, or of the list under the key `inside`, or None."""
    at = skip_blanks(text, 0)
    if text[at : at + 1] == "[":
        return at
    if text[at : at + 1] == "{":
        for key, start in list_pairs(text, at):
            if key == inside and text[start : start + 1] == "[":
                return start
    return None
