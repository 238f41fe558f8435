"""Archives of others: bounded in members and in unpacked bytes, without links and devices. Our own are written whole.

Names that lead out of the target are refused when a member is written: see `pytest_agentbench.workspaces.confined`.
"""

from __future__ import annotations

import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from pytest_agentbench.bounded.files import MAX_DOCUMENT, open_file
from pytest_agentbench.bounded.writing import replace_file
from pytest_agentbench.errors import AgentbenchError, UnwritableError

MAX_MEMBERS = 100_000
"""Members of an archive. The names of all are held."""
MAX_TOTAL = 16 * 2**30
"""Maximum unpacked bytes of a zip archive. Members may share packed data, so nothing else bounds the sum."""

_PLAIN_ZIP = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
"""Methods that Python unpacks in pieces. It unpacks each piece of bzip2 and LZMA at once, to any size."""
_ZSTD = 93
"""Number of the compression method in a zip archive."""
_LOCAL_HEADER = struct.Struct("<4s22xHH")
"""Header in front of a member's bytes: its signature, and the lengths of the name and the extra field behind it."""
_BLOCK = 64 * 1024
"""Bytes that are read of a packed member at a time."""


class ArchiveRefusedError(AgentbenchError):
    """A file that is no archive, is damaged or too large, or has members other than files and folders."""


def read_tar(path: Path, most: int, members: int = MAX_MEMBERS) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Yield the members of an uncompressed tar file, each with its content, None for a folder.

    `most` is the maximum of bytes, of the file and of all members. Raises ArchiveRefusedError for links, devices,
    sparse files and larger archives, OSError and tarfile.TarError if it cannot be read.
    """
    total = 0
    with open_file(path, most) as file, tarfile.open(fileobj=file, mode="r:") as archive:
        for count, member in enumerate(archive, 1):
            # Before anything of the member is read: a header may claim a terabyte of zeros.
            total += member.size
            if not (member.isreg() or member.isdir()) or member.issparse():
                raise ArchiveRefusedError(f"{path}: {member.name!r} is neither a plain file nor a folder")
            if too_much := _describe_excess(count, members, total, most):
                raise ArchiveRefusedError(f"{path}: it unpacks to more than {too_much}, at {member.name!r}")
            yield member, archive.extractfile(member) if member.isreg() else None


def _describe_excess(count: int, members: int, total: int, most: int) -> str | None:
    """Return the limit that an archive exceeds with so many members and bytes, or None."""
    if count > members:
        return f"{members:,} members"
    if total > most:
        return f"{most:,} bytes"
    return None


def read_tar_stream(
    stream: IO[bytes], most: int, members: int = MAX_MEMBERS
) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Yield the members of an uncompressed tar archive that is read once, each with its content, None if it has none.

    Unlike `read_tar` it yields members of all types. `most` is the maximum of bytes of all members. Raises
    ArchiveRefusedError for sparse files and larger archives, OSError and tarfile.TarError if it cannot be read.
    """
    total = 0
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for count, member in enumerate(archive, 1):
            total += member.size
            if member.issparse():
                raise ArchiveRefusedError(f"{member.name!r} is a sparse file")
            if too_much := _describe_excess(count, members, total, most):
                raise ArchiveRefusedError(f"it unpacks to more than {too_much}, at {member.name!r}")
            yield member, archive.extractfile(member) if member.isreg() else None
            archive.members.clear()  # type: ignore[attr-defined]  # which tarfile would hold to its end


def write_zip(path: Path, members: Iterable[tuple[str, bytes]]) -> None:
    """Write a zip archive of names and contents, whole or not at all. Only one member is in memory at a time.

    Raises UnwritableError.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members:
                archive.writestr(name, content)
    except OSError as error:
        raise UnwritableError(f"{path}: cannot be written: {error.strerror or error}") from error


class ZipReader:
    """A zip archive, read by its members' names. A context manager.

    Raises ArchiveRefusedError if the file is no archive or has too many members, OSError if it cannot be opened.
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

        Raises ArchiveRefusedError, and NotImplementedError for an unsupported compression method.
        """
        member, place = self._members[name], f"{self._path}!{name}"
        if member.compress_type not in _PLAIN_ZIP | {_ZSTD}:
            raise NotImplementedError(f"compression method {member.compress_type}")
        if member.file_size > most:
            raise ArchiveRefusedError(f"{place}: found {member.file_size:,} bytes, expected at most {most:,}")
        try:
            if member.compress_type == _ZSTD:
                content = self._read_zstd(member)
            else:
                with self._archive.open(member) as file:
                    # The size in the archive's directory is untrusted, so the unpacked bytes are counted.
                    content = file.read(most + 1)
        except (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
            raise ArchiveRefusedError(f"{place}: cannot be read: {error}") from error
        self._left -= len(content)
        if len(content) > most or self._left < 0:
            raise ArchiveRefusedError(f"{place}: it, or the archive, unpacks to more than its limit ({most:,} bytes)")
        return content

    def _read_zstd(self, member: zipfile.ZipInfo) -> bytes:
        """Unpack a member that is packed with Zstandard, to its declared size at most.

        `zipfile` does not: it knows the method from Python 3.14 on only, and reads the first of several frames there.
        Raises BadZipFile if the member is damaged.
        """
        # A separate library, which few sessions need.
        from pytest_agentbench.bounded.zstd import unpack_zstd

        content = unpack_zstd(self._read_packed(member), member.file_size)
        if len(content) != member.file_size or zlib.crc32(content) != member.CRC:
            raise zipfile.BadZipFile("its size or checksum is wrong")
        return content

    def _read_packed(self, member: zipfile.ZipInfo) -> Iterator[bytes]:
        """Yield the bytes of a member as they are packed."""
        if member.flag_bits & 1:
            raise zipfile.BadZipFile("it is encrypted")
        self._file.seek(member.header_offset)
        header = self._file.read(_LOCAL_HEADER.size)
        if len(header) < _LOCAL_HEADER.size or not header.startswith(b"PK\x03\x04"):
            raise zipfile.BadZipFile("it does not begin at its place in the archive")
        _, name, extra = _LOCAL_HEADER.unpack(header)
        self._file.seek(name + extra, os.SEEK_CUR)
        left = member.compress_size
        while left > 0 and (block := self._file.read(min(left, _BLOCK))):
            left -= len(block)
            yield block
