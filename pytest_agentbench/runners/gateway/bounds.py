"""Bounds on the requests of one run: memory, pace and JSON size."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from pytest_agentbench.bounded.json_files import lies_deep

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope

_SLOTS, _BYTES_PER_SLOT = 8, 4 * 2**20
"""Concurrent requests of a run, and bytes of each. A larger request takes several slots, the largest takes all."""

_MOST_VALUES = 100_000
"""Values in a request, outside of its texts: 1,000 messages with 1,000 tools have some 20,000."""

_MOST_LEVELS = 100


class RequestSlots:
    """The slots of one run's requests. They bound the number of concurrent requests and the memory of their bodies."""

    def __init__(self) -> None:
        self._free = _SLOTS
        self._freed = asyncio.Event()

    @contextlib.asynccontextmanager
    async def reserve(self, scope: Scope, receive: Receive) -> AsyncIterator[Receive]:
        """Hold the slots of a request inside the block. Yield a `receive` that starts at the request's beginning."""
        number = _count_slots(scope)
        if number is None:
            # One slot while the first part is read. It is released before more are taken: two requests that each hold
            # one slot and wait for all would wait for ever
            async with self._take(1):
                receive, number = await _read_ahead(receive)
        async with self._take(number):
            yield receive

    @contextlib.asynccontextmanager
    async def _take(self, number: int) -> AsyncIterator[None]:
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


def _count_slots(scope: Scope) -> int | None:
    """Return the slots that a request of this length needs, or None if it comes in chunks of unknown length."""
    headers = dict(scope["headers"])
    if b"transfer-encoding" in headers:
        return None
    # Certainly a number: the server refuses everything else
    length = headers.get(b"content-length", b"0")
    return min(_SLOTS, 1 + int(length) // _BYTES_PER_SLOT)


async def _read_ahead(receive: Receive) -> tuple[Receive, int]:
    """Return a `receive` that starts at the beginning of the request, and its slots: one if the body fits, else all."""
    body, more = bytearray(), True
    while more and len(body) < _BYTES_PER_SLOT:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    begun: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": more}]

    async def receive_again() -> Message:
        if begun:
            return begun.pop()
        return await receive()

    return receive_again, _SLOTS if more else 1


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
