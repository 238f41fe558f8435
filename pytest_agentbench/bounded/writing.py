"""Files written whole or not at all: texts, JSON documents and rows of JSONL."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from io import BufferedRandom
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from pytest_agentbench.errors import UnwritableError

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_serial = itertools.count()
_session = secrets.token_hex(4)


def write_atomically(folder: str, name: str, data: bytes) -> None:
    """Write `data` to `folder/name` through a temporary file in the folder. Raises OSError; then nothing has changed.

    A link in the place of the file is replaced, not followed (like in `replace_file`). A device such as `/dev/null`
    is written to: root would replace it by a file for the whole machine.

    There is no fsync: it takes milliseconds per file, and a killed process loses nothing that was written. A power cut
    may leave an empty file, which cannot be parsed, so its run counts as missing.
    """
    if is_device(path := f"{folder}/{name}"):
        Path(path).write_bytes(data)
        return
    temporary = _temporary(folder)
    try:
        _write(temporary, data)
        # A rename within one folder is atomic: a reader sees the old file or the new one, never a half.
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def is_device(path: str | Path) -> bool:
    """Return whether a path is a device, or is in /dev, where `/dev/stdout` is a link."""
    try:
        return os.path.dirname(os.path.abspath(path)) == "/dev" or stat.S_ISCHR(os.lstat(path).st_mode)
    except OSError:
        return False


@contextlib.contextmanager
def temporary_file(folder: str) -> Iterator[BufferedRandom]:
    """Yield a file of `folder` to write and read; the end removes it unless it was moved. Raises OSError."""
    path = _temporary(folder)
    try:
        with open(path, "x+b") as file:
            yield file
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)


@contextlib.contextmanager
def replace_file(path: Path, *, sync: bool = False) -> Iterator[BufferedRandom]:
    """Yield a new file that takes the place of `path` at the end of the block, like `write_atomically`.

    With `sync` the content survives a power cut. Raises OSError, also if there is no such folder.
    """
    if is_device(path):
        with TemporaryFile() as content:
            yield content
            content.seek(0)
            with path.open("wb") as device:
                shutil.copyfileobj(content, device)
        return
    with temporary_file(str(path.parent)) as file:
        yield file
        file.flush()
        if sync:
            os.fsync(file.fileno())
        os.replace(file.name, path)


def _temporary(folder: str) -> str:
    return f"{folder}/.{_session}-{os.getpid()}-{next(_serial)}.tmp"


def _write(path: str, data: bytes) -> None:
    descriptor = os.open(path, _FLAGS, 0o666)
    try:
        # One write is enough on a disk; network file systems and full disks take a part of it.
        written = os.write(descriptor, data)
        while written < len(data):
            written += os.write(descriptor, data[written:])
    finally:
        os.close(descriptor)


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
        with replace_file(path) as file:
            file.writelines(lines)
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
            if not is_device(path):
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
