"""Rows of seed 003's files: read and checked one by one, joined by their prompts, and read again at their place."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from pytest_agentbench.bounded.files import open_file
from pytest_agentbench.bounded.json_files import BadItem, Item, locate_value, parse_value, read_items
from pytest_agentbench.config.base import Scope, validate
from pytest_agentbench.config.documents import Document, Loc, read_bytes
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.research.records import (
    ExecutionMetrics,
    Language,
    QueryRow,
    RaceCriteria,
    ReferenceRow,
    ReportRow,
    ResearchTask,
    RowId,
    RowPlace,
)
from pytest_agentbench.records.base import Record
from pytest_agentbench.sources.items import describe_kind
from pytest_agentbench.terminal_text import shorten_text

# U+3400 to U+9FFF: CJK with extension A. `count_article` counts words by the seed's own range, which begins at
# U+4E00.
_CHINESE = re.compile("[\u3400-\u9fff]")
_LETTERS = re.compile("[^\\W\\d_]")


class Prompted(Protocol):
    """Row with an id and a query, as every kind of row is."""

    @property
    def id(self) -> RowId:
        """Return as the file has it."""

    @property
    def prompt(self) -> str:
        """Return the query."""


R = TypeVar("R", bound=Record)
P = TypeVar("P", bound=Prompted)
D = TypeVar("D", bound=ReportRow | QueryRow | RaceCriteria | ReferenceRow)


@dataclass(frozen=True, slots=True)
class GoodRow(Generic[R]):
    """A row of a file: the 1-based `line`, its content, its JSON value, and its bytes' place."""

    line: int
    value: R
    data: Mapping[str, Any]
    offset: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class LostRow:
    """An unusable row; `message` has a line `file:line:column: ...` for each problem.

    `data` is its JSON value, None if it is not an object; its bytes' place is as in a GoodRow.
    """

    line: int
    message: str
    data: Mapping[str, Any] | None = None
    offset: int = 0
    size: int = 0


def prompt_key(prompt: str) -> str:
    """Return the join key of rows: 64 hex digits, equal for prompts that differ only in blanks and Unicode form."""
    # NFKC, as the same prompt comes with full-width and half-width punctuation from different editors; surrogatepass,
    # as a JSON file may have half of a pair.
    return sha256(" ".join(unicodedata.normalize("NFKC", prompt).split()).encode("utf-8", "surrogatepass")).hexdigest()


def language_of(text: str) -> Language:
    """Return Chinese if a third of the letters is: queries mix in names and abbreviations."""
    letters = len(_LETTERS.findall(text))
    # A third and not a half: one Latin letter counts like one Chinese character, and `OpenAI` has six.
    if letters and len(_CHINESE.findall(text)) * 3 >= letters:
        return "zh"
    return "en"


def read_research_rows(path: Path, record: type[R]) -> Iterator[GoodRow[R] | LostRow]:
    """Yield every row of a JSONL or JSON file, in order. Raises ConfigError if the file cannot be read."""
    scope = Scope(str(path.parent))
    for item in read_objects(path):
        if isinstance(item, LostRow):
            yield item
        else:
            try:
                value = validate(_document(path, item), record, scope)
            except ConfigError as error:
                yield LostRow(item.line, str(error), item.value, item.offset, len(item.raw))
            else:
                yield GoodRow(item.line, value, item.value, item.offset, len(item.raw))


def read_objects(path: Path) -> Iterator[Item | LostRow]:
    """Yield every object of a JSONL or JSON file; a value of another kind is lost. Raises ConfigError."""
    for item in read_items(path):
        if isinstance(item, BadItem):
            yield LostRow(item.line, f"{path}:{item.line}:{item.column}: {item.reason}")
        elif isinstance(item.value, dict):
            yield item
        else:
            yield LostRow(item.line, f"{path}:{item.line}:1: found {describe_kind(item.value)}, expected an object")


def read_utf8(path: Path, limit: int) -> str:
    """Return the text of a file of at most `limit` bytes, without a byte order mark. Raises ConfigError."""
    try:
        return read_bytes(path, limit).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = f"{path}:1:1: found text that is not UTF-8 (byte {error.start})"
        raise ConfigError(f"{place}; save it as UTF-8") from error


def mark_repeated(path: Path, rows: Iterable[GoodRow[D] | LostRow]) -> Iterator[GoodRow[D] | LostRow]:
    """Yield the rows; one with the prompt or the id of an earlier row becomes a LostRow."""
    prompts: dict[str, int] = {}
    ids: dict[str, int] = {}
    for row in rows:
        if isinstance(row, LostRow):
            yield row
            continue
        # Ids are compared as texts, because one file may have 1 and the other "1".
        key, name = prompt_key(row.value.prompt), str(row.value.id)
        prompt, first = prompts.get(key), ids.get(name)
        prompts.setdefault(key, row.line)
        ids.setdefault(name, row.line)
        if prompt is not None:
            problem = f"prompt: repeats line {prompt}, expected one row"
        elif first is not None:
            problem = f"id: found {row.value.id!r} again, first on line {first}"
        else:
            yield row
            continue
        yield LostRow(row.line, f"{path}:{row.line}:1: {problem}", row.data, row.offset, row.size)


