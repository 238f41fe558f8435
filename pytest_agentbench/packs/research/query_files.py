"""Files of proposed queries: `raw_query.md`, CSV, JSON and JSONL (seed 003, query_selector)."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pytest_agentbench.bounded.files import read_file
from pytest_agentbench.bounded.writing import write_lines
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.research.records import QueryRow, RowId
from pytest_agentbench.packs.research.rows import GoodRow, LostRow, prompt_key, read_objects, read_research_rows

# Both ways of the sample, `**Query 1: title**` and `**Query** **1: title**`: the original finds 42 of its 44 queries.
# Titles may have `*` and either colon.
_HEADING = re.compile(
    r"^####[ \t]+\*\*[ \t]*Query[ \t]*(?:\*\*[ \t]*\*\*[ \t]*)?(\d{1,9})[ \t]*[:：]([^\n]*)$", re.MULTILINE
)
_SECTION = re.compile(r"^#{1,3}[ \t]+([^\n]*)$", re.MULTILINE)
# The end of a query: the next heading of any level, or a rule `* * *`.
_ENDS = re.compile(r"^(?:#{1,6}\s|\*\s\*\s\*)", re.MULTILINE)
# As OWASP lists them for CSV: a cell of a stranger's text is opened in a spreadsheet.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""How a cell begins that a spreadsheet would run."""
_QUOTES = {'"': '"', "“": "”", "「": "」"}


class ProposedQuery(QueryRow):
    """A query before it is scored. Its `topic`, `domain`, `complexity_level` and `language` are its file's."""

    title: str = ""


@dataclass(frozen=True, slots=True)
class RawQuery:
    """A proposed query; `line` is the line of its heading or row, from 1.

    `topic` is its section, None outside of sections.
    """

    number: int
    title: str
    content: str
    line: int
    topic: str | None = None


def markdown_queries(text: str) -> list[RawQuery]:
    """Return the queries of a Markdown text: headings `#### **Query N: title**`, each followed by its content in
    quotes.

    Text after the last quote is a note and left out; content without quotes is taken whole.
    """
    queries = []
    line, counted_to = 1, 0
    sections = _SECTION.finditer(text)
    section = next(sections, None)
    topic = None
    for heading in _HEADING.finditer(text):
        while section is not None and section.start() < heading.start():
            topic, section = _plain(section[1]) or None, next(sections, None)
        end = _ENDS.search(text, heading.end())
        block = text[heading.end() : end.start() if end else len(text)].strip()
        # Counted on from the heading before: from the beginning each time, long files take quadratic time.
        line, counted_to = line + text.count("\n", counted_to, heading.start()), heading.start()
        queries.append(RawQuery(int(heading[1]), _plain(heading[2]), _unquoted(block), line, topic))
    return queries


def _plain(heading: str) -> str:
    return heading.replace("**", "").strip()


def _unquoted(block: str) -> str:
    closing = _QUOTES.get(block[:1])
    # The last one: the content may itself contain quotes.
    end = block.rfind(closing) if closing else -1
    if end > 0:
        return block[1:end].strip()
    return block


ALIASES: Mapping[str, tuple[str, ...]] = {
    "id": ("number", "id", "query_id", "num", "编号", "query_number", "query编号"),
    "title": ("title", "query_title", "name", "subject", "标题", "题目", "query标题"),
    "prompt": (
        "content",
        "query",
        "prompt",
        "text",
        "description",
        "内容",
        "查询",
        "问题",
        "query_content",
        "query内容",
    ),
    "topic": ("topic",),
    "domain": ("domain",),
    "complexity_level": ("complexity_level",),
    "language": ("language",),
}
"""Accepted names of a query's fields in CSV and JSON, in any case. If a row has several, the first counts."""

_DELIMITERS = ",;\t"
_LEAST_CHINESE = 0.9
_ID_DIGITS = 12

Queries = Iterator[GoodRow[ProposedQuery] | LostRow]


