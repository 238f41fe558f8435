"""A workspace: a run's folder, the only way into it, and the walk over all that it holds."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Literal

from pytest_agentbench.errors import AgentbenchError
from pytest_agentbench.workspaces.confined import (
    MAX_FILE_BYTES,
    PathRefusedError,
    open_file,
    open_folder,
    remove_entry,
    split_path,
)

Kind = Literal["file", "folder", "link", "other"]

WORKSPACE = "/workspace"
"""Where the workspace lies in sandboxes that have a file system of their own; their /tmp is its private one."""

PRIVATE_TMP = ".tmp"
"""The private temporary folder of a run, in its workspace."""

_MAX_ENTRIES = 10_000


@dataclass(frozen=True, slots=True)
class Entry:
    """Entry of a folder: `size` in bytes, for files only."""

    name: str
    kind: Kind
    size: int | None


@dataclass(frozen=True, slots=True)
class Workspace:
    """A run's folder. Paths are relative to it; `/workspace/...` means it too, as sandboxes call it.

    `/tmp/...` means the run's private temporary folder, inside it. `owner` is the user and group id that the folder and
    all that is written here belong to, None for this process's own.

    Every method raises PathRefusedError for a path that leads out (`..`, links, other absolute paths) or to something
    that is no plain file, and OSError as usual (FileNotFoundError, IsADirectoryError, ...).
    """

    path: Path
    owner: int | None = None

    def open_read(self, relative: str) -> BinaryIO:
        """Open a regular file for reading bytes."""
        names = self._names(relative)
        with open_folder(str(self.path), names[:-1]) as folder:
            return os.fdopen(open_file(folder, _split_last(names, relative)), "rb")

    def open_write(self, relative: str) -> BinaryIO:
        """Open a regular file, emptied, for writing bytes; it and its folders are made where missing."""
        names = self._names(relative)
        name = _split_last(names, relative)
        with open_folder(str(self.path), names[:-1], create=True, owner=self.owner) as folder:
            return os.fdopen(open_file(folder, name, write=True, owner=self.owner), "wb")

    def read_bytes(self, relative: str, limit: int = MAX_FILE_BYTES) -> bytes:
        """Return the whole file; PathRefusedError where it holds more than `limit` bytes."""
        with self.open_read(relative) as file:
            content = file.read(limit + 1)
        if len(content) > limit:  # what was read, not what stat says: the agent may write to it meanwhile
            raise PathRefusedError(f"{relative!r}: found over {limit:,} bytes, expected at most that")
        return content

    def read_text(self, relative: str, limit: int = MAX_FILE_BYTES) -> str:
        """Return the whole file as UTF-8; UnicodeDecodeError where it is none."""
        return self.read_bytes(relative, limit).decode("utf-8")

    def write_bytes(self, relative: str, content: bytes) -> None:
        """Replace the file's content; PathRefusedError over MAX_FILE_BYTES."""
        if len(content) > MAX_FILE_BYTES:
            raise PathRefusedError(f"{relative!r}: {len(content):,} bytes are over the limit of {MAX_FILE_BYTES:,}")
        with self.open_write(relative) as file:
            file.write(content)

    def write_text(self, relative: str, content: str) -> None:
        """Replace the file's content with UTF-8 text."""
        # Half a surrogate pair, which a model's JSON may hold, is no text that UTF-8 has.
        self.write_bytes(relative, content.encode("utf-8", "replace"))

    def remove(self, relative: str) -> None:
        """Remove a file, link or tree; nothing where it is missing. A link is removed, never what it leads to."""
        names = self._names(relative)
        name = _split_last(names, relative)
        try:
            with open_folder(str(self.path), names[:-1]) as folder:
                remove_entry(folder, name)
        except (FileNotFoundError, NotADirectoryError):  # nor is there a folder for it
            return

    def kind(self, relative: str) -> Kind | None:
        """Return the kind of what lies at the path, None for nothing. A link is a `link`, whatever it leads to."""
        names = self._names(relative)
        if not names:
            return "folder"
        try:
            with open_folder(str(self.path), names[:-1]) as folder:
                return kind_of(os.stat(names[-1], dir_fd=folder, follow_symlinks=False))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def entries(self, relative: str = ".") -> list[Entry]:
        """Return the entries of one folder, sorted by name (the first 10,000), without the private temporary folder."""
        names = self._names(relative)
        with open_folder(str(self.path), names) as folder, os.scandir(folder) as found:
            items = [_make_entry(item) for item in islice(found, _MAX_ENTRIES) if names or item.name != PRIVATE_TMP]
        return sorted(items, key=lambda entry: entry.name)

    def private_tmp(self) -> Path:
        """Return the private temporary folder, made now if need be: what the agent calls `/tmp`."""
        with open_folder(str(self.path), [PRIVATE_TMP], create=True, owner=self.owner):
            return self.path / PRIVATE_TMP

    def _names(self, path: str) -> list[str]:
        """Return the components below the workspace; absolute paths count under the private view only."""
        if path.startswith("/"):
            # Agents name files as their commands see them: at /workspace, or where the folder lies on this machine.
            for own in (f"{self.path}/", f"{WORKSPACE}/"):
                if f"{path}/" == own or path.startswith(own):
                    return split_path(path[len(own) :].lstrip("/"))
            if path == "/tmp" or path.startswith("/tmp/"):  # noqa: S108 - the agent's name for its private folder
                with open_folder(str(self.path), [PRIVATE_TMP], create=True, owner=self.owner):
                    return [PRIVATE_TMP, *split_path(path[len("/tmp/") :].lstrip("/"))]  # noqa: S108
            raise PathRefusedError(
                f"{path!r}: outside the workspace; use a relative path, or one below {WORKSPACE} or /tmp"
            )
        return split_path(path)


