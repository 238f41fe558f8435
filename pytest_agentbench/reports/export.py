"""A report's runs as a table, one row a run: CSV for spreadsheets, Parquet for programs."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_agentbench.errors import UnwritableError
from pytest_agentbench.reports.datasets import TAG
from pytest_agentbench.reports.sections import Kind, sections_in
from pytest_agentbench.terminal_text import sendable, visible_line

if TYPE_CHECKING:
    import pyarrow

_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")
"""First characters of a cell that spreadsheets read as a formula; the last four are full-width forms."""
_LINES = 1_000
_NUMBERS: dict[str, type[int] | type[float]] = {"integer": int, "number": float}
_PLAIN: dict[str, Kind] = {
    "nodeid": "text",
    "line": "integer",
    "case_id": "text",
    "model_id": "text",
    "variant": "text",
    "label": "text",
    "repetition": "integer",
    "outcome": "text",
    "status": "text",
    "message": "text",
    "tags": "texts",
    "dataset": "text",
    "must_pass": "boolean",
    "scripted": "boolean",
    "own_agent": "boolean",
    "predictions": "text",
    "final_score": "number",
    "duration_seconds": "number",
    "reused": "boolean",
    "evaluation_reused": "boolean",
    "cassette": "text",
    "fingerprint": "text",
    "artifact": "text",
    "evaluation": "text",
    "title": "text",
    "question": "text",
    "expected": "text",
    "answer": "text",
}
"""Columns that are a row's own fields."""
_CHECKS = ("passed", "failed", "error", "skipped")


class Column(NamedTuple):
    """Column of the table; `path` is the place of its value in a row."""

    name: str
    kind: Kind
    path: tuple[str, ...]


def columns(report: Mapping[str, Any]) -> list[Column]:
    """Return the table's columns: the same for all reports, then one for each score and group field of this one.

    `variant` is a column if the report has variants. Scores are `metric.NAME`, `agreement.NAME`,
    `judge.DIMENSION`, and `SECTION.FIGURE` of packs; `field.NAME` is for groups of a dataset.
    A section's figure with a value that its kind cannot hold is a column of text: JSON, but for values that are text.
    """
    rows = report["runs"]
    names = [name for name in _PLAIN if name != "variant" or "variants" in report]
    table_columns = [Column(name, _PLAIN[name], (name,)) for name in names]
    table_columns += [Column(f"checks.{name}", "texts", ("checks", name)) for name in _CHECKS]
    roles = _list_names(rows, "roles")
    table_columns += [Column(f"cost_usd.{part}", "number", ("cost_usd", part)) for part in ("run", "judge", *roles)]
    tokens = ("input", "output", "total", "reasoning", "cached", "cache_write")
    table_columns += [Column(f"tokens.{part}", "integer", ("usage", f"{part}_tokens")) for part in tokens]
    for role in roles:
        counts = ("input", "output", "total")
        table_columns += [
            Column(f"tokens.{role}.{part}", "integer", ("roles", role, f"{part}_tokens")) for part in counts
        ]
    for title, key in (("metric", "metrics"), ("agreement", "agreement"), ("judge", "judge")):
        table_columns += [Column(f"{title}.{name}", "number", (key, name)) for name in _list_names(rows, key)]
    for key, section in sections_in(rows).items():
        for name in _list_names(rows, key):
            values = [row[key].get(name) for row in rows if row.get(key) is not None]
            kind = section.column_kinds.get(name, "number")
            if not _fits(kind, values):
                kind = "text"
            table_columns.append(Column(f"{key}.{name}", kind, (key, name)))
    groups = [group["field"] for dataset in report["datasets"] for group in dataset["breakdown"]]
    fields = [name for name in dict.fromkeys(groups) if name != TAG]
    return table_columns + [Column(f"field.{name}", "text", ("fields", name)) for name in fields]


def _fits(kind: Kind, values: Iterable[Any]) -> bool:
    """Return whether a column of this kind can hold all values of a section's figure, which may be any JSON values."""
    accepts = _ACCEPTED[kind]
    return all(value is None or accepts(value) for value in values)


def _is_number(value: Any) -> bool:
    # `float` raises OverflowError for whole numbers beyond its range
    return isinstance(value, float) or (isinstance(value, int) and abs(value) <= sys.float_info.max)