def read_queries(path: Path, warn: Callable[[str], None]) -> Queries:
    """Return every query of the file, by its suffix. A query without a number gets a hash of its text.

    A file in GBK is read with a note: other encodings of two bytes may look like it. Raises ConfigError if the file
    cannot be read, or has no queries.
    """
    suffix = path.suffix.lower()
    if suffix in (".json", ".jsonl"):
        return _json(path)
    readers = {".md": _markdown, ".csv": _csv, ".tsv": _csv}
    if suffix not in readers:
        raise ConfigError(
            f"{path}: found the suffix {path.suffix!r}, expected one of {', '.join(readers)}, .json, .jsonl"
        )
    return readers[suffix](path, _text(path, warn))


def _markdown(path: Path, text: str) -> Queries:
    queries = markdown_queries(text)
    if not queries:
        raise ConfigError(f"{path}:1:1: found no query, expected headings such as `#### **Query 1: title**`")
    for query in queries:
        fields = {"id": query.number, "title": query.title, "prompt": query.content, "topic": query.topic}
        yield _row(path, query.line, {name: value for name, value in fields.items() if value is not None})


def _json(path: Path) -> Queries:
    for item in read_objects(path):
        yield item if isinstance(item, LostRow) else _row(path, item.line, _fields(item.value))


def _csv(path: Path, text: str) -> Queries:
    delimiter = _delimiter(path, text)
    # newline="": the reader itself distinguishes line ends from those within quotes.
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    header: list[str] = []
    line = 1
    try:
        for cells in reader:
            # `line_num` is the row's last line: texts in quotes have several.
            begun, line = line, reader.line_num + 1
            if not any(cell.strip() for cell in cells):
                continue
            if not header:
                header = _distinct(path, begun, cells)
            elif len(cells) != len(header):
                yield LostRow(
                    begun,
                    f"{path}:{begun}:1: found {len(cells)} fields, expected the {len(header)} of the header; put texts "
                    f"that contain {delimiter!r} in double quotes",
                )
            else:
                cells_by_name = {name: cell.strip() for name, cell in zip(header, cells, strict=True) if cell.strip()}
                fields = {name: _number(from_cell(cell), name) for name, cell in _fields(cells_by_name).items()}
                yield _row(path, begun, fields)
    except csv.Error as error:
        raise ConfigError(f"{path}:{reader.line_num}:1: not readable as CSV: {error}") from error


def _delimiter(path: Path, text: str) -> str:
    """Return the delimiter by which the header names the queries' texts. Raises ConfigError if none does."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    for delimiter in _DELIMITERS:
        if "prompt" in _fields(dict.fromkeys(next(csv.reader([first], delimiter=delimiter), []), "")):
            return delimiter
    raise ConfigError(
        f"{path}:1:1: found the header {first[:200]!r}, expected a column of the queries' texts, called one of "
        f"{', '.join(ALIASES['prompt'])}"
    )


def _distinct(path: Path, line: int, header: list[str]) -> list[str]:
    names = [name.strip().casefold() for name in header]
    if twice := [name for name in header if name.strip() and names.count(name.strip().casefold()) > 1]:
        raise ConfigError(f"{path}:{line}:1: found the column {twice[0]!r} more than once, expected each once")
    return header


def _fields(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the query's fields under their own names; other names are ignored."""
    by_name = {key.strip().casefold(): value for key, value in data.items()}
    return {
        field: next(by_name[alias] for alias in aliases if alias in by_name)
        for field, aliases in ALIASES.items()
        if any(alias in by_name for alias in aliases)
    }


def _number(cell: str, field: str) -> Any:
    # Back and forth the same: `007` and `1.0` stay texts, or ids of two files would no longer meet.
    whole = field in ("id", "complexity_level") and cell.isascii() and cell.isdecimal() and str(int(cell)) == cell
    if whole:
        return int(cell)
    return cell


def as_cell(value: Any) -> Any:
    """Return a text that no spreadsheet takes for a formula: an apostrophe before it keeps it from being one."""
    if isinstance(value, str) and value.lstrip("'").startswith(_FORMULA):
        return f"'{value}"
    return value


def from_cell(cell: str) -> str:
    """Return the text that `as_cell` made this of."""
    if cell.startswith("'") and cell.lstrip("'").startswith(_FORMULA):
        return cell[1:]
    return cell


