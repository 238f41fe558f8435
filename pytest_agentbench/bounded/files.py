"""Open files that others name: without blocking, and only regular files up to a size.

Opening a FIFO would block for ever, and reading a device or a sparse file would exhaust the memory. The checks are made
on the open file, because the path may lead elsewhere by then.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from io import BufferedReader
from typing import Any, BinaryIO, TypeAlias

from pytest_agentbench.errors import AgentbenchError
from pytest_agentbench.terminal_text import visible

AnyPath: TypeAlias = str | os.PathLike[str]

MAX_TEXT = 4 * 2**20
"""Bytes of a file that people write by hand: configuration, prompts, Dockerfiles."""
MAX_RECORD = 256 * 2**20
"""Bytes of a file that this package writes, and of one line of a dataset: nobody's come near it."""
MAX_DOCUMENT = 2**30
"""Bytes of a dataset, a report or a log that is one JSON document, and so is held whole."""

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


class FileRefusedError(AgentbenchError, OSError):
    """A path that is not a regular file, or a file that is too large. `strerror` is the message without the path."""

    def __str__(self) -> str:
        return visible(f"{self.filename}: {self.strerror}")


def open_descriptor(path: AnyPath, limit: int | None = MAX_RECORD, *, follow_link: bool = True) -> tuple[int, int]:
    """Open a plain file of at most `limit` bytes to be read. Return the descriptor and the size.

    Raises FileRefusedError for anything else, and for a link unless `follow_link`. Raises OSError if the file cannot be
    opened.
    """
    if not follow_link and os.path.islink(path):
        raise _make_refusal(path, "a link", limit)
    try:
        # O_NONBLOCK: opening a FIFO that nobody writes to would otherwise never return.
        descriptor = os.open(path, _FLAGS if follow_link else _FLAGS | _NO_LINK)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a device that is not there
            raise _make_refusal(path, "a socket or a device", limit) from error
        raise
    try:
        return descriptor, plain_size(descriptor, path, limit)
    except OSError:
        os.close(descriptor)
        raise


def plain_size(descriptor: int, path: AnyPath, limit: int | None = MAX_RECORD) -> int:
    """Return the size of an open file. Raises FileRefusedError unless it is a regular file of at most `limit` bytes."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise _make_refusal(path, _KINDS.get(stat.S_IFMT(found.st_mode), "something else"), limit)
    if limit is not None and found.st_size > limit:
        raise FileRefusedError(
            errno.EFBIG, f"found {found.st_size:,} bytes, expected at most {limit:,}", os.fspath(path)
        )
    return found.st_size


def open_file(path: AnyPath, limit: int | None = MAX_RECORD) -> BufferedReader:
    """Open a file like `open_descriptor`, as a binary stream. None sets no limit, for who reads a piece at a time."""
    return open(path, "rb", opener=lambda path, _flags: open_descriptor(path, limit)[0])


def read_file(path: AnyPath, limit: int = MAX_RECORD, *, follow_link: bool = True) -> bytes:
    """Read all of a file, with the fewest system calls: each hands the interpreter's lock to other threads.

    Raises FileRefusedError and OSError as `open_descriptor` does.
    """
    descriptor, size = open_descriptor(path, limit, follow_link=follow_link)
    try:
        content = os.read(descriptor, size)
        while len(content) < size and (more := os.read(descriptor, size - len(content))):
            content += more
    finally:
        os.close(descriptor)
    return content


def read_lines(file: BinaryIO, limit: int = MAX_RECORD) -> Iterator[bytes]:
    """Yield the lines of an open file. Raises FileRefusedError at a line of more than `limit` bytes."""
    if os.fstat(file.fileno()).st_size <= limit:  # no line is longer then, and the plain way is a third faster
        for line in file:  # not `yield from`, which closes the file as soon as nobody reads on
            yield line
        return
    while line := file.readline(limit + 1):
        if len(line) > limit:
            raise FileRefusedError(errno.EFBIG, f"found a line of more than the limit of {limit:,} bytes", file.name)
        yield line


def _make_refusal(path: AnyPath, found: str, limit: int | None) -> FileRefusedError:
    most = "" if limit is None else f" of at most {limit:,} bytes"
    return FileRefusedError(errno.EINVAL, f"found {found}, expected a file{most}", os.fspath(path))


def find_repeated(names: Iterable[str]) -> str | None:
    """Return the first name that occurs more than once, None if all differ. Takes time linear in their number."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


class KeyTwiceError(ValueError):
    """A JSON object has a key twice: Python's parser takes the last."""


def pairs_without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of a JSON parser's pairs. Raises KeyTwiceError if two have the same key."""
    members = dict(pairs)
    if len(members) != len(pairs):
        twice = find_repeated(name for name, _ in pairs)
        raise KeyTwiceError(f"duplicate key {twice!r}; remove one of them")
    return members
