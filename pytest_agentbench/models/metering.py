"""Book the usage of requests whose caller gets no reply: failed attempts that may be billed, and requests given up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from pytest_agentbench.records.run import Usage

if TYPE_CHECKING:
    from pytest_agentbench.models.messages import ChatReply


class Meter:
    """Books the usage of requests whose caller gets no reply, and reads replies on whose caller has gone.

    For one event loop. `book` gets one usage per request. `role` is the role in the run that the requests belong to,
    None for the run's own model and for judges.
    """

    def __init__(self, book: Callable[[Usage], None], role: str | None = None) -> None:
        self.book, self.role = book, role
        self._open: set[asyncio.Task[ChatReply]] = set()
        self._read_on: set[asyncio.Task[ChatReply]] = set()

    def also(self, book: Callable[[Usage], None]) -> Meter:
        """Return a meter that books with `book` in addition; the requests of both are the same."""

        def both(usage: Usage) -> None:
            self.book(usage)
            book(usage)

        return self._with_book(both, self.role)

    def for_role(self, role: str, book: Callable[[Usage], None]) -> Meter:
        """Return a meter that books with `book` instead, for a role; the requests of both are the same."""
        return self._with_book(book, role)

    def _with_book(self, book: Callable[[Usage], None], role: str | None) -> Meter:
        meter = Meter(book, role)
        meter._open, meter._read_on = self._open, self._read_on
        return meter

    @property
    def pending(self) -> int:
        """Return how many replies are being read on."""
        return len(self._read_on)

    def watch(self, asking: asyncio.Task[ChatReply]) -> None:
        """Note a request that is under way."""
        self._open.add(asking)
        asking.add_done_callback(self._open.discard)

    def read_on(self, asking: asyncio.Task[ChatReply], seconds: float) -> None:
        """Let a request end within `seconds`, and book the usage of its reply. A failure books its own estimate."""
        if asking.done():
            self._book_reply(asking)
            return
        timer = asyncio.get_running_loop().call_later(seconds, asking.cancel)

        def ended(asking: asyncio.Task[ChatReply]) -> None:
            timer.cancel()
            self._read_on.discard(asking)
            self._book_reply(asking)

        self._read_on.add(asking)
        asking.add_done_callback(ended)

    def _book_reply(self, asking: asyncio.Task[ChatReply]) -> None:
        if not asking.cancelled() and asking.exception() is None:
            self.book(asking.result().usage)

    async def settle(self) -> None:
        """Wait until no reply is being read on."""
        while self._read_on:
            await asyncio.wait(self._read_on)

    async def finish(self) -> None:
        """Wait until every request has ended, after its caller has returned or was cancelled."""
        await asyncio.sleep(0)  # a caller that was cancelled just now has not heard of it yet
        while self._open:
            await asyncio.wait(self._open)
        await asyncio.sleep(0)

    async def give_up(self) -> None:
        """Cancel every request: their cost is estimated."""
        if self._open:
            await asyncio.sleep(0)
            for asking in self._open:
                asking.cancel()
            await self.finish()


METER: ContextVar[Meter | None] = ContextVar("METER", default=None)
"""Meter that pays for the current task's requests."""


@asynccontextmanager
async def metered(book: Callable[[Usage], None]) -> AsyncIterator[Meter]:
    """Book requests inside the block without a reply by `book`. At its end no reply is read further."""
    meter = Meter(book)
    token = METER.set(meter)
    try:
        yield meter
    finally:
        METER.reset(token)
        await meter.give_up()
