"""Zstandard data that somebody packed, unpacked to a bounded size."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterable

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdDecompressor, ZstdError
else:
    from backports.zstd import ZstdDecompressor, ZstdError

MAX_FRAMES = 10_000
"""Frames of one member: an empty frame has a few bytes, and takes as much time as one of 100 kB."""


def _next_input(frame: ZstdDecompressor) -> bytes | None:
    """Return the next input of a frame, or None if it needs more than there is."""
    if frame.eof:
        return frame.unused_data or None
    # Without new input it continues with its buffer.
    if frame.needs_input:
        return None
    return b""


def unpack_zstd(blocks: Iterable[bytes], most: int) -> bytes:
    """Unpack Zstandard data of one or several frames, to at most `most` + 1 bytes: the last byte shows that there are
    more.

    Raises BadZipFile if the data are damaged or truncated.
    """
    content, frame, frames = bytearray(), ZstdDecompressor(), 1
    try:
        for block in blocks:
            data: bytes | None = block
            while data is not None and len(content) <= most:
                if frame.eof:
                    frame, frames = ZstdDecompressor(), frames + 1
                if frames > MAX_FRAMES:
                    raise zipfile.BadZipFile(f"it has more than {MAX_FRAMES:,} frames")
                content += frame.decompress(data, most + 1 - len(content))
                data = _next_input(frame)
            if len(content) > most:
                break
    except ZstdError as error:
        raise zipfile.BadZipFile(str(error)) from error
    if len(content) <= most and not frame.eof:
        raise zipfile.BadZipFile("it is cut off")
    return bytes(content)
