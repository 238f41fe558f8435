"""Bound what one run may ask of this process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from pytest_agentbench.bounded.json_files import lies_deep

_MOST_VALUES = 100_000
"""Values in a request, outside of its texts: 1,000 messages with 1,000 tools have some 20,000."""

_MOST_LEVELS = 100


class SlotPool:
    """Pool of slots, of which one may need several."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._freed = asyncio.Event()

    @contextlib.asynccontextmanager
    async def take(self, number: int) -> AsyncIterator[None]:
        """Have that many inside the block, once they are free together."""
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
    """Lets one pass after the other, at least `seconds` apart. None waits for longer than those before it take."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._next = seconds, 0.0

    async def wait(self) -> None:
        """Wait for one's turn."""
        now = asyncio.get_running_loop().time()
        mine = max(now, self._next)
        self._next = mine + self._seconds
        if mine > now:
            await asyncio.sleep(mine - now)


def is_plain(document: bytes) -> bool:
    """Return whether a JSON document has so few values that it is read in no time; 32 MB of `[],` take seconds."""
    if len(document) <= _MOST_VALUES or _separators(document) <= _MOST_VALUES:
        return True
    # Without escaped quotes every second piece between quotes is a text. Many quotes would take long to split at.
    document = document.replace(b"\\\\", b"").replace(b'\\"', b"")
    if document.count(b'"') > 4 * _MOST_VALUES:
        return False
    return _separators(b"".join(document.split(b'"')[::2])) <= _MOST_VALUES


def is_deep(value: object) -> bool:
    """Return whether a JSON value nests so deep that what goes through it by recursion might not come to its end."""
    return lies_deep(value, _MOST_LEVELS)


def _separators(document: bytes) -> int:
    """Return a number that is at least that of the values, but for one."""
    return document.count(b",") + document.count(b"[") + document.count(b"{")