_ACCEPTED: dict[Kind, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "texts": lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value),
    # JSON may write a whole number as a fraction; Arrow's integers have 64 bits
    "integer": lambda value: _is_number(value) and -(2**63) <= value < 2**63 and value == int(value),
    "number": _is_number,
    "boolean": lambda value: isinstance(value, bool),
}
"""Whether a column of a kind can hold a value as it is."""


def csv_text(report: Mapping[str, Any]) -> Iterator[str]:
    r"""Yield the table as CSV (RFC 4180, `\n` as the end of a line), in parts of many lines.

    A text cannot become a formula (a `'` is put in front) nor break a line (control characters are escaped). Lists and
    objects are JSON. An unknown value is an empty cell.
    """
    table_columns = columns(report)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([_make_cell(column.name) for column in table_columns])
    for at, row in enumerate(report["runs"], 1):
        values = _with_checks(row)
        writer.writerow([_make_cell(_read_value(values, column)) for column in table_columns])
        if at % _LINES == 0:
            yield buffer.getvalue()
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue()


def write_csv(report: Mapping[str, Any], path: Path) -> None:
    """Write the table as CSV in UTF-8, whole or not at all. Raises UnwritableError."""
    from pytest_agentbench.bounded.writing import write_lines

    write_lines(path, (part.encode("utf-8", "replace") for part in csv_text(report)))


def write_parquet(report: Mapping[str, Any], path: Path) -> None:
    """Write the table as Parquet, typed and with text as it is, whole or not at all.

    Raises UnwritableError, also for a number beyond 64 bits, and ImportError without the extra `parquet`.
    """
    import pyarrow
    import pyarrow.parquet

    from pytest_agentbench.bounded.writing import write_lines

    sink = pyarrow.BufferOutputStream()
    try:
        table = _make_arrow_table(report)
    except OverflowError as error:
        raise UnwritableError(f"{path}: cannot be written: {error}") from error
    pyarrow.parquet.write_table(table, sink, compression="zstd")
    write_lines(path, [sink.getvalue().to_pybytes()])


def _make_arrow_table(report: Mapping[str, Any]) -> pyarrow.Table:
    import pyarrow

    types = {
        "text": pyarrow.string(),
        "texts": pyarrow.list_(pyarrow.string()),
        "integer": pyarrow.int64(),
        "number": pyarrow.float64(),
        "boolean": pyarrow.bool_(),
    }
    rows = [_with_checks(row) for row in report["runs"]]
    arrays, fields = [], []
    for column in columns(report):
        values = [_storable(_read_value(row, column)) for row in rows]
        try:
            arrays.append(pyarrow.array(values, types[column.kind]))
        except OverflowError as error:
            raise OverflowError(f"{column.name} has a number beyond 64 bits, which CSV can hold") from error
        fields.append(pyarrow.field(sendable(column.name), types[column.kind]))
    return pyarrow.Table.from_arrays(arrays, schema=pyarrow.schema(fields))


def _storable(value: Any) -> Any:
    if isinstance(value, list):
        return [_storable(item) for item in value]
    if isinstance(value, str):
        return sendable(value)
    return value


def _with_checks(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row with the ids of its checks by how they ended."""
    named = {how: [check["check_id"] for check in row["checks"] if check["outcome"] == how] for how in _CHECKS}
    return {**row, "checks": named}


def _read_value(row: Mapping[str, Any], column: Column) -> Any:
    current: Any = row
    for key in column.path:
        if current is not None:
            current = current.get(key)
    if column.kind == "text" and not isinstance(current, str | None):
        return json.dumps(current, ensure_ascii=False)
    if current is None or column.kind not in _NUMBERS:
        return current
    # JSON may write either as the other; Arrow takes no float for an int64
    return _NUMBERS[column.kind](current)


def _list_names(rows: Sequence[Mapping[str, Any]], key: str) -> list[str]:
    """Return the names under a row's `key`, in order of first appearance."""
    return list(dict.fromkeys(name for row in rows for name in row.get(key) or ()))


def _make_cell(value: Any) -> Any:
    if isinstance(value, list):
        value = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, str):
        if value is None:
            return ""
        return value
    # Blanks before the sign do not keep a spreadsheet from taking the cell for a formula
    text = visible_line(value)
    if text.lstrip().startswith(_FORMULA):
        return f"'{text}"
    return text
