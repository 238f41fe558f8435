"""Digests of files and folders by their content."""

from __future__ import annotations

import errno
import hashlib
import os
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
        return _digest_file(path, MAX_RECORD)
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
                digest = _digest_file(file, left)
                left -= file.stat().st_size
            entries.append(f"{file.relative_to(path).as_posix()}\0{digest}\0")
    return hashlib.sha256("".join(sorted(entries)).encode("utf-8", "surrogateescape")).hexdigest()


def _raise(error: OSError) -> None:
    raise error


def _digest_file(path: Path, limit: int) -> str:
    with open_file(path, limit) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
