"""The streams of a script in a container: those of the program that was told to start it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import cast

from pytest_agentbench.config.keys import engine_environment
from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.containers.base import STDOUT

_STDIN, _STDERR = 0, 2
_WAITING_BYTES = 2**18
_SAID_BYTES = 4096
_END_SECONDS = 5.0


class ClientStream:
    """A script that was started by a program, which hands its streams on, and adds words of its own to stderr."""

    def __init__(self, transport: asyncio.SubprocessTransport, pipes: _Pipes) -> None:
        self._transport, self._pipes = transport, pipes

    async def begun(self) -> str | None:
        """Waits until the script has told its session's number, which is read next. What came instead, if it has not.

        Whatever else the program said before on stderr is skipped.
        """
        said = bytearray()
        while (found := await self._pipes.read(_STDERR))[1]:
            said += found[1]
            *lines, rest = said.split(b"\n")
            for number, line in enumerate(lines):
                if line.isdigit():
                    self._pipes.put_back(_STDERR, b"\n".join([*lines[number:], rest]))
                    return None
            del said[:-_SAID_BYTES]
        return said.decode("utf-8", "replace").strip() or "it says no more"

    async def read(self) -> tuple[int, bytes]:
        """As the protocol says."""
        return await self._pipes.read()

    async def pieces(self) -> AsyncIterator[tuple[int, bytes]]:
        """As the protocol says."""
        while (found := await self.read())[1]:
            yield found

    async def write(self, data: bytes) -> None:
        """As the protocol says."""
        if _STDIN not in self._pipes.open:
            raise BrokenPipeError
        self._stdin.write(data)
        await self._pipes.writable.wait()

    async def finish(self, data: bytes) -> None:
        """As the protocol says."""
        if _STDIN in self._pipes.open:
            self._stdin.write(data)
            self._stdin.close()

    async def close(self) -> None:
        """As the protocol says."""
        stdin = self._stdin if _STDIN in self._pipes.open else None
        if stdin is not None and (stdin.get_write_buffer_size() or not stdin.is_closing()):
            stdin.abort()  # nobody may be there to take what was not sent
        ending = asyncio.ensure_future(self._ended())
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            self._kill()
            await ending
            raise

    async def _ended(self) -> None:
        try:
            if not self._pipes.open & {STDOUT, _STDERR}:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_END_SECONDS):
                        await self._pipes.ended.wait()
            self._kill()
            await self._pipes.ended.wait()
        finally:
            self._transport.close()
        await self._pipes.over.wait()

    def _kill(self) -> None:
        if not self._pipes.ended.is_set():
            with suppress(ProcessLookupError):
                os.kill(self._transport.get_pid(), signal.SIGKILL)  # the transport's `kill` could bury it, unseen

    @property
    def _stdin(self) -> asyncio.WriteTransport:
        return cast(asyncio.WriteTransport, self._transport.get_pipe_transport(_STDIN))


class _Pipes(asyncio.SubprocessProtocol):
    """What came of a program and was not read yet; the program waits where that is much.

    `open` are the pipes that are not at their end, `ended` is set when the program has ended, `over` when all have.
    """

    def __init__(self, *, with_stdin: bool) -> None:
        self.open = {STDOUT, _STDERR} | ({_STDIN} if with_stdin else set())
        self.ended, self.over, self.writable = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.writable.set()
        self._came: deque[tuple[int, bytes]] = deque()
        self._changed = asyncio.Event()
        self._transport: asyncio.SubprocessTransport | None = None

    async def read(self, source: int | None = None) -> tuple[int, bytes]:
        """The next piece, of one pipe if named; no bytes at the end."""
        while True:
            for found in self._came:
                if source in (None, found[0]):
                    self._came.remove(found)
                    self._pace()
                    return found
            if not self.open & ({STDOUT, _STDERR} if source is None else {source}):
                return source or STDOUT, b""
            self._changed.clear()
            await self._changed.wait()

    def put_back(self, source: int, piece: bytes) -> None:
        """It is read next."""
        self._came.appendleft((source, piece))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._came.append((fd, data))
        self._changed.set()
        self._pace()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self.open.discard(fd)
        self._changed.set()
        if fd == _STDIN:
            self.writable.set()

    def process_exited(self) -> None:
        self.ended.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.over.set()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def _pace(self) -> None:
        """Reads on, or no more for now."""
        assert self._transport is not None
        waiting = sum(len(piece) for _, piece in self._came)
        for fd in (STDOUT, _STDERR):
            pipe = cast("asyncio.ReadTransport | None", self._transport.get_pipe_transport(fd))
            if pipe is None or pipe.is_closing():
                continue
            if waiting > _WAITING_BYTES:
                pipe.pause_reading()
            else:
                pipe.resume_reading()


async def start_client(argv: Sequence[str], *, with_stdin: bool) -> ClientStream:
    """Start the program. Raises SandboxError where it cannot be started."""
    try:
        transport, pipes = await asyncio.get_running_loop().subprocess_exec(
            lambda: _Pipes(with_stdin=with_stdin),
            *argv,
            env=engine_environment(),
            stdin=subprocess.PIPE if with_stdin else subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise SandboxError(f"{argv[0]}: {error.strerror}") from error
    return ClientStream(transport, pipes)
