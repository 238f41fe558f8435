"""A file's rows, and what is wrong with them together: what repeats, what is empty, what is in another language."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from pytest_agentbench.records import Language, QueryRow, RaceCriteria, ReferenceRow, ReportRow
from pytest_agentbench.research.cleaning import cleaned
from pytest_agentbench.research.linting.finding import Finding, findings_of, quoted
from pytest_agentbench.sources.research_rows import GoodRow, LostRow, language_of, prompt_key, read_research_rows

R = TypeVar("R", bound=QueryRow | RaceCriteria | ReferenceRow | ReportRow)

_CHINESE = re.compile("[\u3400-\u9fff]")
_FEWEST_CHINESE = 2
"""Characters: a query with fewer is in another language."""


@dataclass(frozen=True)
class Table(Generic[R]):
    """The rows of one file by line, those that cannot be read apart."""

    path: Path
    rows: tuple[GoodRow[R], ...]
    lost: tuple[LostRow, ...]

    def __len__(self) -> int:
        return len(self.rows) + len(self.lost)


def read_table(path: Path, record: type[R]) -> Table[R]:
    """Raises ConfigError where the file cannot be read at all."""
    rows = list(read_research_rows(path, record))
    good = tuple(row for row in rows if isinstance(row, GoodRow))
    return Table(path, good, tuple(row for row in rows if isinstance(row, LostRow)))


def row_findings(table: Table[R]) -> Iterator[Finding]:
    """Rows that cannot be read or are empty, and ids and prompts that stand in the file before."""
    path = table.path
    if not len(table):
        yield Finding(path, 1, "error", "", "no row", "at least one")
    for lost in table.lost:
        yield from findings_of(lost.message, path)
    lines: dict[tuple[str, str], int] = {}
    for row in table.rows:
        if not row.value.prompt.strip():
            yield Finding(path, row.line, "error", "prompt", "an empty text", "the query")
        if isinstance(row.value, ReferenceRow | ReportRow) and not row.value.article.strip():
            yield Finding(path, row.line, "error", "article", "an empty text", "a report")
        keys = {"id": str(row.value.id), "prompt": prompt_key(row.value.prompt)}
        for field, key in keys.items():
            first = lines.setdefault((field, key), row.line)
            if first != row.line:
                shown = repr(row.value.id) if field == "id" else quoted(row.value.prompt)
                yield Finding(path, row.line, "error", field, f"{shown} of line {first} again", "one row for each")


def language_findings(table: Table[QueryRow] | Table[ReportRow]) -> Iterator[Finding]:
    """Rows whose `language` is not that of their prompt, and reports in another language than their query."""
    for row in table.rows:
        value = row.value
        said, seen = value.language, language_of(value.prompt)
        if said is not None and said != seen and (said == "en" or not _has_chinese(value.prompt)):
            yield Finding(table.path, row.line, "warning", "language", repr(said), f"{seen!r}, that of the prompt")
        if isinstance(value, ReportRow) and value.article.strip():
            yield from _article_language(table.path, row.line, value.article, said or seen)


def same_articles(tables: Iterable[Table[ReportRow] | Table[ReferenceRow]]) -> Iterator[Finding]:
    """Reports with the very text of another: a copy by mistake, or a reference that is scored against itself."""
    first_of: dict[str, tuple[Path, int]] = {}
    for table in tables:
        for row in table.rows:
            text = row.value.article.strip()
            first = first_of.setdefault(prompt_key(text), (table.path, row.line))
            if text and first != (table.path, row.line):
                found = f"the text of {first[0]}:{first[1]}"
                yield Finding(table.path, row.line, "warning", "article", found, "a report of its own")


def _article_language(path: Path, line: int, article: str, expected: Language) -> Iterator[Finding]:
    found = language_of(cleaned(article))
    if found != expected:
        yield Finding(path, line, "review", "article", f"a text in {found!r}", f"{expected!r}, that of the query")


def _has_chinese(text: str) -> bool:
    return len(_CHINESE.findall(text)) >= _FEWEST_CHINESE
