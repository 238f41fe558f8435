"""A run's workspace: safe access to its files, and a walk over its content."""

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
"""Path of the workspace in sandboxes with their own file system.

Their /tmp is its private temporary folder, except for BubblewrapSandbox with a mount below /tmp.
"""

PRIVATE_TMP = ".tmp"
"""The private temporary folder of a run, in its workspace."""

_MAX_ENTRIES = 10_000


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a folder. `size` is in bytes, for files only."""

    name: str
    kind: Kind
    size: int | None


@dataclass(frozen=True, slots=True)
class Workspace:
    """A run's folder. Paths are relative to it, or begin with `/workspace/`, its path in sandboxes.

    `/tmp/...` is the run's private temporary folder inside it. `owner` is the user and group id of the folder and of
    all files written here, None for this process's.

    Every method raises PathRefusedError for a path that leads out (`..`, links, other absolute paths) or to something
    other than a regular file, and OSError as usual (FileNotFoundError, IsADirectoryError, ...).
    """

    path: Path
    owner: int | None = None

    @property
    def uid(self) -> int:
        """Return the id of the user that owns the folder, as which commands in containers run."""
        return os.getuid() if self.owner is None else self.owner

    def open_read(self, relative: str) -> BinaryIO:
        """Open a regular file for reading bytes."""
        names = self.split(relative)
        with open_folder(str(self.path), names[:-1]) as folder:
            return os.fdopen(open_file(folder, _split_last(names, relative)), "rb")

    def open_write(self, relative: str) -> BinaryIO:
        """Open a regular file for writing bytes. It is emptied; missing files and folders are created."""
        names = self.split(relative)
        name = _split_last(names, relative)
        with open_folder(str(self.path), names[:-1], create=True, owner=self.owner) as folder:
            return os.fdopen(open_file(folder, name, write=True, owner=self.owner), "wb")

    def read_bytes(self, relative: str, limit: int = MAX_FILE_BYTES) -> bytes:
        """Return the whole file. Raises PathRefusedError if it has more than `limit` bytes."""
        with self.open_read(relative) as file:
            content = file.read(limit + 1)
        if len(content) > limit:  # not the size by stat, because the agent may be writing to it
            raise PathRefusedError(f"{relative!r}: found over {limit:,} bytes, expected at most that")
        return content

    def read_text(self, relative: str, limit: int = MAX_FILE_BYTES) -> str:
        """Return the whole file as UTF-8. Raises UnicodeDecodeError for another encoding."""
        return self.read_bytes(relative, limit).decode("utf-8")

    def write_bytes(self, relative: str, content: bytes) -> None:
        """Replace the file's content. Raises PathRefusedError over MAX_FILE_BYTES."""
        if len(content) > MAX_FILE_BYTES:
            raise PathRefusedError(f"{relative!r}: {len(content):,} bytes are over the limit of {MAX_FILE_BYTES:,}")
        with self.open_write(relative) as file:
            file.write(content)

    def write_text(self, relative: str, content: str) -> None:
        """Replace the file's content with UTF-8 text."""
        # A model's JSON may contain lone surrogates, which UTF-8 cannot encode
        self.write_bytes(relative, content.encode("utf-8", "replace"))

    def remove(self, relative: str) -> None:
        """Remove a file, link or tree. Do nothing if it is missing. A link is removed, never its target."""
        names = self.split(relative)
        name = _split_last(names, relative)
        try:
            with open_folder(str(self.path), names[:-1]) as folder:
                remove_entry(folder, name)
        except (FileNotFoundError, NotADirectoryError):  # its folder is missing, too
            return

    def kind(self, relative: str) -> Kind | None:
        """Return the kind of the entry at the path, or None. Every link is a `link`, regardless of its target."""
        names = self.split(relative)
        if not names:
            return "folder"
        try:
            with open_folder(str(self.path), names[:-1]) as folder:
                return kind_of(os.stat(names[-1], dir_fd=folder, follow_symlinks=False))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def entries(self, relative: str = ".") -> list[Entry]:
        """Return the entries of one folder, sorted by name (the first 10,000), without the private temporary folder."""
        names = self.split(relative)
        with open_folder(str(self.path), names) as folder, os.scandir(folder) as scan:
            items = [_make_entry(item) for item in islice(scan, _MAX_ENTRIES) if names or item.name != PRIVATE_TMP]
        return sorted(items, key=lambda entry: entry.name)

    def private_tmp(self) -> Path:
        """Return the private temporary folder, created at first use. Agents call it `/tmp`."""
        with open_folder(str(self.path), [PRIVATE_TMP], create=True, owner=self.owner):
            return self.path / PRIVATE_TMP

    def split(self, path: str) -> list[str]:
        """Return the names along a path below the workspace. Raises PathRefusedError for other absolute paths."""
        if path.startswith("/"):
            # Agents use the paths that their commands see: /workspace, or the folder's real path
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


def kind_of(status: os.stat_result) -> Kind:
    """Return the kind of an entry; a link is a `link`."""
    if stat.S_ISREG(status.st_mode):
        return "file"
    if stat.S_ISDIR(status.st_mode):
        return "folder"
    if stat.S_ISLNK(status.st_mode):
        return "link"
    return "other"


def _make_entry(item: os.DirEntry[str]) -> Entry:
    status = item.stat(follow_symlinks=False)
    kind = kind_of(status)
    return Entry(item.name, kind, status.st_size if kind == "file" else None)


MAX_ENTRIES = 50_000
"""Maximum files and folders of a tree."""

MAX_DEPTH = 100
"""Maximum nesting of a tree's folders."""

MAX_TREE_BYTES = 512 * 2**20
"""Maximum bytes of a tree's files that are read."""

Names = tuple[str, ...]
"""The components of a path, from the root on."""


class TreeError(AgentbenchError):
    """Raised for a folder with too many entries or too deep nesting."""


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """An entry below the root. `folder` is the descriptor of its parent folder, open until the walk continues.

    For a folder it is the folder's own descriptor.
    """

    names: Names
    kind: Kind
    stat: os.stat_result
    folder: int

    @property
    def path(self) -> str:
        """Return the path relative to the root."""
        return "/".join(self.names)


def walk_tree(root: str, unseen: list[str], skip: str | None = None, below: Names = ()) -> Iterator[TreeEntry]:
    """Yield everything below `root` except `skip`, sorted within each folder, a folder before its content.

    The paths of unreadable folders are added to `unseen`, "" for the root. With `below`, the walk is of that folder of
    `root`, and all paths are relative to it. Raises TreeError.
    """
    # Names instead of descriptors, of which a process has few. Each folder is opened from the root again, name by name,
    # so that a folder that was replaced by a link is refused
    pending: list[Names] = [()]
    number = 0
    while pending:
        names = pending.pop()
        if len(names) > MAX_DEPTH:
            raise TreeError(f"its folders are nested deeper than {MAX_DEPTH}")
        try:
            with open_folder(root, (*below, *names)) as folder:
                if names:
                    yield TreeEntry(names, "folder", os.fstat(folder), folder)
                with os.scandir(folder) as entries:
                    children = sorted(entry.name for entry in islice(entries, MAX_ENTRIES))
                number += len(children)
                if number >= MAX_ENTRIES:
                    raise TreeError(f"it holds {MAX_ENTRIES:,} files or more")
                for name in children:
                    if name == skip and not names:
                        continue
                    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode):
                        pending.append((*names, name))
                    else:
                        yield TreeEntry((*names, name), kind_of(status), status, folder)
        except (PathRefusedError, PermissionError, FileNotFoundError, NotADirectoryError):
            unseen.append("/".join(names))