def _document(path: Path, item: Item) -> Document:
    def place(loc: Loc) -> tuple[int, int]:
        text = item.raw.decode()
        at = locate_value(text, 0, loc)
        return item.line + text.count("\n", 0, at), at - text.rfind("\n", 0, at)

    return Document(path, b"", item.value, place=place)


class Joined(Generic[P]):
    """Rows of one file by their prompts. `problems` are those between rows: duplicates.

    The first of several rows of one prompt counts.
    """

    def __init__(self, path: Path, rows: Iterable[tuple[int, P]]) -> None:
        self.path = path
        self.problems: list[str] = []
        self._rows: dict[str, tuple[int, P]] = {}
        ids: dict[str, int] = {}
        for line, row in rows:
            key, name = prompt_key(row.prompt), str(row.id)
            if key in self._rows:
                self.problems.append(f"{path}:{line}:1: prompt: repeats line {self._rows[key][0]}")
            if name in ids:
                self.problems.append(f"{path}:{line}:1: id: found {row.id!r} again, first on line {ids[name]}")
            # The first counts here and in criteria.jsonl, so that a row added below another changes nothing.
            self._rows.setdefault(key, (line, row))
            ids.setdefault(name, line)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[P]:
        return (row for _, row in self._rows.values())

    def __contains__(self, row: Prompted) -> bool:
        """Return whether a row has this prompt."""
        return prompt_key(row.prompt) in self._rows

    def partner(self, row: Prompted) -> P:
        """Return the row with this prompt. Raises ConfigError if it is missing or has another id."""
        entry = self._rows.get(prompt_key(row.prompt))
        if entry is None:
            raise ConfigError(f"{self.path}: found no row with the prompt of {row.id!r} ({_short(row.prompt)})")
        line, partner = entry
        # A prompt with two ids means that files of two versions are mixed, and all other joins of them may be wrong.
        if str(partner.id) != str(row.id):
            raise ConfigError(
                f"{self.path}:{line}:1: id: found {partner.id!r} for the prompt that has the id {row.id!r} elsewhere "
                f"({_short(row.prompt)}); use the same id for both"
            )
        return partner


def _short(prompt: str) -> str:
    return repr(shorten_text(" ".join(prompt.split()), 60))


StoredRow = TypeVar("StoredRow", ReportRow, RaceCriteria, ReferenceRow)

_RECORDED = frozenset({"task_metadata", "interaction_metrics", "quality_metrics"})
"""Further fields of a report's row about its interaction."""


@dataclass(frozen=True, slots=True)
class Material:
    """Texts of a report. `article`, `metrics` and further fields of its `row` are of a stored one."""

    article: str | None
    metrics: ExecutionMetrics
    row: Mapping[str, Any]
    criteria: RaceCriteria | None
    reference: str | None


def read_material(task: ResearchTask) -> Material:
    """Return the texts of a report. Raises ConfigError if a row has changed since it was collected."""
    report = _read_row(task.article, ReportRow, report_content)
    criteria = _read_row(task.criteria, RaceCriteria, criteria_content)
    reference = _read_row(task.reference, ReferenceRow, reference_content)
    reference_text = None if reference is None else reference.article
    if report is None:
        return Material(None, ExecutionMetrics(), {}, criteria, reference_text)
    metrics = report.execution_metrics or ExecutionMetrics()
    return Material(report.article, metrics, report.model_extra or {}, criteria, reference_text)


def place_of_row(path: Path, row: GoodRow[Any], content: str) -> RowPlace:
    """Return the place of a row with the content `content`."""
    digest = sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
    return RowPlace(path, row.line, row.offset, row.size, digest)


def report_content(row: ReportRow) -> str:
    """Return the part of a report that can change its scores."""
    metrics = row.execution_metrics and row.execution_metrics.model_dump(mode="json")
    # Other fields may change without changing a score, so stored evaluations stay valid.
    further = {name: value for name, value in (row.model_extra or {}).items() if name in _RECORDED}
    return json.dumps([row.article, metrics, further], sort_keys=True)


def criteria_content(row: RaceCriteria) -> str:
    """Return the part of criteria that can change scores."""
    criteria = {
        name: [[criterion.criterion, criterion.explanation, criterion.weight] for criterion in group]
        for name, group in row.criterions.items()
    }
    return json.dumps([row.dimension_weight, criteria], sort_keys=True)


def reference_content(row: ReferenceRow) -> str:
    """Return the part of a reference report that can change scores."""
    return row.article


def _read_row(
    place: RowPlace | None, record: type[StoredRow], content_of: Callable[[StoredRow], str]
) -> StoredRow | None:
    """Return the row at a place, None without one. Raises ConfigError if it has changed."""
    if place is None:
        return None
    try:
        with open_file(place.path, limit=None) as file:
            file.seek(place.offset)
            # Read at its place when it was collected, and compared by its digest: a changed file is an error.
            row = record.model_validate(parse_value(file.read(place.size)))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{place}: the row cannot be read any more; run again: {error}") from error
    if sha256(content_of(row).encode("utf-8", "surrogatepass")).hexdigest() != place.digest:
        raise ConfigError(f"{place}: the file was changed while the session ran; run again")
    return row
