"""Write rows, documents and texts: whole or not at all, with the folders above them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from pytest_agentbench.errors import UnwritableError
from pytest_agentbench.store.files import temporary_file, write_atomically


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write rows as JSONL and return the path. Raises UnwritableError."""
    return write_lines(path, map(encode_row, rows))


def encode_row(row: Mapping[str, Any]) -> bytes:
    """Return a row as a line of JSONL. Half a surrogate pair, which UTF-8 cannot carry, becomes its JSON escape."""
    return f"{json.dumps(row, ensure_ascii=False, allow_nan=False)}\n".encode("utf-8", "backslashreplace")


def write_lines(path: Path, lines: Iterable[bytes]) -> Path:
    """Write lines one by one, like `write_rows`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary_file(str(path.parent)) as file:
            file.writelines(lines)
            file.flush()
            Path(file.name).replace(path)
    except OSError as error:
        raise UnwritableError(f"{path}: cannot be written: {error.strerror or error}") from error
    return path


def format_rows(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the rows as JSONL."""
    return "".join(f"{json.dumps(row, ensure_ascii=False, allow_nan=False)}\n" for row in rows)


def write_document(path: Path, document: Any) -> Path:
    """Write a JSON document, like `write_rows`."""
    return write_text(path, format_document(document))


def format_document(document: Any) -> str:
    """Return a document as indented JSON."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=2) + "\n"


def require_writable(*paths: Path) -> None:
    """Raise UnwritableError unless files can be made there, so that this is known before anything is paid for."""
    for path in paths:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=path.parent):
                pass
        except OSError as error:
            raise UnwritableError(f"{path}: cannot be written: {error.strerror or error}") from error
        if path.is_dir():
            raise UnwritableError(f"{path}: cannot be written: found a folder, expected a file")


def write_text(path: Path, text: str, *, encoding: str = "utf-8") -> Path:
    """Write a text, like `write_rows`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Half a surrogate pair, which UTF-8 cannot carry, becomes its JSON escape.
        write_atomically(str(path.parent), path.name, text.encode(encoding, "backslashreplace"))
    except OSError as error:
        raise UnwritableError(f"{path}: cannot be written: {error.strerror or error}") from error
    return path
