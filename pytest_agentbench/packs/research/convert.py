"""Command convert: Markdown to rows of queries or reports (seed 003, convert_md_to_jsonl)."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ConfigDict

from pytest_agentbench.bounded.writing import write_rows
from pytest_agentbench.cli.output import printable
from pytest_agentbench.cli.places import require_existing
from pytest_agentbench.config.base import Scope, validate
from pytest_agentbench.config.documents import MAX_BYTES, parse_yaml
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.research.commands import add
from pytest_agentbench.packs.research.query_files import markdown_queries
from pytest_agentbench.packs.research.records import ExecutionMetrics, QueryRow, RowId, count_article
from pytest_agentbench.packs.research.rows import GoodRow, language_of, prompt_key, read_research_rows, read_utf8
from pytest_agentbench.records.base import Record
from pytest_agentbench.terminal_text import count_text

_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?\n)---[ \t]*(?:\n|\Z)", re.DOTALL)
_SEPARATORS = "-_. "
# A model names a file of reports: nothing of its name may lead to another folder.
_FILE_NAME = re.compile(r"[^./\\\x00-\x1f][^/\\\x00-\x1f]{0,199}")


class _FrontMatter(Record):
    """Front matter of a report's file; its other fields are for its readers."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: RowId | None = None
    prompt: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class ConvertedReport:
    """A row of a file of reports. `model` is None if neither the file's name nor its front matter has it."""

    path: Path
    model: str | None
    row: Mapping[str, Any]


class Queries:
    """Queries that reports answer, by id and by prompt. An id or prompt of several rows is an error."""

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
        """Raise ConfigError unless it is the id of one row alone."""
        return self._only(self._by_id.get(str(row_id), []), f"with the id {row_id!r}")

    def of_prompt(self, prompt: str) -> QueryRow:
        """Raise ConfigError unless it is the prompt of one row alone."""
        return self._only(self._by_prompt.get(prompt_key(prompt), []), "with the prompt of the front matter")

    def _only(self, rows: list[QueryRow], what: str) -> QueryRow:
        # Two queries of one id: whichever were taken, half of the reports would be scored against the wrong one.
        if len(rows) != 1:
            raise ConfigError(f"{self.path}: found {len(rows) or 'no'} rows {what}, expected one")
        return rows[0]


def holds_queries(text: str) -> bool:
    """Return whether a Markdown text has headings of queries, and no front matter as reports may have."""
    return _FRONT_MATTER.match(text) is None and bool(markdown_queries(text))


def query_rows(path: Path, text: str, problems: list[str]) -> list[dict[str, Any]]:
    """Return the rows of query.jsonl for the queries of a Markdown text; others are listed in `problems`."""
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
            problems.append(f"{place}: found {what} of line {line} again, expected a different one")
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
    """Return the row of the report in a Markdown file, with all countable values; others are null.

    Its query is found by the front matter's `id` or `prompt`, else by the id at the beginning of the file's name
    (`<id>.md`, `<id>-<model>.md`). Raises ConfigError if it is unknown, or the file has no text.
    """
    header, article = _front_matter(path, text)
    named_id, model = _of_name(path.stem, queries)
    query_id, prompt = _query(path, header, named_id, queries)
    if not article.strip():
        raise ConfigError(f"{path}:1:1: found no text, expected a report")
    if header.model is not None and not _FILE_NAME.fullmatch(header.model):
        raise ConfigError(f"{path}:1:1: model: found {header.model!r}, expected a valid file name, without / or \\")
    numbers = count_article(article)
    # All fields of the seed, with null for values that Markdown cannot have: the file shows the fields to
    # fill in.
    metrics = ExecutionMetrics().model_dump() | {
        "sources_used": numbers.sources,
        "citation_count": numbers.citations,
        "word_count": numbers.words,
    }
    row = {"id": query_id, "prompt": prompt, "article": article, "execution_metrics": metrics}
    return ConvertedReport(path, header.model or model, row)


def _query(path: Path, header: _FrontMatter, named_id: str | None, queries: Queries | None) -> tuple[RowId, str]:
    """Return the id and the prompt of a report's query."""
    if queries is None:
        if header.id is None or header.prompt is None:
            raise ConfigError(
                f"{path}:1:1: found no known query; name a --query_file that has it, or begin the file with front "
                "matter that has id and prompt"
            )
        return header.id, header.prompt
    # The front matter first: it is written for the purpose, and a file's name may begin with a number by chance.
    if header.id is not None:
        query = queries.of_id(header.id)
    elif header.prompt is not None:
        query = queries.of_prompt(header.prompt)
    elif named_id is not None:
        query = queries.of_id(named_id)
    else:
        raise ConfigError(
            f"{path}:1:1: found no id of {queries.path} at the beginning of the file's name, expected <id>.md or "
            "<id>-<model>.md, or front matter with id or prompt"
        )
    if header.prompt is not None and prompt_key(header.prompt) != prompt_key(query.prompt):
        raise ConfigError(f"{path}:1:1: prompt: found another one than {queries.path} has for the id {query.id!r}")
    return query.id, query.prompt


