"""Rows of seed 003: reports, queries, criteria, references. Each is checked alone, and joined by its prompt."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from pytest_agentbench.config import Document, Loc, Scope, validate
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records import Language, Record, RowId
from pytest_agentbench.sources.json_items import BadItem, Item, read_items
from pytest_agentbench.sources.json_text import locate
from pytest_agentbench.sources.standard import kind

_CHINESE = re.compile("[\u3400-\u9fff]")
_LETTERS = re.compile("[^\\W\\d_]")


class Prompted(Protocol):
    """What every kind of row has."""

    @property
    def id(self) -> RowId:
        """As the file has it."""

    @property
    def prompt(self) -> str:
        """The query."""


R = TypeVar("R", bound=Record)
P = TypeVar("P", bound=Prompted)


@dataclass(frozen=True, slots=True)
class GoodRow(Generic[R]):
    """A row of a file: the 1-based `line`, what it says, and its JSON value as it stands there."""

    line: int
    value: R
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LostRow:
    """A row that cannot be used; `message` has a line `file:line:column: ...` for each problem."""

    line: int
    message: str


def prompt_key(prompt: str) -> str:
    """What rows are joined by: 64 hex digits, the same for prompts that differ in blanks and Unicode form only."""
    return sha256(" ".join(unicodedata.normalize("NFKC", prompt).split()).encode("utf-8", "surrogatepass")).hexdigest()


def language_of(text: str) -> Language:
    """Chinese where a third of the letters is: queries mix in names and abbreviations."""
    letters = len(_LETTERS.findall(text))
    return "zh" if letters and len(_CHINESE.findall(text)) * 3 >= letters else "en"


def read_research_rows(path: Path, record: type[R]) -> Iterator[GoodRow[R] | LostRow]:
    """Every row of a JSONL or JSON file, in order. Raises ConfigError where the file cannot be read at all."""
    scope = Scope(str(path.parent))
    for item in read_items(path):
        if isinstance(item, BadItem):
            yield LostRow(item.line, f"{path}:{item.line}:{item.column}: {item.reason}")
        elif not isinstance(item.value, dict):
            yield LostRow(item.line, f"{path}:{item.line}:1: found {kind(item.value)}, expected an object")
        else:
            try:
                value = validate(_document(path, item), record, scope)
            except ConfigError as error:
                yield LostRow(item.line, str(error))
            else:
                yield GoodRow(item.line, value, item.value)


def _document(path: Path, item: Item) -> Document:
    def place(loc: Loc) -> tuple[int, int]:
        text = item.raw.decode()
        at = locate(text, 0, loc)
        return item.line + text.count("\n", 0, at), at - text.rfind("\n", 0, at)

    return Document(path, b"", item.value, place=place)


class Joined(Generic[P]):
    """The rows of one file by their prompts. `problems` are what is wrong with them together: duplicates.

    The first of several rows of one prompt counts.
    """

    def __init__(self, path: Path, rows: Iterable[tuple[int, P]]) -> None:
        self.path = path
        self.problems: list[str] = []
        self._rows: dict[str, tuple[int, P]] = {}
        ids: dict[RowId, int] = {}
        for line, row in rows:
            first = self._rows.setdefault(prompt_key(row.prompt), (line, row))
            if first[0] != line:
                self.problems.append(f"{path}:{line}:1: prompt: found that of line {first[0]} again")
            first_line = ids.setdefault(row.id, line)
            if first_line != line:
                self.problems.append(f"{path}:{line}:1: id: found {row.id!r} again, first on line {first_line}")

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[P]:
        return (row for _, row in self._rows.values())

    def partner(self, row: Prompted) -> P:
        """The row of the same prompt. Raises ConfigError where there is none, or where it has another id."""
        found = self._rows.get(prompt_key(row.prompt))
        if found is None:
            raise ConfigError(f"{self.path}: found no row with the prompt of {row.id!r} ({_short(row.prompt)})")
        line, partner = found
        if str(partner.id) != str(row.id):
            raise ConfigError(
                f"{self.path}:{line}:1: id: found {partner.id!r} for the prompt that has the id {row.id!r} elsewhere "
                f"({_short(row.prompt)}); give both the same id"
            )
        return partner


def _short(prompt: str) -> str:
    text = " ".join(prompt.split())
    return repr(text if len(text) <= 60 else f"{text[:59]}…")
