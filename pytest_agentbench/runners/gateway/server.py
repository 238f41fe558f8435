"""Serve an ASGI app to clients that may mean harm."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, MutableMapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.runners.chat import settled

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Scope


_BACKLOG = 128
_MOST_CONNECTIONS = 32
"""How many a run has open at a time; those beyond are closed at once, so that none takes the others' open files."""

_MOST_HEAD = 16 * 1024
_MOST_UNREAD = 64 * 2**20
_PIECE = 64 * 1024
_READ_SECONDS = 60.0
"""How long a request may take to arrive."""

_logger = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def listening(app: ASGIApp, path: Path) -> AsyncIterator[None]:
    """Serve `app` at `path`, to every user, inside the block. The socket's file stays.

    Raises OSError where it cannot be made.
    """
    server = Server(app, _MOST_CONNECTIONS)
    await server.start(_bind(path))
    try:
        yield
    finally:
        await server.close()


class Server:
    """An ASGI app behind a socket, with at most so many connections at a time.

    A connection is one request, whose body has a Content-Length: uvicorn's parser takes so long for each chunk of a
    chunked one that a client which sends single bytes holds up the loop, and with it all other runs, for seconds.
    """

    # Not uvicorn, which has no limit for the time that a body takes, and answers connections beyond its limit where
    # closing them costs nothing.

    def __init__(self, app: ASGIApp, connections: int) -> None:
        self._app, self._connections = app, connections
        self._answering: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, bound: socket.socket) -> None:
        """Listen at a socket that is bound already."""
        self._server = await asyncio.start_server(self._connected, sock=bound, backlog=_BACKLOG, limit=_MOST_HEAD)

    async def close(self) -> None:
        """Close all connections; what is still being answered is cancelled and has ended."""
        if self._server is not None:
            self._server.close()
        await settled(list(self._answering))
        if self._server is not None:
            await self._server.wait_closed()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._answering) >= self._connections:
            writer.transport.abort()
            return
        # A task of our own: those that asyncio makes of a coroutine callback cannot be waited for at the end.
        task = asyncio.ensure_future(_answer(self._app, _Exchange(reader, writer)))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)


async def _answer(app: ASGIApp, exchange: _Exchange) -> None:
    """Answer the one request of a connection, from its first byte to the end of the connection."""
    with contextlib.suppress(ConnectionError):
        try:
            await _respond(app, exchange)
            await exchange.close()
        finally:
            # Closing would wait for a client that reads nothing.
            exchange.writer.transport.abort()


async def _respond(app: ASGIApp, exchange: _Exchange) -> None:
    try:
        scope = await exchange.scope()
    except _MalformedError as error:
        await exchange.send_status(error.status)
        return
    try:
        await app(scope, exchange.receive, exchange.send)
    except ConnectionError:
        raise
    except Exception:
        _logger.exception("answering an agent's request failed")
        await exchange.send_status(HTTPStatus.INTERNAL_SERVER_ERROR)


class _MalformedError(Exception):
    """Raised where what came is no request that is served here."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


@dataclass(slots=True)
class _Exchange:
    """Request and its response. `missing` is how much of the body has not come yet, in bytes.

    All of it raises ConnectionError where the client has gone, or does not send what it should in time.
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    missing: int = 0
    deadline: float | None = None
    read: bool = False
    begun: bool = False

    async def scope(self) -> Scope:
        """Return the request's head. Raises _MalformedError."""
        try:
            async with asyncio.timeout(_READ_SECONDS):
                head = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError as error:
            raise _MalformedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) from error
        except (TimeoutError, asyncio.IncompleteReadError) as error:
            raise ConnectionAbortedError("the request did not come") from error
        first, *lines = head[:-4].decode("latin-1").split("\r\n")
        words = first.split(" ")
        # 1.0 and 1.1 are the same here: each response closes its connection.
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise _MalformedError(HTTPStatus.BAD_REQUEST)
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = headers.get("content-length", "0")
        if "transfer-encoding" in headers:
            raise _MalformedError(HTTPStatus.LENGTH_REQUIRED)
        if not (length.isascii() and length.isdigit() and len(length) < 16):
            raise _MalformedError(HTTPStatus.BAD_REQUEST)
        self.missing = int(length)
        return {
            "type": "http",
            "method": words[0],
            "path": words[1].partition("?")[0],
            "query_string": words[1].partition("?")[2].encode("latin-1"),
            "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
        }

    async def receive(self) -> MutableMapping[str, Any]:
        """Return the next piece of the body; behind its end, that the client has gone, or has sent more than one
        request.
        """
        if self.read:
            await self.reader.read(1)
            return {"type": "http.disconnect"}
        piece = await self._piece() if self.missing else b""
        self.missing -= len(piece)
        self.read = not self.missing
        return {"type": "http.request", "body": piece, "more_body": not self.read}

    async def _piece(self) -> bytes:
        """Return the next piece. Time runs from the first one on: before that nobody may have been ready for it."""
        if self.deadline is None:
            self.deadline = asyncio.get_running_loop().time() + _READ_SECONDS
        try:
            async with asyncio.timeout_at(self.deadline):
                piece = await self.reader.read(min(self.missing, _PIECE))
        except TimeoutError as error:
            raise ConnectionAbortedError("the request did not come") from error
        if not piece:
            raise ConnectionAbortedError("the request ended early")
        return piece

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send a part of the response."""
        if message["type"] == "http.response.start":
            self.begun = True
            headers = [*message["headers"], (b"connection", b"close")]
            lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
            self.writer.write(_status_line(message["status"]) + lines + b"\r\n")
        else:
            self.writer.write(message.get("body", b""))
        await self.writer.drain()

    async def send_status(self, status: HTTPStatus) -> None:
        """Send a response that is nothing but its status; none where one has begun."""
        if not self.begun:
            await self.send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})

    async def close(self) -> None:
        """Wait until all that was sent has left, and the body has come: before that, clients read no response."""
        # A client that is refused early sends its whole body before it reads why: so it is taken, and dropped.
        while 0 < self.missing <= _MOST_UNREAD:
            self.missing -= len(await self._piece())
        self.writer.close()
        await self.writer.wait_closed()


def _status_line(status: int) -> bytes:
    return f"HTTP/1.1 {int(status)} {HTTPStatus(status).phrase}\r\n".encode("ascii")


def _bind(path: Path) -> socket.socket:
    """Return a socket at `path`, however long that is: the kernel takes 107 bytes, so it is named below its open
    folder.
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
