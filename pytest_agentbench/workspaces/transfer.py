"""A folder as a stream of bytes to another machine and back: a tar archive with files, folders and links.

An archive that comes from a sandbox is untrusted. Its members are written by the functions of `confined`, so that no
name and no link leads out of the target, and within the limits of a workspace.
"""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO

from pytest_agentbench.bounded.archives import ArchiveRefusedError, read_tar_stream
from pytest_agentbench.workspaces.confined import PathRefusedError, open_file, open_folder, remove_entry, split_path
from pytest_agentbench.workspaces.template import open_entry, tree_size_error
from pytest_agentbench.workspaces.workspace import MAX_DEPTH, MAX_TREE_BYTES, Names, TreeError, walk_tree

MAX_BYTES = 2**30
"""Default maximum of bytes that an archive unpacks to."""

_MAX_MEMBERS = 250_000
"""Maximum entries of an archive. A workspace with more than 50,000 comes back, and is not compared then."""

_LATEST = 2**33
"""The largest time of a tar header, in seconds since 1970."""


def pack_folder(folder: Path, target: BinaryIO) -> None:
    """Write the content of a folder as a tar archive, to be unpacked by `unpack_folder` or a program `tar`.

    Links stay links. FIFOs, sockets, devices and unreadable files are left out. Raises TreeError if the folder has more
    entries or bytes than a workspace may have, OSError from `target`.
    """
    room = MAX_TREE_BYTES
    with tarfile.open(fileobj=target, mode="w|", format=tarfile.PAX_FORMAT) as archive:  # noqa: TID251 - it is written
        for entry in walk_tree(str(folder), []):
            header = tarfile.TarInfo(entry.path)
            header.mode = stat.S_IMODE(entry.stat.st_mode) & 0o777
            header.mtime = min(max(int(entry.stat.st_mtime), 0), _LATEST)
            if entry.kind == "folder":
                header.type = tarfile.DIRTYPE
                archive.addfile(header)
            elif entry.kind == "link":
                header.type = tarfile.SYMTYPE
                header.linkname = os.readlink(entry.names[-1], dir_fd=entry.folder)
                archive.addfile(header)
            elif entry.kind == "file" and (opened := open_entry(entry)) is not None:
                with os.fdopen(opened, "rb") as file:
                    header.size = os.fstat(file.fileno()).st_size
                    room -= header.size
                    if room < 0:
                        raise tree_size_error()
                    archive.addfile(header, file)


def unpack_folder(archive: IO[bytes], folder: Path, limit: int = MAX_BYTES) -> None:
    """Unpack an uncompressed tar archive of at most `limit` bytes into an existing folder. Equal names are replaced.

    Members that are neither files, folders nor links are left out. Raises TreeError for a damaged archive, and for more
    bytes or more than 250,000 entries, PathRefusedError for names that lead out of the folder.
    """
    try:
        folders = list(_write_members(archive, folder, limit))
        for names, member in reversed(folders):  # parents last, because their mode may forbid writing
            with open_folder(str(folder), names) as opened:
                _set_mode_and_time(opened, member)
    except (ArchiveRefusedError, tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        raise TreeError(f"the archive cannot be unpacked: {error}") from error


def _write_members(archive: IO[bytes], folder: Path, limit: int) -> Iterator[tuple[Names, tarfile.TarInfo]]:
    """Write all members, and yield the folders, whose modes are not set yet."""
    room = limit
    for member, content in read_tar_stream(archive, limit, _MAX_MEMBERS):
        names = tuple(split_path(member.name.lstrip("/")))
        if len(names) > MAX_DEPTH:
            raise TreeError(f"its folders are nested deeper than {MAX_DEPTH}")
        if not names:  # the folder itself, which keeps its mode
            continue
        if not member.isdir():
            room -= _write_member(member, content, names, folder, room)
            continue
        with open_folder(str(folder), names, create=True):
            yield names, member


def _write_member(member: tarfile.TarInfo, content: IO[bytes] | None, names: Names, folder: Path, room: int) -> int:
    """Write a file or link, and return its bytes. Raises TreeError if they are more than `room`."""
    with open_folder(str(folder), names[:-1], create=True) as parent:
        if member.issym():
            remove_entry(parent, names[-1])
            os.symlink(member.linkname, names[-1], dir_fd=parent)
            return 0
        if member.islnk():
            content = _open_linked(member, folder)
        if content is None:
            return 0
        with content:
            # The size of a file that a hard link repeats is in no header
            size = member.size if member.isreg() else os.fstat(content.fileno()).st_size
            if size > room:
                raise TreeError(f"its files hold more than the limit by {size - room:,} bytes at {member.name!r}")
            with os.fdopen(open_file(parent, names[-1], write=True), "wb") as file:
                shutil.copyfileobj(content, file)
                file.flush()
                _set_mode_and_time(file.fileno(), member)
        return size


def _open_linked(member: tarfile.TarInfo, folder: Path) -> BinaryIO:
    """Open the earlier file that a hard link names. It is copied, because a workspace's file has one name."""
    names = split_path(member.linkname.lstrip("/"))
    if not names:
        raise PathRefusedError(f"{member.name!r}: found a hard link without a target")
    with open_folder(str(folder), names[:-1]) as parent:
        return os.fdopen(open_file(parent, names[-1]), "rb")


def _set_mode_and_time(opened: int, member: tarfile.TarInfo) -> None:
    os.fchmod(opened, member.mode & 0o777)
    os.utime(opened, (member.mtime, member.mtime))
