"""A workspace as a tar file: regular files and folders, nothing that leads elsewhere."""

from __future__ import annotations

import errno
import io
import os
import shutil
import stat
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, BinaryIO

from pytest_agentbench.bounded.archives import ArchiveRefusedError, read_tar
from pytest_agentbench.bounded.files import FileRefusedError
from pytest_agentbench.errors import AgentbenchError, SandboxError
from pytest_agentbench.workspaces.confined import PathRefusedError, give_ownership, open_file, open_folder, split_path
from pytest_agentbench.workspaces.workspace import MAX_DEPTH, MAX_ENTRIES, Found, TreeError, Workspace, walk_tree

MAX_ARCHIVE_BYTES = 64 * 2**20
"""The largest archive of a workspace, headers included, and the most that one unpacks to."""

_MAX_PATH = 3_800
"""Bytes of the longest path that is kept: no system opens one of over 4,096, that of the workspace itself included."""

_LATEST = 2**33  # seconds since 1970, what every tar header holds
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)


class ArchiveError(AgentbenchError):
    """A workspace that is too large to be kept, or an archive that cannot be unpacked."""


def pack_workspace(workspace: Workspace, target: BinaryIO, redact: Callable[[str], str] = str) -> list[str]:
    """Write the files and folders of a workspace, its private `.tmp` too; return the paths of what is left out.

    `redact` is applied to names and to files that are UTF-8 text. Left out are links, files with several hard links,
    FIFOs, sockets, what cannot be read, and what nobody could put back as its path is too long. Raises ArchiveError for
    what is too large, OSError from `target`.
    """
    left_out: list[str] = []
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:  # noqa: TID251 - it is written
        for found in _walk_workspace(workspace, left_out):
            if len(os.fsencode(found.path)) > _MAX_PATH:
                left_out.append(found.path)
                continue
            header, content, there = tarfile.TarInfo(redact(found.path)), None, found.stat
            if found.kind == "folder":
                header.type = tarfile.DIRTYPE
            elif (read := _read_regular_file(found)) is None:
                left_out.append(found.path)
                continue
            else:
                content, there = _redact_content(read[0], redact), read[1]
                header.size = len(content)
            header.mode = stat.S_IMODE(there.st_mode) & 0o777  # without set-user-id and its kind
            header.mtime = min(max(int(there.st_mtime), 0), _LATEST)
            # Its header, and the two empty blocks that end an archive, are counted too.
            if target.tell() + 3 * tarfile.BLOCKSIZE + header.size > MAX_ARCHIVE_BYTES:
                raise _size_error()
            archive.addfile(header, io.BytesIO(content) if content is not None else None)
    return left_out


def unpack_workspace(archive: Path, workspace: Workspace) -> None:
    """Put back what `pack_workspace` wrote.

    Raises ArchiveError where it is no such archive, SandboxError for want of room.
    """
    try:
        for member, content in read_tar(archive, MAX_ARCHIVE_BYTES, MAX_ENTRIES):
            if member.name.count("/") > MAX_DEPTH:
                raise ArchiveError(f"{archive}: {member.name!r} lies in more than {MAX_DEPTH} folders")
            _put_back(member, content, workspace)
        _restore_ownership(workspace)
    except ArchiveRefusedError as error:
        raise ArchiveError(str(error)) from error
    except FileRefusedError as error:
        raise ArchiveError(f"{archive}: {error.strerror}") from error
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise SandboxError(f"no room to restore a workspace: {error}; set TMPDIR to another folder") from error
        raise ArchiveError(f"{archive}: cannot be unpacked: {error.strerror or error}") from error
    except (tarfile.TarError, PathRefusedError, EOFError, ValueError, OverflowError) as error:
        raise ArchiveError(f"{archive}: cannot be unpacked: {error}") from error


def _put_back(member: tarfile.TarInfo, content: IO[bytes] | None, workspace: Workspace) -> None:
    """Put back one folder or file, through the confined opens: no name leads out.

    Raises PathRefusedError where one would.
    """
    names = split_path(member.name.lstrip("/"))
    if not names:
        raise PathRefusedError(f"{member.name!r} names no file or folder")
    folders = names if member.isdir() else names[:-1]
    with open_folder(str(workspace.path), folders, create=True) as folder:
        if content is None:
            os.utime(folder, (member.mtime, member.mtime))
            return
        with content, os.fdopen(open_file(folder, names[-1], write=True), "wb") as file:
            shutil.copyfileobj(content, file)
            file.flush()
            # Readable to its owner whatever the archive says: the run that goes on with it is packed again.
            os.fchmod(file.fileno(), member.mode & 0o777 | stat.S_IRUSR | stat.S_IWUSR)
            os.utime(file.fileno(), (member.mtime, member.mtime))


def _restore_ownership(workspace: Workspace) -> None:
    """Make all that a workspace holds its owner's."""
    if workspace.owner is None:
        return
    for found in walk_tree(str(workspace.path), []):
        if found.kind == "folder":
            give_ownership(found.folder, workspace.owner)
        else:
            owner = workspace.owner
            os.chown(found.names[-1], owner, owner, dir_fd=found.folder, follow_symlinks=False)


def _walk_workspace(workspace: Workspace, left_out: list[str]) -> Iterator[Found]:
    try:
        yield from walk_tree(str(workspace.path), left_out)
    except TreeError as error:
        raise ArchiveError(str(error)) from error


def _read_regular_file(found: Found) -> tuple[bytes, os.stat_result] | None:
    """Return a regular file with its facts; None for anything else. Raises ArchiveError for one that is too large."""
    try:
        file = os.fdopen(open_file(found.folder, found.names[-1]), "rb")
    except (OSError, PathRefusedError):
        return None
    with file:
        there = os.fstat(file.fileno())
        if there.st_size > MAX_ARCHIVE_BYTES:
            raise _size_error()
        content = file.read(MAX_ARCHIVE_BYTES + 1)  # it may grow meanwhile
    if len(content) > MAX_ARCHIVE_BYTES:
        raise _size_error()
    return content, there


def _redact_content(content: bytes, redact: Callable[[str], str]) -> bytes:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return content
    shown = redact(text)
    return content if shown is text else shown.encode()


def _size_error() -> ArchiveError:
    return ArchiveError(f"it is larger than {MAX_ARCHIVE_BYTES // 2**20} MB")
