"""The streams of a command in a container: the daemon's connection, turned into a duplex stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.containers.base import STDOUT

_HEADER_BYTES = 8
_CHUNK_BYTES = 2**16
_START_SECONDS = 60


class ExecStream:
    """A started command. What it writes comes in frames: 1 byte stream, 3 bytes 0, 4 bytes length, payload.

    Format: "Attach to a container", section "Stream format", of the Docker Engine API. Spoken here and not through the
    SDK, whose sockets block, and which loses what comes in one packet with the response's header.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._stream, self._left = 0, 0

    async def read(self) -> tuple[int, bytes]:
        """The next piece and the stream it is of; no bytes at the end."""
        try:
            while not self._left:
                header = await self._reader.readexactly(_HEADER_BYTES)
                self._stream, self._left = header[0], int.from_bytes(header[4:], "big")
        except (asyncio.IncompleteReadError, ConnectionError):
            return STDOUT, b""
        piece = await self._reader.read(min(self._left, _CHUNK_BYTES))
        self._left -= len(piece)
        return self._stream, piece

    async def pieces(self) -> AsyncIterator[tuple[int, bytes]]:
        """All that comes, to the end."""
        while (found := await self.read())[1]:
            yield found

    async def write(self, data: bytes) -> None:
        """Send to its stdin. Raises OSError where it no longer reads."""
        self._writer.write(data)
        await self._writer.drain()

    async def finish(self, data: bytes) -> None:
        """Send to its stdin, and end that. A command that does not read it is none of the caller's business."""
        try:
            await self.write(data)
            self._writer.write_eof()
        except OSError:
            return

    async def close(self) -> None:
        """Ends the connection, with what was not sent: nobody may be there to take it. The command goes on."""
        self._writer.transport.abort()
        try:
            await self._writer.wait_closed()
        except OSError:
            return


async def start_exec(socket_path: str, api_version: str, exec_id: str) -> ExecStream:
    """Start what was created as `exec_id`. Raises SandboxError where the daemon refuses."""
    body = json.dumps({"Detach": False, "Tty": False}).encode()
    request = (
        f"POST /v{api_version}/exec/{exec_id}/start HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    try:
        reader, writer = await asyncio.open_unix_connection(socket_path)
    except OSError as error:
        raise SandboxError(f"the docker daemon is gone: {error}") from error
    stream = ExecStream(reader, writer)
    try:
        writer.write(request.encode() + body)
        async with asyncio.timeout(_START_SECONDS):
            header = await reader.readuntil(b"\r\n\r\n")
        status = int(header.split(None, 2)[1])
        if status not in (101, 200):
            reply = (await reader.read(_CHUNK_BYTES)).decode("utf-8", "replace").strip()
            raise SandboxError(f"docker cannot start a command: {reply}")
    except (OSError, EOFError, ValueError) as error:
        await stream.close()
        raise SandboxError(f"the docker daemon does not start a command: {error or 'no answer'}") from error
    except BaseException:
        await stream.close()
        raise
    return stream
