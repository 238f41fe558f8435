"""What a workspace holds, as facts: to be compared before and after a run. Links are facts, and never followed."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from pytest_agentbench.records import FileFacts
from pytest_agentbench.workspaces.confined import PathRefusedError, open_file
from pytest_agentbench.workspaces.walking import MAX_TREE_BYTES, Found, Names, walk
from pytest_agentbench.workspaces.workspace import PRIVATE_TMP, kind_of

_CHUNK = 2**20


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The facts of everything below a folder, by its names.

    `unseen` are the folders in it that could not be looked into, "" for itself.
    """

    facts: Mapping[Names, FileFacts]
    unseen: tuple[str, ...] = ()


EMPTY = Snapshot({})
"""What an empty folder holds."""


def take_snapshot(folder: str) -> Snapshot:
    """The facts of all that a folder holds, but for the private temporary folder in it.

    Files that cannot be read, and what comes after 512 MB of others, have no hash. Raises TreeError for too many files.
    """
    facts: dict[Names, FileFacts] = {}
    unseen: list[str] = []
    room = MAX_TREE_BYTES
    for found in walk(folder, unseen, skip=PRIVATE_TMP):
        mode = stat.S_IMODE(found.stat.st_mode)
        if found.kind == "file":
            size, sha256 = found.stat.st_size, None
            if size <= room:
                size, sha256 = _hashed(found, room)
                room -= size
            facts[found.names] = FileFacts(kind="file", mode=mode, size=size, sha256=sha256)
        elif found.kind == "link":
            facts[found.names] = FileFacts(kind="link", mode=mode, target=_target(found))
        else:
            facts[found.names] = FileFacts(kind=found.kind, mode=mode)
    for path in filter(None, unseen):
        with suppress(FileNotFoundError, NotADirectoryError):
            there = os.lstat(f"{folder}/{path}")
            facts[tuple(path.split("/"))] = FileFacts(kind=kind_of(there), mode=stat.S_IMODE(there.st_mode))
    return Snapshot(facts, tuple(unseen))


def digest(snapshot: Snapshot) -> str:
    """SHA-256 of all facts, the same for folders that hold the same, and for copies.

    Of the permissions only the owner's count: those of others are the umask's where the folder was checked out.
    """
    total = hashlib.sha256()
    for names, facts in sorted(snapshot.facts.items(), key=lambda item: item[0]):
        told = (shown("/".join(names)), facts.kind, facts.mode & 0o700, facts.size, facts.sha256, facts.target)
        total.update(repr(told).encode())
    return total.hexdigest()


def shown(name: str) -> str:
    """A path or a link's target as text that can be stored: bytes that are no UTF-8 as escapes."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _hashed(found: Found, room: int) -> tuple[int, str | None]:
    """How much there was to read, and its hash: None for what cannot be read, or grew beyond `room`."""
    try:
        file = os.fdopen(open_file(found.folder, found.names[-1], linked=True), "rb", buffering=0)
    except (PathRefusedError, OSError):
        return found.stat.st_size, None
    hashed, size = hashlib.sha256(), 0
    with file:
        while chunk := file.read(_CHUNK):
            hashed.update(chunk)
            size += len(chunk)
            if size > room:
                return size, None
    return size, hashed.hexdigest()


def _target(found: Found) -> str | None:
    try:
        return shown(os.readlink(found.names[-1], dir_fd=found.folder))
    except OSError:  # it is none any more
        return None
