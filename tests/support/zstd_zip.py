"""Write zip archives packed with Zstandard, as Inspect does: `zipfile` has it only since Python 3.14."""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path

if sys.version_info >= (3, 14):
    from compression.zstd import compress
else:
    from backports.zstd import compress

METHOD = 93


def write_zstd_zip(path: Path, members: Mapping[str, bytes], *, frame: int = 2**30) -> Path:
    """Write the archive; a member's content is cut into frames of `frame` bytes."""
    pack = {name: pack_frames(content, frame) for name, content in members.items()}
    return write_zip(
        path, {name: (packed, len(members[name]), zlib.crc32(members[name])) for name, packed in pack.items()}
    )


def pack_frames(content: bytes, frame: int) -> bytes:
    starts = range(0, max(len(content), 1), frame)
    return b"".join(compress(content[start : start + frame]) for start in starts)


def write_zip(path: Path, members: Mapping[str, tuple[bytes, int, int]], flags: int = 0) -> Path:
    """Write an archive of packed bytes, each with its declared size and checksum."""
    body, directory = bytearray(), bytearray()
    for name, (packed, size, crc) in members.items():
        written = name.encode()
        fields = struct.pack("<HHHHHIIIHH", 63, flags, METHOD, 0, 0x21, crc, len(packed), size, len(written), 0)
        directory += (
            b"PK\x01\x02" + struct.pack("<H", 63) + fields + struct.pack("<HHHII", 0, 0, 0, 0, len(body)) + written
        )
        body += b"PK\x03\x04" + fields + written + packed
    end = struct.pack("<HHHHIIH", 0, 0, len(members), len(members), len(directory), len(body), 0)
    path.write_bytes(bytes(body + directory) + b"PK\x05\x06" + end)
    return path
