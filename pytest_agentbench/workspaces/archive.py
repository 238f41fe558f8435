"""A workspace as a tar file: regular files and folders, nothing that leads elsewhere."""

from __future__ import annotations

import errno
import io
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from pytest_agentbench.errors import AgentbenchError, SandboxError
from pytest_agentbench.workspaces.confined import PathRefusedError, open_file, open_folder
from pytest_agentbench.workspaces.workspace import Workspace

MAX_ARCHIVE_BYTES = 64 * 2**20
"""The largest archive of a workspace, headers included, and the most that one unpacks to."""

_MAX_ENTRIES = 50_000
_MAX_DEPTH = 100
_LATEST = 2**33  # seconds since 1970, what every tar header holds
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)

Names = tuple[str, ...]


class ArchiveError(AgentbenchError):
    """A workspace that is too large to be kept, or an archive that cannot be unpacked."""


def pack(workspace: Workspace, target: BinaryIO, redact: Callable[[str], str] = str) -> list[str]:
    """Writes the files and folders of a workspace, its private `.tmp` too; the paths of all else, which is left out.

    `redact` is applied to names and to files that are UTF-8 text. Left out are links, files with several hard links,
    FIFOs, sockets, and what cannot be read. Raises ArchiveError for what is too large, OSError from `target`.
    """
    left_out: list[str] = []
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for names, content, found in _walk(workspace, left_out):
            header = tarfile.TarInfo(redact("/".join(names)))
            header.mode = stat.S_IMODE(found.st_mode) & 0o777
            header.mtime = min(max(int(found.st_mtime), 0), _LATEST)
            if content is None:
                header.type = tarfile.DIRTYPE
            else:
                content = _redacted(content, redact)
                header.size = len(content)
            if target.tell() + 3 * tarfile.BLOCKSIZE + header.size > MAX_ARCHIVE_BYTES:
                raise _too_large()
            archive.addfile(header, io.BytesIO(content) if content is not None else None)
    return left_out


def unpack(archive: Path, workspace: Workspace) -> None:
    """Puts back what `pack` wrote. Raises ArchiveError for what is no such archive, SandboxError for want of room."""
    total = 0
    try:
        with tarfile.open(archive, "r:") as members:
            for count, member in enumerate(members, 1):
                total += member.size
                is_kept = (member.isreg() or member.isdir()) and not member.issparse()
                is_small = total <= MAX_ARCHIVE_BYTES and count <= _MAX_ENTRIES and member.name.count("/") <= _MAX_DEPTH
                if not (is_kept and is_small):
                    raise ArchiveError(f"{archive}: {member.name!r} is no file or folder that a workspace keeps")
                members.extract(member, workspace.path, filter="data")
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise SandboxError(f"no room to restore a workspace: {error}; set TMPDIR to another folder") from error
        raise ArchiveError(f"{archive}: cannot be unpacked: {error.strerror or error}") from error
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        raise ArchiveError(f"{archive}: cannot be unpacked: {error}") from error


def _walk(workspace: Workspace, left_out: list[str]) -> Iterator[tuple[Names, bytes | None, os.stat_result]]:
    """Every file with its content and every folder with None, a folder before what it holds."""
    pending: list[Names] = [()]
    seen = 0
    while pending:
        names = pending.pop()
        if len(names) > _MAX_DEPTH:
            raise ArchiveError(f"its folders are nested deeper than {_MAX_DEPTH}")
        try:
            with open_folder(str(workspace.path), names) as folder:
                if names:
                    yield names, None, os.fstat(folder)
                with os.scandir(folder) as entries:
                    found = sorted(entry.name for entry in islice(entries, _MAX_ENTRIES))
                seen += len(found)
                if seen >= _MAX_ENTRIES:
                    raise ArchiveError(f"it holds {_MAX_ENTRIES:,} files or more")
                for name in found:
                    below = (*names, name)
                    if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                        pending.append(below)
                        continue
                    content = _content(folder, name)
                    if content is None:
                        left_out.append("/".join(below))
                    else:
                        yield below, *content
        except (PathRefusedError, PermissionError, FileNotFoundError, NotADirectoryError):
            left_out.append("/".join(names))


def _content(folder: int, name: str) -> tuple[bytes, os.stat_result] | None:
    """A regular file; None for anything else. Raises ArchiveError for one that is too large."""
    try:
        file = os.fdopen(open_file(folder, name), "rb")
    except (OSError, PathRefusedError):
        return None
    with file:
        found = os.fstat(file.fileno())
        if found.st_size > MAX_ARCHIVE_BYTES:
            raise _too_large()
        content = file.read(MAX_ARCHIVE_BYTES + 1)
    if len(content) > MAX_ARCHIVE_BYTES:
        raise _too_large()
    return content, found


def _redacted(content: bytes, redact: Callable[[str], str]) -> bytes:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return content
    shown = redact(text)
    return content if shown is text else shown.encode()


def _too_large() -> ArchiveError:
    return ArchiveError(f"it is larger than {MAX_ARCHIVE_BYTES // 2**20} MB")