def _row(path: Path, line: int, fields: dict[str, Any]) -> GoodRow[ProposedQuery] | LostRow:
    prompt = fields.get("prompt")
    if not isinstance(prompt, str) or not prompt.strip():
        return LostRow(line, f"{path}:{line}:1: found {prompt!r} as the query's text, expected a text", fields)
    if fields.get("id") in (None, ""):
        fields["id"] = hashed_id(prompt)
    try:
        query = ProposedQuery.model_validate({name: value for name, value in fields.items() if value is not None})
    except ValidationError as error:
        problems = error.errors(include_url=False)
        messages = (f"{path}:{line}:1: {'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in problems)
        return LostRow(line, "\n".join(messages), fields)
    return GoodRow(line, query, fields)


def hashed_id(prompt: str) -> str:
    """Return the id of a query that has no number."""
    return prompt_key(prompt)[:_ID_DIGITS]


def _text(path: Path, warn: Callable[[str], None]) -> str:
    """Return the text of a file in UTF-8, with or without a mark, or in GBK. Raises ConfigError for others."""
    try:
        content = read_file(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        text = _chinese(content)
        if text is None:
            raise ConfigError(
                f"{path}: found neither UTF-8 (byte {error.start}) nor GBK; save the file as UTF-8"
            ) from error
        warn(f"{path}: read as GBK; save the file as UTF-8 if its texts look wrong")
        return text


def _chinese(content: bytes) -> str | None:
    """Return the text if GBK decodes it to Chinese, None if it decodes to rare characters of other scripts."""
    try:
        # A superset of GBK that decodes nearly everything, other encodings too: its result has to look
        # Chinese.
        text = content.decode("gb18030")
    except UnicodeDecodeError:
        return None
    letters = [character for character in text if not character.isascii()]
    usual = sum(_is_usual(character) for character in letters)
    if usual >= _LEAST_CHINESE * len(letters):
        return text
    return None


def _is_usual(character: str) -> bool:
    try:
        # GB2312 has the 6,763 usual characters; wrongly decoded bytes make rare ones.
        character.encode("gb2312")
    except UnicodeEncodeError:
        return False
    return True


def ids_in_use(reports: Sequence[Path], queries: Path) -> dict[str, RowId]:
    """Return the ids of queries in files of reports, else in the queries so far, by the keys of their prompts."""
    ids: dict[str, RowId] = {}
    for path in (*reports, queries):
        # An unreadable file of reports is reported once they are scored; a file of queries may not exist yet.
        with suppress(ConfigError):
            for row in read_research_rows(path, QueryRow):
                if isinstance(row, GoodRow):
                    ids.setdefault(prompt_key(row.value.prompt), row.value.id)
    return ids


def keep_ids(rows: Queries, ids: Mapping[str, RowId]) -> Queries:
    """Yield the queries under the ids that other files use; others whose number is taken get a hashed id.

    Reports are joined by ids too: with new ids no report would be scored.
    """
    used_ids = {str(row_id) for row_id in ids.values()}
    for row in rows:
        if isinstance(row, GoodRow):
            query = row.value
            old_id = ids.get(prompt_key(query.prompt))
            if old_id is None and str(query.id) in used_ids:
                old_id = hashed_id(query.prompt)
            if old_id is not None:
                row = replace(row, value=query.model_copy(update={"id": old_id}), data={**row.data, "id": old_id})
        yield row


def copy_former(path: Path, text: str) -> Path | None:
    """Copy the queries that `text` replaces to `<name>.<number>`. None if there are none, or they have a copy already.

    Raises ConfigError, UnwritableError.
    """
    try:
        former = read_file(path)
        if former == text.encode("utf-8", "backslashreplace"):
            return None
        copies = (path.with_name(f"{path.name}.{number}") for number in count(1))
        copy = next(candidate for candidate in copies if not candidate.exists() or read_file(candidate) == former)
        if copy.exists():
            return None
        return write_lines(copy, [former])
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}:1:1: cannot be read: {error.strerror or error}") from error
