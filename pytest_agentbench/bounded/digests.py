"""Digests of files and folders by their content."""

from __future__ import annotations

import errno
import hashlib
import os
import time
from functools import lru_cache
from pathlib import Path

from pytest_agentbench.bounded.files import MAX_RECORD, FileRefusedError, open_file

MAX_FILES = 10_000
"""Maximum number of files in a folder."""


def digest_path(path: Path) -> str:
    """Return the SHA-256 of a file's content, or of the names and contents of all files in a folder.

    Links in a folder count by their targets and are not followed. Raises FileRefusedError for a special file, and for
    more than 256 MB or 10,000 files; raises OSError for an unreadable file.
    """
    if not path.is_dir():
        return digest_file(path)
    left, entries = MAX_RECORD, list[str]()
    for place, folders, names in os.walk(path, onerror=_raise):
        # os.walk names links to folders among the folders
        links = [name for name in folders if os.path.islink(f"{place}/{name}")]
        for name in (*names, *links):
            file = Path(place, name)
            if len(entries) == MAX_FILES:
                raise FileRefusedError(errno.EFBIG, f"found more files than {MAX_FILES:,}", str(path))
            if file.is_symlink():
                digest = f"link {os.readlink(file)}"
            else:
                digest = digest_file(file, left)
                left -= file.stat().st_size
            entries.append(f"{file.relative_to(path).as_posix()}\0{digest}\0")
    return hashlib.sha256("".join(sorted(entries)).encode("utf-8", "surrogateescape")).hexdigest()


def _raise(error: OSError) -> None:
    raise error


def digest_file(path: Path | str, limit: int = MAX_RECORD) -> str:
    """Return the SHA-256 of a file's content.

    In one process the same file of the same time and size is read once, because a session asks for each repetition of
    each case. Raises FileRefusedError for a special file, and for more than `limit` bytes; raises OSError for an
    unreadable file.
    """
    status = os.stat(path)
    if status.st_size > limit:
        raise FileRefusedError(errno.EFBIG, f"found more than {limit:,} bytes", str(path))
    known = os.fspath(path), status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
    # A second write within one tick of the clock leaves the time as it is
    if time.time_ns() - status.st_mtime_ns < _TICK_NS:
        return _read_digest.__wrapped__(*known)
    return _read_digest(*known)


_TICK_NS = 1_000_000_000
"""File systems may count times in whole seconds."""


@lru_cache(maxsize=1024)
def _read_digest(path: str, device: int, inode: int, mtime_ns: int, size: int) -> str:
    with open_file(path, size) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
