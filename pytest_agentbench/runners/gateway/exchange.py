"""Read one HTTP request of a connection, and write its response, within bounds of size, time and pieces."""

from __future__ import annotations

import asyncio
import re
from collections.abc import MutableMapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.types import Scope

MOST_HEAD = 16 * 1024
"""Maximum bytes of a request's head, of the line before a chunk, and of the trailers."""

_MOST_CHUNKS = 32 * 1024
"""Maximum chunks of a body: one per kilobyte of the largest body."""

_MOST_UNREAD = 64 * 2**20
_PIECE = 64 * 1024
_READ_SECONDS = 60.0
"""Seconds in which a body has to arrive."""

_REFUSED_SECONDS = 2.0
"""Seconds that a malformed request may go on: a client reads the refusal only when it has sent all."""

_FIELD = re.compile(r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\0\r\n]*)")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(;[^\0\r\n]*)?")
_FRAMING = ("content-length", "transfer-encoding")
_CHUNKS_AT_ONCE = 64
"""Chunks between two switches to other tasks: reading small chunks from the buffer never waits."""


class MalformedError(Exception):
    """Raised for a malformed request; `status` is the response."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


@dataclass(slots=True)
class Exchange:
    """A request and its response. `missing` is the number of bytes of the body, or of a chunk, that have not arrived
    yet.

    All methods raise ConnectionError if the client has disconnected or sends too slowly.
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    missing: int = 0
    chunks: int | None = None
    """Chunks that have begun; None if the body has a Content-Length."""
    deadline: float | None = None
    read: bool = False
    begun: bool = False

    async def scope(self) -> Scope:
        """Return the request's head. Raises MalformedError."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError as error:
            raise MalformedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) from error
        except asyncio.IncompleteReadError as error:
            raise ConnectionAbortedError("the request did not arrive") from error
        first, *lines = head[:-4].decode("latin-1").split("\r\n")
        words = first.split(" ")
        # 1.0 and 1.1 are served alike, because each response closes its connection
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise MalformedError(HTTPStatus.BAD_REQUEST)
        headers = _read_fields(lines)
        self._frame(headers)
        return {
            "type": "http",
            "method": words[0],
            "path": words[1].partition("?")[0],
            "query_string": words[1].partition("?")[2].encode("latin-1"),
            "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
            "client": self.writer.get_extra_info("peername"),
        }

    def _frame(self, headers: dict[str, str]) -> None:
        """Store the length of the body. Raises MalformedError if the headers are ambiguous (request smuggling)."""
        length = headers.get("content-length", "0")
        if "transfer-encoding" in headers:
            if "content-length" in headers:
                raise MalformedError(HTTPStatus.BAD_REQUEST)
            if headers["transfer-encoding"].lower() != "chunked":
                raise MalformedError(HTTPStatus.NOT_IMPLEMENTED)
            self.chunks = 0
        # `isdigit` alone accepts other scripts' digits, and Python refuses to convert very long numbers
        elif not (length.isascii() and length.isdigit() and len(length) < 16):
            raise MalformedError(HTTPStatus.BAD_REQUEST)
        else:
            self.missing = int(length)

    async def receive(self) -> MutableMapping[str, Any]:
        """Return the next piece of the body, then the event that the client has disconnected or sent another request.

        Raises MalformedError for malformed chunks.
        """
        if self.read:
            await self.reader.read(1)
            return {"type": "http.disconnect"}
        piece = await self._next_piece()
        return {"type": "http.request", "body": piece, "more_body": not self.read}

    async def _next_piece(self) -> bytes:
        """Return the next piece, empty at the end.

        The time limit begins with the first piece, because a request may wait for a slot before.
        """
        if self.deadline is None:
            self.deadline = asyncio.get_running_loop().time() + _READ_SECONDS
        try:
            async with asyncio.timeout_at(self.deadline):
                return await (self._read_known() if self.chunks is None else self._read_chunked())
        except TimeoutError as error:
            raise ConnectionAbortedError("the request did not arrive") from error
        except asyncio.IncompleteReadError as error:
            raise ConnectionAbortedError("the request ended early") from error
        except asyncio.LimitOverrunError as error:
            raise MalformedError(HTTPStatus.BAD_REQUEST) from error

    async def _read_known(self) -> bytes:
        piece = b""
        if self.missing:
            piece = await self.reader.read(min(self.missing, _PIECE))
            if not piece:
                raise ConnectionAbortedError("the request ended early")
        self.missing -= len(piece)
        self.read = not self.missing
        return piece

    async def _read_chunked(self) -> bytes:
        if not self.missing:
            await self._begin_chunk()
            if self.read:
                return b""
        piece = await self.reader.read(min(self.missing, _PIECE))
        if not piece:
            raise ConnectionAbortedError("the request ended early")
        self.missing -= len(piece)
        if not self.missing and await self.reader.readexactly(2) != b"\r\n":
            raise MalformedError(HTTPStatus.BAD_REQUEST)
        return piece

    async def _begin_chunk(self) -> None:
        """Read the size of the next chunk. After the last chunk read the trailers, and drop them."""
        self.chunks = (self.chunks or 0) + 1
        if self.chunks > _MOST_CHUNKS:
            raise MalformedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        # Chunks from the buffer never wait, so a body of many small ones would block the loop
        if not self.chunks % _CHUNKS_AT_ONCE:
            await asyncio.sleep(0)
        size = _CHUNK_SIZE.fullmatch((await self.reader.readuntil(b"\r\n"))[:-2])
        if size is None:
            raise MalformedError(HTTPStatus.BAD_REQUEST)
        self.missing = int(size[1], 16)
        remaining = MOST_HEAD
        while not self.missing and not self.read:
            line = await self.reader.readuntil(b"\r\n")
            remaining -= len(line)
            if remaining < 0:
                raise MalformedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            self.read = line == b"\r\n"

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send a part of the response."""
        if message["type"] == "http.response.start":
            self.begun = True
            headers = [*message["headers"], (b"connection", b"close")]
            if message["status"] >= HTTPStatus.MULTIPLE_CHOICES:
                # Bun 1.3 heeds `connection: close` in successes only, and loses the next request that it sends on this
                # connection. A body without a length ends with its connection
                headers = [header for header in headers if header[0] != b"content-length"]
            lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
            status = HTTPStatus(message["status"])
            self.writer.write(f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode("ascii") + lines + b"\r\n")
        else:
            self.writer.write(message.get("body", b""))
        await self.writer.drain()

    async def send_status(self, status: HTTPStatus) -> None:
        """Send a response without a body, unless a response has begun."""
        # A second head inside of a body would be read as a part of the body
        if not self.begun:
            await self.send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})

    async def refuse(self, status: HTTPStatus) -> None:
        """Send the status of a malformed request. Drop the rest of the request, because its end is unknown."""
        await self.send_status(status)
        self.writer.write_eof()
        self.chunks, self.missing, self.read = None, _MOST_UNREAD, False
        self.deadline = asyncio.get_running_loop().time() + _REFUSED_SECONDS

    async def close(self) -> None:
        """Wait until the response is sent and the body has arrived: before that, clients read no response."""
        # A client that is refused early sends its whole body before it reads the reason, so read and drop it
        unread = self.missing
        while not self.read and unread <= _MOST_UNREAD:
            try:
                piece = await self._next_piece()
            except MalformedError:
                break
            if self.chunks is not None:  # else `missing` was the length of the whole body
                unread += len(piece)
        self.writer.close()
        await self.writer.wait_closed()


def _read_fields(lines: list[str]) -> dict[str, str]:
    """Return the headers by their names in lower case. Raises MalformedError.

    The last one of equal headers counts. Equal headers that frame the body are malformed.
    """
    headers: dict[str, str] = {}
    for line in lines:
        field = _FIELD.fullmatch(line)
        if field is None or ((name := field[1].lower()) in headers and name in _FRAMING):
            raise MalformedError(HTTPStatus.BAD_REQUEST)
        headers[name] = field[2].rstrip(" \t")
    return headers
