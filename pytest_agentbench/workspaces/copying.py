"""A folder copied into a workspace as it is: files, folders, modes and times; links as links, never followed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from pytest_agentbench.workspaces.confined import PathRefusedError, open_file, open_folder
from pytest_agentbench.workspaces.walking import MAX_TREE_BYTES, Found, Names, TreeError, walk
from pytest_agentbench.workspaces.workspace import Workspace

_CHUNK = 2**20


def copy_tree(source: Path, target: Workspace) -> list[str]:
    """Copies all that `source` holds; the paths of what was left out: FIFOs, sockets, devices, what cannot be read.

    What is there at the target's paths must be of the same kind; files are replaced. Raises TreeError where the source
    holds too much, PathRefusedError and OSError for what stands in the way, and for want of room.
    """
    left_out: list[str] = []
    folders: list[tuple[Names, os.stat_result]] = []
    room = MAX_TREE_BYTES
    for found in walk(str(source), left_out):
        if found.kind == "folder":
            folders.append((found.names, found.stat))
            with open_folder(str(target.path), found.names, create=True, owner=target.owner):
                continue
        if found.kind == "link":
            _copy_link(found, target)
        elif found.kind != "file" or (opened := _open(found)) is None:
            left_out.append(found.path)
        else:
            room -= _copy_file(found, opened, target, room)
    for names, there in reversed(folders):  # what holds others comes after them: it may forbid to write in it
        with open_folder(str(target.path), names) as folder:
            _like(folder, there)
    return left_out


def _open(found: Found) -> int | None:
    try:
        return open_file(found.folder, found.names[-1], linked=True)
    except (PathRefusedError, OSError):  # another kind by now, or not to be read
        return None


def _copy_file(found: Found, opened: int, target: Workspace, room: int) -> int:
    """How many bytes it has. Raises TreeError where these are more than there is `room` for."""
    size = 0
    with (
        os.fdopen(opened, "rb", buffering=0) as content,
        open_folder(str(target.path), found.names[:-1], create=True, owner=target.owner) as folder,
        os.fdopen(open_file(folder, found.names[-1], write=True, owner=target.owner), "wb") as copy,
    ):
        if found.stat.st_size > room:  # before a file that is all hole fills the disk
            raise _too_much()
        while chunk := content.read(_CHUNK):
            size += len(chunk)
            if size > room:
                raise _too_much()
            copy.write(chunk)
        copy.flush()
        _like(copy.fileno(), found.stat)
    return size


def _too_much() -> TreeError:
    return TreeError(f"its files hold more than {MAX_TREE_BYTES // 2**20} MB")


def _copy_link(found: Found, target: Workspace) -> None:
    leads_to = os.readlink(found.names[-1], dir_fd=found.folder)
    with open_folder(str(target.path), found.names[:-1], create=True, owner=target.owner) as folder:
        os.symlink(leads_to, found.names[-1], dir_fd=folder)
        if target.owner is not None:
            os.chown(found.names[-1], target.owner, target.owner, dir_fd=folder, follow_symlinks=False)


def _like(opened: int, there: os.stat_result) -> None:
    """Gives what is open the permission bits and the time of what it is a copy of."""
    os.fchmod(opened, stat.S_IMODE(there.st_mode) & 0o777)
    os.utime(opened, ns=(there.st_atime_ns, there.st_mtime_ns))
