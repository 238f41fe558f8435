"""Serve an ASGI app to clients that may be hostile."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_agentbench.runners.chat import settled
from pytest_agentbench.runners.gateway.exchange import MOST_HEAD, Exchange, MalformedError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive


_BACKLOG = 128
_MOST_CONNECTIONS = 32
"""Maximum open connections of a run. Further ones wait in the kernel, so that no run uses up the open files."""

_HEAD_SECONDS = 5.0
"""Maximum seconds from the start of a connection to the end of its request's head, or until its run is known."""

_PRESSED_SECONDS = 1.0
"""The same limit while other clients wait and the maximum of connections without a run is open."""

_RETRY_SECONDS = 0.1
"""Seconds between two attempts to accept a connection, after an error of the system."""

_logger = logging.getLogger(__name__)

Tell = Callable[[str], None]
"""Callback for an error of the server itself, which may have failed its clients."""


@contextlib.asynccontextmanager
async def listening(app: ASGIApp, path: Path, tell: Tell = lambda fault: None) -> AsyncIterator[None]:
    """Serve `app` at `path` for every user inside the block. The socket's file stays.

    Raises OSError if the socket cannot be created.
    """
    server = Server(app, _MOST_CONNECTIONS, tell=tell)
    await server.start(_bind(path))
    try:
        yield
    finally:
        await server.close()


class Server:
    """An ASGI app behind a socket, with at most `connections` at a time; others wait in the kernel.

    A connection is one request. It is closed if its head does not arrive within seconds. With `strangers` the app has
    to `admit` each connection, and at most `strangers` connections may be open that it has not admitted.
    """

    # Not uvicorn: it has no time limit for a body, and its parser is so slow for each chunk that a client
    # which sends single bytes blocks the loop, and so all other runs, for seconds. Not asyncio's Server: it
    # accepts without limit, and accepts nothing for a second after an error for too many open files.

    def __init__(
        self, app: ASGIApp, connections: int, strangers: int | None = None, *, tell: Tell = lambda fault: None
    ) -> None:
        self._app, self._connections, self._strangers, self._tell = app, connections, strangers, tell
        # All state belongs to the event loop. Each connection has one task: it is in `_answering` until it ends, in
        # `_waiting` with the timer of its head until it is admitted, and in `_dropped` from its cancellation to its
        # end, because its connection is open until then. `_room` is set whenever one of these shrinks.
        self._answering: set[asyncio.Task[None]] = set()
        self._waiting: dict[asyncio.Task[None], asyncio.TimerHandle] = {}
        self._dropped: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()
        self._bound: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None

    async def start(self, bound: socket.socket) -> None:
        """Listen at a bound socket."""
        bound.listen(_BACKLOG)
        bound.setblocking(False)
        self._bound = bound
        self._accepting = asyncio.create_task(self._accept(bound))

    async def close(self) -> None:
        """Close all connections. Requests in flight are cancelled, and have ended on return."""
        if self._accepting is not None:
            await settled([self._accepting])
        await settled(list(self._answering))
        if self._bound is not None:
            self._bound.close()

    def admit(self) -> None:
        """End the time limit of the current task's connection: its request's head and run are known."""
        task = asyncio.current_task()
        if task is not None and (timer := self._waiting.pop(task, None)) is not None:
            timer.cancel()
            self._room.set()

    async def _accept(self, bound: socket.socket) -> None:
        """Accept connections until cancelled. A failed connection does not stop the loop."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                await self._make_room()
                accepted = await _accept_one(bound)
            except ConnectionError:  # the client has gone
                continue
            except Exception as error:
                # Usually too many open files: connections without a run are closed first
                self._tell(f"accepting a connection failed: {error}")
                _logger.warning("accepting a connection failed", exc_info=error)
                self._drop_oldest()
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            # An explicit task, because `close` cannot await the tasks that asyncio makes of coroutine callbacks
            task = asyncio.create_task(self._answer(accepted))
            self._waiting[task] = loop.call_later(_HEAD_SECONDS, task.cancel)
            self._answering.add(task)
            task.add_done_callback(partial(self._forget, accepted))

    async def _make_room(self) -> None:
        """Wait until a further connection may be open."""
        loop = asyncio.get_running_loop()
        while True:
            unknown = len(self._waiting) + len(self._dropped)
            pressed = self._strangers is not None and unknown >= self._strangers
            if not pressed and len(self._answering) < self._connections:
                return
            seconds: float | None = None
            if pressed and not self._dropped:
                # New clients wait: close the oldest connection without a run once it has had time to send a head
                seconds = next(iter(self._waiting.values())).when() - _HEAD_SECONDS + _PRESSED_SECONDS - loop.time()
                if seconds <= 0:
                    self._drop_oldest()
                    continue
            self._room.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._room.wait()

    def _drop_oldest(self) -> None:
        if (task := next(iter(self._waiting), None)) is not None:
            # Counted as dropped until it has ended: its connection takes up an open file until then
            self._waiting.pop(task).cancel()
            self._dropped.add(task)
            task.cancel()

    def _forget(self, accepted: socket.socket, task: asyncio.Task[None]) -> None:
        # Here and not in the task: a task that is cancelled before its first step closes nothing
        accepted.close()
        self._answering.discard(task)
        self._dropped.discard(task)
        if (timer := self._waiting.pop(task, None)) is not None:
            timer.cancel()
        self._room.set()

    async def _answer(self, accepted: socket.socket) -> None:
        """Answer the one request of a connection, from its first byte to the end of the connection."""
        with contextlib.suppress(ConnectionError):
            loop = asyncio.get_running_loop()
            reader = asyncio.StreamReader(MOST_HEAD, loop)
            protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted)
            exchange = Exchange(reader, asyncio.StreamWriter(transport, protocol, reader, loop))
            try:
                await self._respond(exchange)
                await exchange.close()
            finally:
                # close() would wait for ever for a client that reads nothing
                transport.abort()

    async def _respond(self, exchange: Exchange) -> None:
        try:
            scope = await exchange.scope()
            if self._strangers is None:  # only this run's agent can reach the socket
                self.admit()
            await self._app(scope, exchange.receive, exchange.send)
        except MalformedError as error:
            await exchange.refuse(error.status)
        except ConnectionError:
            raise
        except Exception as error:
            self._tell(f"answering a request failed: {type(error).__name__}: {error}")
            _logger.exception("answering an agent's request failed")
            await exchange.send_status(HTTPStatus.INTERNAL_SERVER_ERROR)


async def wait_until_gone(receive: Receive) -> None:
    """Wait until the client disconnects. After the body, `receive` returns for no other reason."""
    with contextlib.suppress(ConnectionError):
        await receive()


async def _accept_one(bound: socket.socket) -> socket.socket:
    """Return the next connection.

    `loop.sock_accept` loses one, and leaves it open, if its caller is cancelled just after it was accepted.
    """
    loop = asyncio.get_running_loop()
    while True:
        try:
            accepted, _ = bound.accept()
        except BlockingIOError:
            readable = asyncio.Event()
            loop.add_reader(bound, readable.set)
            try:
                await readable.wait()
            finally:
                loop.remove_reader(bound)
        else:
            accepted.setblocking(False)
            return accepted


def _bind(path: Path) -> socket.socket:
    """Return a socket bound to `path`.

    The kernel limits the path to 107 bytes, so it is bound relative to its open folder below /proc/self/fd.
    """
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            bound.bind(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
        path.chmod(0o666)
    except BaseException:
        bound.close()
        raise
    return bound
