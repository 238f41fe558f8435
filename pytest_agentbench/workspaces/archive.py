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
from pytest_agentbench.workspaces.workspace import MAX_DEPTH, MAX_ENTRIES, TreeEntry, TreeError, Workspace, walk_tree

MAX_ARCHIVE_BYTES = 64 * 2**20
"""Maximum bytes of a workspace's archive with headers, and of its content."""

_MAX_PATH = 3_800
"""Maximum bytes of a path. Linux opens at most 4,096, including the path of the workspace."""

_LATEST = 2**33  # seconds since 1970: the largest time of a tar header
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)


class ArchiveError(AgentbenchError):
    """Raised for a workspace that is too large to store, or an archive that cannot be unpacked."""


def pack_workspace(workspace: Workspace, target: BinaryIO, redact: Callable[[str], str] = str) -> list[str]:
    """Write the files and folders of a workspace, also its private `.tmp`. Return the paths that are left out.

    `redact` is applied to names and to files that are UTF-8 text. Links, files with several hard links, FIFOs, sockets,
    unreadable files, and paths that are too long to restore are left out. Raises ArchiveError if the content is too
    large, OSError from `target`.
    """
    left_out: list[str] = []
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:  # noqa: TID251 - it is written
        for entry in _walk_workspace(workspace, left_out):
            if len(os.fsencode(entry.path)) > _MAX_PATH:
                left_out.append(entry.path)
                continue
            header, content, status = tarfile.TarInfo(redact(entry.path)), None, entry.stat
            if entry.kind == "folder":
                header.type = tarfile.DIRTYPE
            elif (read := _read_regular_file(entry)) is None:
                left_out.append(entry.path)
                continue
            else:
                content, status = _redact_content(read[0], redact), read[1]
                header.size = len(content)
            header.mode = stat.S_IMODE(status.st_mode) & 0o777  # without set-user-id, set-group-id and sticky bits
            header.mtime = min(max(int(status.st_mtime), 0), _LATEST)
            # The header, and the two empty blocks at an archive's end, count too
            if target.tell() + 3 * tarfile.BLOCKSIZE + header.size > MAX_ARCHIVE_BYTES:
                raise _size_error()
            archive.addfile(header, io.BytesIO(content) if content is not None else None)
    return left_out


def unpack_workspace(archive: Path, workspace: Workspace) -> None:
    """Restore the content that `pack_workspace` wrote.

    Raises ArchiveError for another file, SandboxError if there is no space.
    """
    try:
        for member, content in read_tar(archive, MAX_ARCHIVE_BYTES, MAX_ENTRIES):
            if member.name.count("/") > MAX_DEPTH:
                raise ArchiveError(f"{archive}: {member.name!r} is nested in more than {MAX_DEPTH} folders")
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
    """Restore one folder or file by the confined functions, so that no name leads out of the workspace.

    Raises PathRefusedError for a name that would.
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
            # Always readable and writable by its owner, because the run that continues with it is packed again
            os.fchmod(file.fileno(), member.mode & 0o777 | stat.S_IRUSR | stat.S_IWUSR)
            os.utime(file.fileno(), (member.mtime, member.mtime))


def _restore_ownership(workspace: Workspace) -> None:
    """Give all files of a workspace to its owner."""
    if workspace.owner is None:
        return
    for entry in walk_tree(str(workspace.path), []):
        if entry.kind == "folder":
            give_ownership(entry.folder, workspace.owner)
        else:
            owner = workspace.owner
            os.chown(entry.names[-1], owner, owner, dir_fd=entry.folder, follow_symlinks=False)


def _walk_workspace(workspace: Workspace, left_out: list[str]) -> Iterator[TreeEntry]:
    try:
        yield from walk_tree(str(workspace.path), left_out)
    except TreeError as error:
        raise ArchiveError(str(error)) from error


def _read_regular_file(entry: TreeEntry) -> tuple[bytes, os.stat_result] | None:
    """Return content and status of a regular file, None for anything else. Raises ArchiveError for a too large file."""
    try:
        file = os.fdopen(open_file(entry.folder, entry.names[-1]), "rb")
    except (OSError, PathRefusedError):
        return None
    with file:
        status = os.fstat(file.fileno())
        if status.st_size > MAX_ARCHIVE_BYTES:
            raise _size_error()
        content = file.read(MAX_ARCHIVE_BYTES + 1)  # the file may be growing
    if len(content) > MAX_ARCHIVE_BYTES:
        raise _size_error()
    return content, status


def _redact_content(content: bytes, redact: Callable[[str], str]) -> bytes:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return content
    shown = redact(text)
    if shown is text:
        return content
    return shown.encode()


def _size_error() -> ArchiveError:
    return ArchiveError(f"it is larger than {MAX_ARCHIVE_BYTES // 2**20} MB")
