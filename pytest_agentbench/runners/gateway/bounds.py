"""Bounds on the requests of one run: memory, pace and JSON size."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from pytest_agentbench.bounded.json_files import lies_deep

_MOST_VALUES = 100_000
"""Values in a request, outside of its texts: 1,000 messages with 1,000 tools have some 20,000."""

_MOST_LEVELS = 100


class SlotPool:
    """A pool of slots. One user may take several."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._freed = asyncio.Event()

    @contextlib.asynccontextmanager
    async def take(self, number: int) -> AsyncIterator[None]:
        """Hold `number` slots inside the block. Wait until that many are free at once."""
        # One event for all: each waiting task checks again, and the loop runs one task at a time
        while self._free < number:
            self._freed.clear()
            await self._freed.wait()
        self._free -= number
        try:
            yield
        finally:
            self._free += number
            self._freed.set()


class Pace:
    """Spaces requests at least `seconds` apart, in the order of their arrival."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._next = seconds, 0.0

    async def wait(self) -> None:
        """Wait until the next free time."""
        now = asyncio.get_running_loop().time()
        start = max(now, self._next)
        # Reserved before the sleep, so that concurrent callers get different times
        self._next = start + self._seconds
        if start > now:
            await asyncio.sleep(start - now)


def is_plain(document: bytes) -> bool:
    """Return whether a JSON document has few enough values to parse quickly. 32 MB of `[],` take seconds."""
    if len(document) <= _MOST_VALUES or _separators(document) <= _MOST_VALUES:
        return True
    # Without escaped quotes, every second piece between quotes is a text. Splitting at many quotes takes long
    document = document.replace(b"\\\\", b"").replace(b'\\"', b"")
    if document.count(b'"') > 4 * _MOST_VALUES:
        return False
    return _separators(b"".join(document.split(b'"')[::2])) <= _MOST_VALUES


def is_deep(value: object) -> bool:
    """Return whether a JSON value nests too deeply for recursive functions."""
    return lies_deep(value, _MOST_LEVELS)


def _separators(document: bytes) -> int:
    """Return an upper bound of the number of values, minus one."""
    return document.count(b",") + document.count(b"[") + document.count(b"{")
