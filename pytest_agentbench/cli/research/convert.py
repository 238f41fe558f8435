"""`agentbench research convert`: queries or reports in Markdown to JSONL (seed 003, convert_md_to_jsonl)."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.cli.printing import printable
from pytest_agentbench.cli.research.options import add

if TYPE_CHECKING:
    from pytest_agentbench.research.converting import ConvertedReport, Queries

_Rows = dict[str, list[Mapping[str, Any]]]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command with its options."""
    parser = subparsers.add_parser(
        "convert",
        help="turn Markdown into JSONL",
        description="Turn Markdown into JSONL. A file with headings `#### **Query N: title**` gives the rows of "
        "query.jsonl. Any other file is one report: its query is told by the id that its name begins with (1-gpt.md) "
        "and --query_file, or by front matter with id and prompt; citations, sources and words are counted, other "
        "execution_metrics are null. Rows are printed unless a file or folder is named. The exit status is 1 if "
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
        help="write query.jsonl, or for each model <model>.jsonl, to this folder; a report's model is what follows the "
        "id in its file's name, `model` in its front matter, or else its folder's name",
    )


def run(args: argparse.Namespace) -> int:
    """Writes what can be converted; problems go to stderr and make the exit status 1."""
    from pytest_agentbench.cli.places import existing

    problems: list[str] = []
    texts = _texts(existing(args.paths), problems)
    queries = None if args.query_file is None else _queries(args.query_file, problems)
    rows = _rows(texts, queries, problems)
    if args.output_dir is not None:
        for name, found in rows.items():
            _write(args.output_dir / f"{name}.jsonl", found)
    elif args.output_path is not None:
        _write(args.output_path, [row for found in rows.values() for row in found])
    else:
        _print([row for found in rows.values() for row in found])
    for problem in problems:
        print(printable(problem), file=sys.stderr)
    return 1 if problems else 0


def _rows(texts: Mapping[Path, str], queries: Queries | None, problems: list[str]) -> _Rows:
    """The rows by the stem of the file that they belong to."""
    from pytest_agentbench.errors import ConfigError
    from pytest_agentbench.research.converting import holds_queries, query_rows, report_row

    rows: _Rows = {}
    first_of: dict[tuple[str, str], Path] = {}
    for path, text in texts.items():
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
    """Adds rows to those of a file, where each id may stand once."""
    for row in new:
        first = first_of.setdefault((name, str(row["id"])), path)
        if first == path:
            rows.setdefault(name, []).append(row)
        else:
            problems.append(f"{path}:1:1: found the id {row['id']!r} of {first} again, expected one of its own")


def _model(report: ConvertedReport) -> str:
    return report.model or report.path.parent.name


def _texts(paths: Iterable[Path], problems: list[str]) -> dict[Path, str]:
    """The Markdown files by path, those of a folder in the order of the numbers in their names."""
    from pytest_agentbench.config import read_bytes
    from pytest_agentbench.errors import ConfigError

    texts: dict[Path, str] = {}
    for given in paths:
        files = sorted(given.glob("*.md"), key=_natural) if given.is_dir() else [given]
        if not files:
            problems.append(f"{given}: found no file *.md")
        for path in files:
            try:
                texts[path] = read_bytes(path).decode("utf-8-sig").replace("\r\n", "\n")
            except ConfigError as error:
                problems.append(str(error))
            except UnicodeDecodeError as error:
                problems.append(f"{path}:1:1: found text that is not UTF-8 (byte {error.start}); save it as UTF-8")
    return texts


def _natural(path: Path) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,18})", path.stem)]


def _queries(path: Path, problems: list[str]) -> Queries:
    from pytest_agentbench.records import QueryRow
    from pytest_agentbench.research.converting import Queries
    from pytest_agentbench.sources.research_rows import GoodRow, read_research_rows

    good = []
    for row in read_research_rows(path, QueryRow):
        if isinstance(row, GoodRow):
            good.append(row.value)
        else:
            problems += row.message.splitlines()
    return Queries(path, good)


def _write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    from pytest_agentbench.research.files import write_rows

    print(f"{write_rows(path, rows)}: {len(rows):,} row{'' if len(rows) == 1 else 's'}", file=sys.stderr)


def _print(rows: Iterable[Mapping[str, Any]]) -> None:
    import json

    for row in rows:
        print(json.dumps(row, ensure_ascii=False))