def _front_matter(path: Path, text: str) -> tuple[_FrontMatter, str]:
    """Return the mapping between `---` lines at the beginning, if there is one, and the text after it."""
    header = _FRONT_MATTER.match(text)
    if header is None:
        return _FrontMatter(), text
    document = parse_yaml(f"\n{header[1]}".encode("utf-8", "replace"), path)  # as it begins on the second line
    # Two rules at the beginning of a text without front matter.
    if not isinstance(document.data, dict):
        return _FrontMatter(), text
    return validate(document, _FrontMatter, Scope(str(path.parent))), text[header.end() :].removeprefix("\n")


def _of_name(stem: str, queries: Queries | None) -> tuple[str | None, str | None]:
    """Return the longest id that the name begins with, and the model's name behind it."""
    if queries is None:
        return None, None
    # The longest id first: of `1-2-gpt.md` it may be `1` or `1-2`.
    for end in range(len(stem), 0, -1):
        if (end == len(stem) or stem[end] in _SEPARATORS) and stem[:end] in queries:
            return stem[:end], stem[end + 1 :] or None
    return None, None


_Rows = dict[str, list[Mapping[str, Any]]]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "convert",
        description="Turn Markdown into JSONL. A file with headings `#### **Query N: title**` gives the rows of "
        "query.jsonl. Any other file is one report: its query is found by the id at the beginning of its name "
        "(1-gpt.md) in --query_file, or by front matter with id and prompt; citations, sources and words are counted, "
        "other execution_metrics are null. Rows are printed unless a file or folder is named. The exit status is 1 if "
        "something could not be converted.",
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="Markdown files, or folders of them")
    add(parser, "--query_file", type=Path, metavar="FILE", help="the queries of reports: JSONL with id and prompt")
    output = parser.add_mutually_exclusive_group()
    add(output, "--output_path", type=Path, metavar="FILE", help="write all rows to this file")
    add(
        output,
        "--output_dir",
        type=Path,
        metavar="DIR",
        help="write query.jsonl, or for each model <model>.jsonl, to this folder; a report's model follows the "
        "id in its file's name, `model` in its front matter, or else its folder's name",
    )


def run(args: argparse.Namespace) -> int:
    """Write all convertible files; problems go to stderr and make the exit status 1."""
    problems: list[str] = []
    texts = _texts(require_existing(args.paths), problems)
    queries = None if args.query_file is None else _queries(args.query_file, problems)
    rows = _rows(texts, queries, problems)
    if args.output_dir is not None:
        for name, file_rows in rows.items():
            _write(args.output_dir / f"{name}.jsonl", file_rows)
    elif args.output_path is not None:
        _write(args.output_path, [row for file_rows in rows.values() for row in file_rows])
    else:
        _print([row for file_rows in rows.values() for row in file_rows])
    for problem in problems:
        print(printable(problem), file=sys.stderr)
    if problems:
        return 1
    return 0


def _rows(texts: Mapping[Path, str], queries: Queries | None, problems: list[str]) -> _Rows:
    """Return the rows by the stem of the file that they belong to."""
    rows: _Rows = {}
    first_of: dict[tuple[str, str], Path] = {}
    for path, text in texts.items():
        # With --query-file every file is a report, even one that quotes queries in the form of headings.
        if queries is None and holds_queries(text):
            _add(rows, "query", query_rows(path, text, problems), path, first_of, problems)
            continue
        try:
            report = report_row(path, text, queries)
        except ConfigError as error:
            problems += str(error).splitlines()
        else:
            _add(rows, _model(report), [report.row], path, first_of, problems)
    return rows


def _add(
    rows: _Rows,
    name: str,
    new: Iterable[Mapping[str, Any]],
    path: Path,
    first_of: dict[tuple[str, str], Path],
    problems: list[str],
) -> None:
    """Add rows to a file's rows; ids must be unique."""
    for row in new:
        first = first_of.setdefault((name, str(row["id"])), path)
        if first == path:
            rows.setdefault(name, []).append(row)
        else:
            problems.append(f"{path}:1:1: found the id {row['id']!r} of {first} again, expected a different one")


def _model(report: ConvertedReport) -> str:
    return report.model or report.path.parent.name


def _texts(paths: Iterable[Path], problems: list[str]) -> dict[Path, str]:
    """Return the Markdown files by path, in a folder in the order of the numbers in their names."""
    texts: dict[Path, str] = {}
    for source in paths:
        files = sorted(source.glob("*.md"), key=_natural) if source.is_dir() else [source]
        if not files:
            problems.append(f"{source}: found no file *.md")
        for path in files:
            try:
                # A byte order mark would hide front matter, and `\r` would be in every article.
                texts[path] = read_utf8(path, MAX_BYTES).replace("\r\n", "\n")
            except ConfigError as error:
                problems.append(str(error))
    return texts


def _natural(path: Path) -> list[tuple[int, str]]:
    # So that 2.md comes before 10.md; digits are bounded, for int() of thousands of them is slow.
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,18})", path.stem)]


def _queries(path: Path, problems: list[str]) -> Queries:
    good = []
    for row in read_research_rows(path, QueryRow):
        if isinstance(row, GoodRow):
            good.append(row.value)
        else:
            problems += row.message.splitlines()
    return Queries(path, good)


def _write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    print(f"{write_rows(path, rows)}: {count_text(len(rows), 'row')}", file=sys.stderr)


def _print(rows: Iterable[Mapping[str, Any]]) -> None:
    import json

    for row in rows:
        print(json.dumps(row, ensure_ascii=False))
