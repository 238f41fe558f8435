"""The rows that a stage works on, and the files that they are joined with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records import Language, QueryRow, RaceCriteria, ReferenceRow, ReportRow
from pytest_agentbench.sources.research_rows import (
    GoodRow,
    Joined,
    LostRow,
    Prompted,
    distinct,
    language_of,
    read_research_rows,
)

if TYPE_CHECKING:
    from pytest_agentbench.cli.research.call import Call

R = TypeVar("R", bound=ReportRow | QueryRow)
P = TypeVar("P", bound=ReportRow | QueryRow | RaceCriteria | ReferenceRow)
Q = TypeVar("Q", bound=Prompted)


def spoken(row: ReportRow | QueryRow) -> Language:
    """The language that a row is judged in: what it says, else its prompt's."""
    return row.language or language_of(row.prompt)


def input_rows(
    call: Call, path: Path, record: type[R], language: Callable[[R], Language] = spoken
) -> list[GoodRow[R] | LostRow]:
    """The rows of a file that --only_zh, --only_en and --limit leave. One that repeats another's prompt or id is lost.

    Rows in a language that the config does not support are skipped, and told. Raises ConfigError where the file cannot
    be read, or has no row.
    """
    return chosen_rows(call, path, read_research_rows(path, record), language)


def chosen_rows(
    call: Call, path: Path, found_rows: Iterable[GoodRow[R] | LostRow], language: Callable[[R], Language] = spoken
) -> list[GoodRow[R] | LostRow]:
    """The same of rows that are already read."""
    rows: list[GoodRow[R] | LostRow] = []
    skipped: list[str] = []
    empty = True
    for row in distinct(path, found_rows):
        empty = False
        if isinstance(row, GoodRow):
            found = language(row.value)
            if call.args.only not in (None, found):
                continue
            if found not in call.config.evaluation_settings.language_support:
                skipped.append(f"{row.value.id!r} ({found})")
                continue
        rows.append(row if isinstance(row, GoodRow) else replace(row, message=_why_lost(path, row)))
        if len(rows) == call.args.limit:
            break
    if empty:
        raise ConfigError(f"{path}:1:1: found no row")
    if skipped:
        call.warn(f"{path}: {len(skipped)} skipped, as language_support lacks their language: {', '.join(skipped)}")
    return rows


def joined(call: Call, path: Path, record: type[P]) -> Joined[P]:
    """The rows of a file by their prompts; those that cannot be used are told. Raises ConfigError, like input_rows."""
    return joined_briefly(call, path, record, lambda row: row)


def joined_briefly(call: Call, path: Path, record: type[P], brief: Callable[[P], Q]) -> Joined[Q]:
    """The same of what `brief` makes of each row, so that rows with whole pages are not all in memory."""
    good = []
    for row in read_research_rows(path, record):
        if isinstance(row, GoodRow):
            good.append((row.line, brief(row.value)))
        else:
            said = _said(row)
            if said is None or not call.has_told(said):
                call.warn(_why_lost(path, row))
    found: Joined[Q] = Joined(path, good)
    for problem in found.problems:
        call.warn(problem)
    return found


def value_of(row: GoodRow[R] | LostRow) -> R:
    """What a row says. Raises ConfigError where it is lost."""
    if isinstance(row, LostRow):
        raise ConfigError(row.message)
    return row.value


def label(row: GoodRow[Any] | LostRow) -> str:
    """What a row is called where it failed."""
    return f"line {row.line}" if isinstance(row, LostRow) else repr(row.value.id)


def failed_row(row: GoodRow[Any] | LostRow, key: str, error: Exception) -> dict[str, Any]:
    """What a stage's file has of a row that failed; `key` is such as `race_error`."""
    data = row.data or {}
    named = {name: data[name] for name in ("id", "prompt") if name in data}
    return {**(named or {"line": row.line}), key: str(error)}


def _why_lost(path: Path, row: LostRow) -> str:
    """What an earlier stage said of the row, else what is wrong with it."""
    said = _said(row)
    return row.message if said is None else f"{path}:{row.line}:1: {said}"


def _said(row: LostRow) -> str | None:
    """What an earlier stage said of the row, where one did."""
    said = (value for key, value in (row.data or {}).items() if key.endswith("_error") and isinstance(value, str))
    return next(said, None)
