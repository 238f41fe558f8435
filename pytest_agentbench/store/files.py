"""Files that are either the old or the complete new one, whenever the process dies; and read with care."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import secrets
import stat
from collections.abc import Iterator
from io import BufferedRandom
from pathlib import Path

LARGEST = 256 * 2**20
"""Bytes of the largest file that is read back: what this package writes comes nowhere near it."""

_READ_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_FLAGS = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_serial = itertools.count()
_session = secrets.token_hex(4)


def write_atomically(folder: str, name: str, data: bytes) -> None:
    """Put `data` at `folder/name` through a temporary file beside it. Raises OSError; then nothing has changed.

    There is no fsync: it costs milliseconds a file, and a killed process loses nothing that was written. A power cut
    may leave an empty file, which does not load, so that its run counts as missing.
    """
    temporary = _temporary(folder)
    try:
        _write(temporary, os.O_EXCL, data)
        os.replace(temporary, f"{folder}/{name}")
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


@contextlib.contextmanager
def temporary_file(folder: str) -> Iterator[BufferedRandom]:
    """A file to write and read back in `folder`; gone at the end of the block unless it was moved. Raises OSError."""
    path = _temporary(folder)
    try:
        with open(path, "x+b") as file:
            yield file
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _temporary(folder: str) -> str:
    return f"{folder}/.{_session}-{os.getpid()}-{next(_serial)}.tmp"


def write_in_place(folder: str, name: str, data: bytes) -> None:
    """Put `data` at `folder/name` in a third less time; for what nothing reads unless another file is complete."""
    _write(f"{folder}/{name}", os.O_TRUNC, data)


def _write(path: str, flag: int, data: bytes) -> None:
    descriptor = os.open(path, _FLAGS | flag, 0o666)
    try:
        written = os.write(descriptor, data)
        while written < len(data):
            written += os.write(descriptor, data[written:])
    finally:
        os.close(descriptor)


def lies_below(folder: str, path: str) -> bool:
    """Whether a path that others wrote names something in the folder, wherever links lead that lie there.

    Raises ValueError for what is no name of a file.
    """
    parts = path.replace("\\", "/").split("/")
    if os.path.isabs(path) or os.path.splitdrive(path)[0] or ".." in parts:
        return False
    place = folder
    for part in parts:
        place = f"{place}/{part}"
        if os.path.islink(place):  # a folder of runs has none, and resolving each path of 10,000 takes a second
            return Path(os.path.realpath(f"{folder}/{path}")).is_relative_to(os.path.realpath(folder))
    return True


def read_file(path: str | os.PathLike[str]) -> bytes:
    """All of a file, with the fewest system calls: each hands the interpreter's lock to pytest's thread.

    Raises OSError, also for what somebody may have put there that never ends or never comes: a FIFO, a device.
    """
    descriptor, size = open_to_read(path)
    try:
        content = os.read(descriptor, size)
        while len(content) < size and (more := os.read(descriptor, size - len(content))):
            content += more
    finally:
        os.close(descriptor)
    return content


def open_to_read(path: str | os.PathLike[str]) -> tuple[int, int]:
    """A descriptor of a regular file, and its size, at most `LARGEST`. Raises OSError for anything else."""
    descriptor = os.open(path, _READ_FLAGS)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "Is no regular file", os.fspath(path))
        if found.st_size > LARGEST:
            raise OSError(errno.EFBIG, f"Is larger than {LARGEST // 2**20} MB", os.fspath(path))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor, found.st_size


def make_folder(path: str) -> bool:
    """Make the folder `path`, with its parents where they are missing; False where it exists already."""
    try:
        os.mkdir(path)
    except FileExistsError:
        return False
    except FileNotFoundError:
        os.makedirs(path, exist_ok=True)
    return True


def why_unwritable(folder: str, error: OSError) -> str:
    """What to say where the output folder takes no more files."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        advice = "allow more open files (ulimit -n), or ask for less at once with --agentbench-concurrency"
    else:
        advice = "make room or give write permission there, or name another folder with --agentbench-output"
    return f"cannot write to {folder}: {error.strerror or error}. What was written before is kept; {advice}"
