"""Files of FACT's stages: rows with whole pages, of which only the heads are kept in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pytest_agentbench.bounded.files import open_file
from pytest_agentbench.bounded.json_files import parse_value
from pytest_agentbench.bounded.writing import encode_row, require_writable, write_lines
from pytest_agentbench.errors import ConfigError, UnwritableError
from pytest_agentbench.packs.research.fact.rows import FactRow
from pytest_agentbench.packs.research.records import QueryRow
from pytest_agentbench.packs.research.rows import GoodRow, LostRow, read_research_rows

HeadRow = GoodRow[QueryRow] | LostRow
"""A row whose pages stay in its file: `data` has its id, its prompt and why it failed."""


class StoredRows:
    """Rows of a file, which is held open, so that it may be replaced meanwhile. Raises ConfigError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # Without a limit: rows are read one at a time.
        try:
            self._file = open_file(path, limit=None)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def heads(self, record: type[FactRow] = FactRow) -> Iterator[HeadRow]:
        """Yield all rows, each validated. Raises ConfigError if the file cannot be read."""
        for row in read_research_rows(self._path, record):
            if isinstance(row, LostRow):
                yield replace(row, data=row.data and _keep_head(row.data))
            else:
                value = row.value
                # Without validation: the row has just been checked whole.
                head = QueryRow.model_construct(id=value.id, prompt=value.prompt, language=value.language)
                yield GoodRow(row.line, head, _keep_head(row.data), row.offset, row.size)

    def data(self, row: HeadRow) -> Mapping[str, Any]:
        """Return the row's content, or its line if it cannot be parsed.

        Raises ConfigError if it has changed.
        """
        if row.data is None:
            return {"line": row.line}
        self._file.seek(row.offset)
        try:
            content = parse_value(self._file.read(row.size))
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"{self._path}:{row.line}:1: the row cannot be read any more; run again") from error
        assert isinstance(content, dict)
        return content


class EndedRows:
    """Rows to be written to `path`, kept on disk until all have ended. Raises UnwritableError, before any is kept."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._places: dict[int, tuple[int, int]] = {}
        require_writable(path)
        # In the folder of the result, so that a full disk is noticed before the next model is paid. Rows have
        # whole pages, of up to 200,000 characters each: in memory, a thousand reports would be some
        # gigabytes.
        self._file = tempfile.TemporaryFile(dir=path.parent)  # noqa: SIM115 - closed by __exit__

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, number: int, row: Mapping[str, Any]) -> None:
        """Keep the row that is to be the `number`th. Raises UnwritableError."""
        line = encode_row(row)
        try:
            at = self._file.seek(0, 2)
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            raise UnwritableError(f"{self._path}: cannot be written: {error.strerror or error}") from error
        self._places[number] = at, len(line)

    def write(self) -> Path:
        """Write those that are kept, in order, as JSONL. Raises UnwritableError."""
        return write_lines(self._path, self._lines())

    def _lines(self) -> Iterator[bytes]:
        for _, (at, length) in sorted(self._places.items()):
            self._file.seek(at)
            yield self._file.read(length)


def _keep_head(data: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in data.items() if name in ("id", "prompt") or name.endswith("_error")}
