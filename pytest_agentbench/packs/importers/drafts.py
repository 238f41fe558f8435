"""Drafts of cases, and rows of other tools' files. A reader for each tool makes drafts; `folders` writes them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_agentbench.bounded.files import find_repeated
from pytest_agentbench.bounded.json_files import BadItem, lies_deep, read_items
from pytest_agentbench.config.documents import read_bytes
from pytest_agentbench.errors import ConfigError

MUST_NOT = "It must not be so that: "
"""Beginning of an expectation for a statement that must not be true."""
MAX_DEPTH = 50
"""Levels of nesting that metadata may have: our YAML reader accepts 100 in the whole file."""


@dataclass(frozen=True)
class Place:
    """A place in a file of another tool; `line` and `column` count from 1."""

    file: str
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Draft:
    """A case without an id and a file.

    `messages` are `{role, content}`. `metric` compares the answer with `reference`. If it is None, the writer chooses a
    metric; if the case is not `compared`, the reference is only for people and judges. `checks` are `{description,
    declarative}`, `expectations` hard ones. `files` are written into the workspace. `answers` are from runs in the
    other tool; `calls` are the tool calls of such a run, `{name, arguments, result}`, None if unknown. A case is
    `unfinished` if a person has to complete it. `prompts` are the names of prompts that are its variants.
    """

    place: Place
    name: str
    messages: tuple[Mapping[str, str], ...]
    title: str | None = None
    reference: str | None = None
    metric: Mapping[str, Any] | None = None
    compared: bool = True
    choices: tuple[str, ...] = ()
    checks: tuple[Mapping[str, Any], ...] = ()
    expectations: tuple[Mapping[str, Any], ...] = ()
    tools: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    dockerfile: bytes | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    answers: tuple[str, ...] = ()
    calls: tuple[Mapping[str, Any], ...] | None = None
    unfinished: bool = False
    prompts: tuple[str, ...] = ()

    @property
    def decided(self) -> bool:
        """Return whether the case has a reference, a check or an expectation, so that a run can fail it."""
        return bool(self.reference is not None or self.checks or self.expectations)


@dataclass
class FileContents:
    """Contents of a file: `drafts`, rows that cannot become a case (`lost`), and parts that cases lack (`notes`).

    `prompts` are the texts of prompts that drafts name.
    """

    drafts: list[Draft] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    prompts: dict[str, str] = field(default_factory=dict)

    def lose(self, place: object, reason: str) -> None:
        """Add a row that cannot become a case, with the reason."""
        self.lost.append(f"{place}: not imported: {reason}")

    def note(self, place: object, text: str) -> None:
        """Add a part of the file that the cases lack."""
        self.notes.append(f"{place}: {text}")


MAX_TABLE = 256 * 1024 * 1024
"""Bytes of a CSV file."""
MAX_CELL = 16 * 1024 * 1024
"""Characters of a cell."""
SUFFIXES = (".json", ".jsonl", ".csv")


@dataclass(frozen=True)
class Row:
    """An object of a file, with its place."""

    place: Place
    value: dict[str, Any]


def read_rows(
    path: Path, gathered: FileContents, inside: str = "items", only: Collection[str] | None = None
) -> Iterator[Row]:
    """Yield every object of the file, reduced to the keys `only` if given. Record other values as lost.

    A JSON document may have its list below the key `inside`. Raises ConfigError if the file cannot be read.
    """
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"{path}: expected a file that ends in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    if path.suffix == ".csv":
        yield from _read_table(path, gathered)
        return
    for item in read_items(path, inside):
        if isinstance(item, BadItem):
            gathered.lose(Place(str(path), item.line, item.column), item.reason)
            continue
        yield from fit_row(Place(str(path), item.line, item.column), item.value, gathered, only)


def fit_row(place: Place, value: Any, gathered: FileContents, only: Collection[str] | None = None) -> Iterator[Row]:
    """Yield the value if it can be a row, else record it as lost."""
    if only is not None and isinstance(value, dict):
        value = {key: member for key, member in value.items() if key in only}
    reason = _row_problem(value)
    if reason is None:
        yield Row(place, value)
    else:
        gathered.lose(place, reason)


def _row_problem(value: Any) -> str | None:
    """Return why a value cannot be written as a row, or None if it can."""
    if not isinstance(value, dict):
        return f"found {json.dumps(value)[:40]}, expected an object"
    if lies_deep(value, MAX_DEPTH):
        return f"found more than {MAX_DEPTH} levels of nesting"
    try:
        # Encoded as in the case's file: an error here costs one row, an error while writing would cost all.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        return "found half of a surrogate pair, expected text that is valid Unicode"
    except ValueError as error:
        return f"found a number without a form in JSON: {error}"
    return None


def _read_table(path: Path, gathered: FileContents) -> Iterator[Row]:
    """Yield the rows of a CSV file by its header."""
    try:
        # Spreadsheets begin UTF-8 with a byte order mark.
        text = read_bytes(path, MAX_TABLE).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}:1:1: not UTF-8: {error.reason}; save the file as UTF-8") from error
    with _large_cells():
        # Strict: otherwise a quote that is never closed puts the rest of the file into one cell, without an error.
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        header: list[str] | None = None
        line = 1
        while True:
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                place = Place(str(path), max(line, reader.line_num))
                gathered.lose(place, f"this row and the following ones: not valid CSV: {error}")
                return
            # A row may span several lines: its place is its first line.
            place, line = Place(str(path), line), reader.line_num + 1
            if header is None:
                header = _header(place, cells)
            elif any(cell.strip() for cell in cells):
                if len(cells) == len(header):
                    yield Row(place, dict(zip(header, cells, strict=True)))
                else:
                    gathered.lose(place, f"found {len(cells)} cells, expected {len(header)} as in the header")


def _header(place: Place, cells: list[str]) -> list[str]:
    names = [cell.strip() for cell in cells]
    if (twice := find_repeated(names)) is not None:
        raise ConfigError(f"{place}: found two columns {twice!r}, expected different names")
    return names


@contextmanager
def _large_cells() -> Iterator[None]:
    # csv has one limit for the whole process, so it is restored for other readers of tables.
    before = csv.field_size_limit(MAX_CELL)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def read_document(path: Path, limit: int) -> Any:
    """Return the value of a JSON file. Raises ConfigError if it is invalid, or larger than `limit` bytes."""
    return parse_document(read_bytes(path, limit), str(path))


def parse_document(content: bytes, file: str) -> Any:
    """Parse the bytes of a file as JSON. Raises ConfigError if they are invalid."""
    try:
        return json.loads(content)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{file}:{error.lineno}:{error.colno}: not valid JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file}:1:1: not valid JSON: {error}") from error


def nonblank_text(value: Any) -> str | None:
    """Return the value if it is a text that is not blank, else None."""
    if isinstance(value, str) and value.strip():
        return value
    return None


def as_text(value: Any) -> str:
    """Return a text unchanged; another value as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def parse_cell(value: Any) -> Any:
    """Return the JSON value of a table's cell, or None if the cell is empty. Other values are returned unchanged.

    Raises ValueError if the cell is not JSON.
    """
    if not isinstance(value, str):
        return value
    if value.strip():
        return json.loads(value)
    return None
