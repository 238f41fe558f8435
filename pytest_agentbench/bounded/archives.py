"""Archives that somebody made: bounded in members and in what they unpack to, without links and devices.

A name that leads out is refused by whoever writes the member: see `pytest_agentbench.workspaces.confined`.
"""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from pytest_agentbench.bounded.files import MAX_DOCUMENT, open_file
from pytest_agentbench.errors import AgentbenchError

MAX_MEMBERS = 100_000
"""Members of an archive. The names of all are held."""
MAX_TOTAL = 16 * 2**30
"""Bytes that all members of a zip archive unpack to: where they share what is packed, that has no other bound."""

_PLAIN_ZIP = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
"""What Python unpacks a piece at a time. All that a read gets of bzip2 and LZMA is unpacked in one go, to any size."""


class ArchiveRefusedError(AgentbenchError):
    """An archive that is none, is damaged, or holds more than it may, or something else than files and folders."""


def read_tar(path: Path, most: int, members: int = MAX_MEMBERS) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Yield the members of a tar file that is not packed: each with its content, None for a folder.

    `most` is how many bytes the file may have, and its members together. Raises ArchiveRefusedError for links, devices,
    sparse files and more than that, OSError and tarfile.TarError where it cannot be read.
    """
    total = 0
    with open_file(path, most) as file, tarfile.open(fileobj=file, mode="r:") as archive:
        for count, member in enumerate(archive, 1):
            # Before anything of the member is read: a header may claim a terabyte of zeros.
            total += member.size
            if not (member.isreg() or member.isdir()) or member.issparse():
                raise ArchiveRefusedError(f"{path}: {member.name!r} is neither a plain file nor a folder")
            if total > most or count > members:
                more = f"{members:,} members" if count > members else f"{most:,} bytes"
                raise ArchiveRefusedError(f"{path}: it unpacks to more than {more}, at {member.name!r}")
            yield member, archive.extractfile(member) if member.isreg() else None


class ZipReader:
    """A zip archive that is read by its members' names. A context manager.

    Raises ArchiveRefusedError where it is none or has too many members, OSError where it cannot be opened.
    """

    def __init__(self, path: Path, most: int = MAX_DOCUMENT) -> None:
        self._path, self._left = path, MAX_TOTAL
        self._file: BufferedReader = open_file(path, most)
        try:
            self._archive = zipfile.ZipFile(self._file)
            members = self._archive.infolist()
            if len(members) > MAX_MEMBERS:
                raise ArchiveRefusedError(f"{path}: found {len(members):,} members, expected at most {MAX_MEMBERS:,}")
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            self._file.close()
            raise ArchiveRefusedError(f"{path}: cannot be read as a zip archive: {error}") from error
        except BaseException:
            self._file.close()
            raise
        self._members = {member.filename: member for member in members}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._archive.close()
        self._file.close()

    @property
    def names(self) -> list[str]:
        """Return the names of its members, sorted."""
        return sorted(self._members)

    def read(self, name: str, most: int) -> bytes:
        """Unpack a member of at most `most` bytes.

        Raises ArchiveRefusedError, and NotImplementedError where it is packed in a way that is not read.
        """
        member, place = self._members[name], f"{self._path}!{name}"
        if member.compress_type not in _PLAIN_ZIP:
            raise NotImplementedError(f"compression method {member.compress_type}")
        if member.file_size > most:
            raise ArchiveRefusedError(f"{place}: found {member.file_size:,} bytes, expected at most {most:,}")
        try:
            with self._archive.open(member) as file:
                # The size in the archive's directory is the packer's word; what really comes is counted.
                content = file.read(most + 1)
        except (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
            raise ArchiveRefusedError(f"{place}: cannot be read: {error}") from error
        self._left -= len(content)
        if len(content) > most or self._left < 0:
            raise ArchiveRefusedError(f"{place}: it, or the archive, unpacks to more than it may ({most:,} bytes)")
        return content
