"""What a command writes: its beginning and its end are kept, however much comes."""

from __future__ import annotations

import asyncio

_ENDLESS_BYTES = 32 * 2**20
_LAST_BYTES = 16_384


class LastWords:
    """The end of what a program writes to stderr: 16 KiB at most."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def add(self, data: bytes) -> None:
        """What it wrote next."""
        self._kept += data
        del self._kept[:-_LAST_BYTES]

    def text(self) -> str:
        """All that is kept."""
        return self._kept.decode("utf-8", "replace")


class Capture(asyncio.Protocol):
    """The beginning and the end of a stream, `limit` bytes together; what lies between is only counted.

    `closed` is set at the stream's end, `enough` there or when its writer counts as endless.
    """

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.left_out = 0
        self.pipe: asyncio.BaseTransport | None = None
        self.enough = asyncio.Event()
        self.closed = asyncio.Event()

    @property
    def endless(self) -> bool:
        """Whether so much came that there was no use in waiting for the end."""
        return self.left_out > _ENDLESS_BYTES

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The pipe, to be closed in the end."""
        self.pipe = transport

    def data_received(self, data: bytes) -> None:
        """Keep what is first, and what is last so far."""
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        excess = len(self._tail) - self._half
        if excess > 0:
            del self._tail[:excess]
            self.left_out += excess
        if self.endless:
            self.enough.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """The stream's end."""
        self.enough.set()
        self.closed.set()

    def text(self) -> str:
        """What was kept, with a note where something is missing."""
        if not self.left_out:
            return (self._head + self._tail).decode("utf-8", "replace")
        end = " and then it was stopped" if self.endless else ""
        note = f"\n[... {self.left_out:,} bytes left out{end} ...]\n"
        return self._head.decode("utf-8", "replace") + note + self._tail.decode("utf-8", "replace")
