"""Markdown to rows: a file of queries, or reports, each a file of its own (seed 003, convert_md_to_jsonl)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ConfigDict

from pytest_agentbench.config import Scope, parse_yaml, validate
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records import ExecutionMetrics, QueryRow, Record, RowId
from pytest_agentbench.research.counting import counted
from pytest_agentbench.research.raw_queries import markdown_queries
from pytest_agentbench.sources.research_rows import language_of, prompt_key

_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?\n)---[ \t]*(?:\n|\Z)", re.DOTALL)
_SEPARATORS = "-_. "
_FILE_NAME = re.compile(r"[^./\\\x00-\x1f][^/\\\x00-\x1f]{0,199}")


class _FrontMatter(Record):
    """What a report's file may say of itself; its other fields are for its readers."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: RowId | None = None
    prompt: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class ConvertedReport:
    """A row of a file of reports. `model` is None where neither the file's name nor its front matter tells it."""

    path: Path
    model: str | None
    row: Mapping[str, Any]


class Queries:
    """The queries that reports answer, by id and by prompt. What several rows of a file share finds none of them."""

    def __init__(self, path: Path, rows: Iterable[QueryRow]) -> None:
        self.path = path
        self._by_id: dict[str, list[QueryRow]] = {}
        self._by_prompt: dict[str, list[QueryRow]] = {}
        for row in rows:
            self._by_id.setdefault(str(row.id), []).append(row)
            self._by_prompt.setdefault(prompt_key(row.prompt), []).append(row)

    def __contains__(self, row_id: str) -> bool:
        return row_id in self._by_id

    def of_id(self, row_id: RowId) -> QueryRow:
        """Raises ConfigError unless it is the id of one row alone."""
        return self._only(self._by_id.get(str(row_id), []), f"with the id {row_id!r}")

    def of_prompt(self, prompt: str) -> QueryRow:
        """Raises ConfigError unless it is the prompt of one row alone."""
        return self._only(self._by_prompt.get(prompt_key(prompt), []), "with the prompt of the front matter")

    def _only(self, rows: list[QueryRow], what: str) -> QueryRow:
        if len(rows) != 1:
            raise ConfigError(f"{self.path}: found {len(rows) or 'no'} rows {what}, expected one")
        return rows[0]


def holds_queries(text: str) -> bool:
    """Whether a Markdown text has headings of queries, and no front matter as reports may have."""
    return _FRONT_MATTER.match(text) is None and bool(markdown_queries(text))


def query_rows(path: Path, text: str, problems: list[str]) -> list[dict[str, Any]]:
    """The rows of query.jsonl for the queries of a Markdown text; those that cannot be are told in `problems`."""
    rows: list[dict[str, Any]] = []
    first_of: dict[int | str, int] = {}
    for query in markdown_queries(text):
        place = f"{path}:{query.line}:1"
        if not query.content:
            problems.append(f"{place}: content: query {query.number} has none; write it below its heading, in quotes")
            continue
        repeated = [(key, first_of[key]) for key in (query.number, prompt_key(query.content)) if key in first_of]
        for key, line in repeated[:1]:
            what = f"the number {key}" if isinstance(key, int) else "the content"
            problems.append(f"{place}: found {what} of line {line} again, expected one of its own")
        if not repeated:
            first_of |= {query.number: query.line, prompt_key(query.content): query.line}
            rows.append(
                {
                    "id": query.number,
                    "topic": query.topic,
                    "language": language_of(query.content),
                    "prompt": query.content,
                }
            )
    return rows


def report_row(path: Path, text: str, queries: Queries | None) -> ConvertedReport:
    """The row of the report that a Markdown file is, with what can be counted in it; what cannot is null.

    Its query is that of the front matter's `id` or `prompt`, else of the id that the file's name begins with
    (`<id>.md`, `<id>-<model>.md`). Raises ConfigError where it is not known, or the file has no text.
    """
    said, article = _front_matter(path, text)
    named, model = _of_name(path.stem, queries)
    query_id, prompt = _query(path, said, named, queries)
    if not article.strip():
        raise ConfigError(f"{path}:1:1: found no text, expected a report")
    if said.model is not None and not _FILE_NAME.fullmatch(said.model):
        raise ConfigError(
            f"{path}:1:1: model: found {said.model!r}, expected what can be a file's name, without / or \\"
        )
    numbers = counted(article)
    metrics = ExecutionMetrics().model_dump() | {
        "sources_used": numbers.sources,
        "citation_count": numbers.citations,
        "word_count": numbers.words,
    }
    row = {"id": query_id, "prompt": prompt, "article": article, "execution_metrics": metrics}
    return ConvertedReport(path, said.model or model, row)


def _query(path: Path, said: _FrontMatter, named: str | None, queries: Queries | None) -> tuple[RowId, str]:
    """The id and the prompt of what a report answers."""
    if queries is None:
        if said.id is None or said.prompt is None:
            raise ConfigError(
                f"{path}:1:1: found no known query; name a --query_file that has it, or begin the file with front "
                "matter that has id and prompt"
            )
        return said.id, said.prompt
    if said.id is not None:
        query = queries.of_id(said.id)
    elif said.prompt is not None:
        query = queries.of_prompt(said.prompt)
    elif named is not None:
        query = queries.of_id(named)
    else:
        raise ConfigError(
            f"{path}:1:1: found no id of {queries.path} at the beginning of the file's name, expected <id>.md or "
            "<id>-<model>.md, or front matter with id or prompt"
        )
    if said.prompt is not None and prompt_key(said.prompt) != prompt_key(query.prompt):
        raise ConfigError(f"{path}:1:1: prompt: found another one than {queries.path} has for the id {query.id!r}")
    return query.id, query.prompt


def _front_matter(path: Path, text: str) -> tuple[_FrontMatter, str]:
    """What stands between `---` lines at the beginning, where that is a mapping, and the text after it."""
    found = _FRONT_MATTER.match(text)
    if found is None:
        return _FrontMatter(), text
    document = parse_yaml(f"\n{found[1]}".encode("utf-8", "replace"), path)  # as it begins on the second line
    if not isinstance(document.data, dict):
        return _FrontMatter(), text
    return validate(document, _FrontMatter, Scope(str(path.parent))), text[found.end() :].removeprefix("\n")


def _of_name(stem: str, queries: Queries | None) -> tuple[str | None, str | None]:
    """The longest id that the name begins with, and the model's name behind it."""
    if queries is None:
        return None, None
    for end in range(len(stem), 0, -1):
        if (end == len(stem) or stem[end] in _SEPARATORS) and stem[:end] in queries:
            return stem[:end], stem[end + 1 :] or None
    return None, None
