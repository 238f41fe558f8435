"""Write files that are either the old or the complete new one, and name their places below the output folder."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
import re
import secrets
from collections.abc import Iterator
from io import BufferedRandom
from pathlib import Path

RUNS = "runs"
EVALUATIONS = "evaluations"
SUITE = "suit_"
"""What the folder of each suite begins with."""

FINGERPRINT_DIGITS = (8, 10, 12)
"""How many hex digits of a fingerprint a folder's name holds: more only where fewer name two fingerprints."""

_SAFE = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,98}[a-z0-9_-])?")
_UNSAFE = re.compile(r"[^a-z0-9._-]+")


def slug(name: str) -> str:
    """Return `name` as a folder name: itself where that is safe, else what is safe of it with 8 digits of its hash.

    Safe are lower-case letters, digits and `_ - .` (not first; no dot last), at most 100 characters, so that no two
    names meet on a file system that ignores case.
    """
    if _SAFE.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    readable = _UNSAFE.sub("_", name.lower())[:60].strip("._-")
    return f"{readable}-{digest}" if readable else digest


def suite_folder(suite_id: str | None) -> str:
    """Return the folder of a suite; `suit_default` where none is named."""
    return f"{SUITE}{slug(suite_id) if suite_id is not None else 'default'}"


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
        # A rename within one folder is atomic: a reader sees the old file or the new one, never a half.
        os.replace(temporary, f"{folder}/{name}")
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


@contextlib.contextmanager
def temporary_file(folder: str) -> Iterator[BufferedRandom]:
    """Yield a file to write and read back in `folder`; gone at the end of the block unless it was moved. Raises
    OSError.
    """
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
        # One write is enough on a disk; network file systems and full disks take a part of it.
        written = os.write(descriptor, data)
        while written < len(data):
            written += os.write(descriptor, data[written:])
    finally:
        os.close(descriptor)


def lies_below(folder: str, path: str) -> bool:
    """Return whether a path that others wrote names something in the folder, wherever links lead that lie there.

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


def make_folder(path: str) -> bool:
    """Make the folder `path`, with its parents where they are missing; False where it exists already."""
    try:
        os.mkdir(path)
    except FileExistsError:
        return False
    except FileNotFoundError:
        os.makedirs(path, exist_ok=True)
    return True


def explain_unwritable(folder: str, error: OSError) -> str:
    """Return the message for an output folder that takes no more files."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        advice = "allow more open files (ulimit -n), or ask for less at once with --agentbench-concurrency"
    else:
        advice = "make room or give write permission there, or name another folder with --agentbench-output"
    return f"cannot write to {folder}: {error.strerror or error}. What was written before is kept; {advice}"
