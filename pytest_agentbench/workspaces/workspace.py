"""Workspaces: one fresh folder a run, and the only way into it."""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import stat
import subprocess
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import BinaryIO, Literal

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.confined import (
    MAX_FILE_BYTES,
    PathRefusedError,
    components,
    open_file,
    open_folder,
)

Kind = Literal["file", "folder", "link", "other"]

_PRIVATE_TMP = ".tmp"
_MAX_ENTRIES = 10_000
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Entry:
    """What a folder holds: `size` in bytes, for files only."""

    name: str
    kind: Kind
    size: int | None


@dataclass(frozen=True, slots=True)
class Workspace:
    """A run's folder. Paths are relative to it; `/tmp/...` means the run's private temporary folder, inside it too.

    Every method raises PathRefusedError for a path that leads out (`..`, links, other absolute paths) or to something
    that is no plain file, and OSError as usual (FileNotFoundError, IsADirectoryError, ...).
    """

    path: Path

    def open_read(self, relative: str) -> BinaryIO:
        """A regular file, open for reading bytes."""
        names = self._names(relative)
        with open_folder(str(self.path), names[:-1]) as folder:
            return os.fdopen(open_file(folder, _last(names, relative)), "rb")

    def open_write(self, relative: str) -> BinaryIO:
        """A regular file, emptied and open for writing bytes; it and its folders are made where missing."""
        names = self._names(relative)
        name = _last(names, relative)
        with open_folder(str(self.path), names[:-1], create=True) as folder:
            return os.fdopen(open_file(folder, name, write=True), "wb")

    def read_bytes(self, relative: str, limit: int = MAX_FILE_BYTES) -> bytes:
        """The whole file; PathRefusedError where it holds more than `limit` bytes."""
        with self.open_read(relative) as file:
            content = file.read(limit + 1)
        if len(content) > limit:
            raise PathRefusedError(f"{relative!r}: found over {limit:,} bytes, expected at most that")
        return content

    def read_text(self, relative: str, limit: int = MAX_FILE_BYTES) -> str:
        """The whole file as UTF-8; UnicodeDecodeError where it is none."""
        return self.read_bytes(relative, limit).decode("utf-8")

    def write_bytes(self, relative: str, content: bytes) -> None:
        """Replace the file's content; PathRefusedError over MAX_FILE_BYTES."""
        if len(content) > MAX_FILE_BYTES:
            raise PathRefusedError(f"{relative!r}: {len(content):,} bytes are over the limit of {MAX_FILE_BYTES:,}")
        with self.open_write(relative) as file:
            file.write(content)

    def write_text(self, relative: str, content: str) -> None:
        """Replace the file's content with UTF-8 text."""
        self.write_bytes(relative, content.encode("utf-8", "replace"))

    def kind(self, relative: str) -> Kind | None:
        """What lies at the path, None for nothing. A link is a `link`, whatever it leads to."""
        names = self._names(relative)
        if not names:
            return "folder"
        try:
            with open_folder(str(self.path), names[:-1]) as folder:
                return _kind(os.stat(names[-1], dir_fd=folder, follow_symlinks=False))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def entries(self, relative: str = ".") -> list[Entry]:
        """What one folder holds, sorted by name (the first 10,000 entries), the private temporary folder left out."""
        names = self._names(relative)
        with open_folder(str(self.path), names) as folder, os.scandir(folder) as found:
            items = [_entry(item) for item in islice(found, _MAX_ENTRIES) if names or item.name != _PRIVATE_TMP]
        return sorted(items, key=lambda entry: entry.name)

    def private_tmp(self) -> Path:
        """The private temporary folder, made now if need be: what the agent calls `/tmp`."""
        with open_folder(str(self.path), [_PRIVATE_TMP], create=True):
            return self.path / _PRIVATE_TMP

    def _names(self, path: str) -> list[str]:
        """The components below the workspace; absolute paths count under the private view only."""
        if path.startswith("/"):
            own = f"{self.path}/"
            if f"{path}/" == own or path.startswith(own):
                return components(path[len(own) :].lstrip("/"))
            if path == "/tmp" or path.startswith("/tmp/"):  # noqa: S108 - the agent's name for its private folder
                with open_folder(str(self.path), [_PRIVATE_TMP], create=True):
                    return [_PRIVATE_TMP, *components(path[len("/tmp/") :].lstrip("/"))]  # noqa: S108
            raise PathRefusedError(f"{path!r}: outside the workspace; use a relative path, or one below /tmp")
        return components(path)


class Workspaces:
    """All workspaces of one session, below one folder (mode 0700) that `close` removes. Safe to use from any thread."""

    def __init__(self, base: Path | None = None) -> None:
        """`base` is where that folder is made, at the first workspace; None: the system's temporary folder."""
        self._base = base
        self._parent: str | None = None
        self._lock = threading.Lock()
        self._numbers = count(1)

    def create(self, case_id: str) -> Workspace:
        """A fresh, empty folder (mode 0700) for one run. Raises SandboxError where it cannot be made."""
        name = re.sub(r"[^a-z0-9_-]+", "-", case_id.lower())[:40]
        try:
            path = f"{self._parent or self._make_parent()}/{next(self._numbers)}-{name}"
            os.mkdir(path, 0o700)
        except OSError as error:
            raise SandboxError(
                f"no workspace for {case_id!r}: {error}; free space in the temporary folder or set TMPDIR to another"
            ) from error
        return Workspace(Path(path))

    def remove(self, workspace: Workspace) -> None:
        """Delete a workspace and all it holds."""
        try:
            os.rmdir(workspace.path)  # most runs leave nothing behind
        except OSError:
            _remove_tree(str(workspace.path))

    def close(self) -> None:
        """Delete every workspace that is left."""
        with self._lock:
            parent, self._parent = self._parent, None
        if parent is not None:
            _remove_tree(parent)

    def _make_parent(self) -> str:
        with self._lock:
            if self._parent is None:
                self._parent = os.path.realpath(tempfile.mkdtemp(prefix="agentbench-", dir=self._base))
            return self._parent


def _last(names: list[str], path: str) -> str:
    if not names:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    return names[-1]


def _kind(found: os.stat_result) -> Kind:
    if stat.S_ISREG(found.st_mode):
        return "file"
    if stat.S_ISDIR(found.st_mode):
        return "folder"
    return "link" if stat.S_ISLNK(found.st_mode) else "other"


def _entry(item: os.DirEntry[str]) -> Entry:
    found = item.stat(follow_symlinks=False)
    kind = _kind(found)
    return Entry(item.name, kind, found.st_size if kind == "file" else None)


def _remove_tree(path: str) -> None:
    """Remove a folder, even one that its agent locked, nested deeper than Python recurses, or replaced by a link."""
    if os.path.islink(path) or not os.path.isdir(path):  # `chmod -R` would follow a link
        with suppress(OSError):
            os.unlink(path)
        return
    try:
        shutil.rmtree(path)
    except (OSError, RecursionError):
        for command in (["chmod", "-R", "u+rwX", "--", path], ["rm", "-rf", "--", path]):
            subprocess.run(command, check=False, stderr=subprocess.DEVNULL)
    if os.path.lexists(path):
        _logger.warning("could not remove the workspace %s: remove it by hand", path)