def _split_last(names: list[str], path: str) -> str:
    if not names:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    return names[-1]


def kind_of(found: os.stat_result) -> Kind:
    """Return the kind of an entry; a link is a `link`."""
    if stat.S_ISREG(found.st_mode):
        return "file"
    if stat.S_ISDIR(found.st_mode):
        return "folder"
    return "link" if stat.S_ISLNK(found.st_mode) else "other"


def _make_entry(item: os.DirEntry[str]) -> Entry:
    found = item.stat(follow_symlinks=False)
    kind = kind_of(found)
    return Entry(item.name, kind, found.st_size if kind == "file" else None)


MAX_ENTRIES = 50_000
"""The most files and folders that a tree may hold."""

MAX_DEPTH = 100
"""How deep its folders may be nested."""

MAX_TREE_BYTES = 512 * 2**20
"""The most bytes of a tree's files that are read."""

Names = tuple[str, ...]
"""The names along the path of something, from the root on."""


class TreeError(AgentbenchError):
    """A folder that holds more, or is nested deeper, than is looked at."""


@dataclass(frozen=True, slots=True)
class Found:
    """Something below the root. `folder` is the descriptor of the folder it lies in, open until the walk goes on.

    For a folder it is its own.
    """

    names: Names
    kind: Kind
    stat: os.stat_result
    folder: int

    @property
    def path(self) -> str:
        """Return the path relative to the root."""
        return "/".join(self.names)


def walk_tree(root: str, unseen: list[str], skip: str | None = None) -> Iterator[Found]:
    """Yield everything below `root`, sorted within each folder, a folder before what it holds; `skip` is no part of it.

    The paths of folders that cannot be looked into are added to `unseen`, "" for the root. Raises TreeError.
    """
    # Names and no descriptors, of which a process has few. Each folder is opened from the root again, name by name, so
    # that one which was swapped for a link meanwhile leads nowhere.
    pending: list[Names] = [()]
    seen = 0
    while pending:
        names = pending.pop()
        if len(names) > MAX_DEPTH:
            raise TreeError(f"its folders are nested deeper than {MAX_DEPTH}")
        try:
            with open_folder(root, names) as folder:
                if names:
                    yield Found(names, "folder", os.fstat(folder), folder)
                with os.scandir(folder) as entries:
                    found = sorted(entry.name for entry in islice(entries, MAX_ENTRIES))
                seen += len(found)
                if seen >= MAX_ENTRIES:
                    raise TreeError(f"it holds {MAX_ENTRIES:,} files or more")
                for name in found:
                    if name == skip and not names:
                        continue
                    there = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    if stat.S_ISDIR(there.st_mode):
                        pending.append((*names, name))
                    else:
                        yield Found((*names, name), kind_of(there), there, folder)
        except (PathRefusedError, PermissionError, FileNotFoundError, NotADirectoryError):
            unseen.append("/".join(names))
