"""A program that a sandbox started on this machine: its output, its input, its end and that of all it began."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import IO

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.confined import give_ownership
from pytest_agentbench.workspaces.sandboxes.base import ExecResult, Killed

_ENDLESS_BYTES = 32 * 2**20
_LAST_BYTES = 16_384


class OutputTail:
    """End of what a program writes to stderr: 16 KiB at most."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def add(self, data: bytes) -> None:
        """Add what came next."""
        self._kept += data
        del self._kept[:-_LAST_BYTES]

    def text(self) -> str:
        """Return all that is kept."""
        return self._kept.decode("utf-8", "replace")


class Capture(asyncio.Protocol):
    """Beginning and end of a stream, `limit` bytes together; what lies between is only counted.

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
        """Return whether so much came that there was no use in waiting for the end."""
        return self.left_out > _ENDLESS_BYTES

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the pipe, to be closed in the end."""
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
        """Note the stream's end."""
        self.enough.set()
        self.closed.set()

    def text(self) -> str:
        """Return what was kept, with a note where something is missing."""
        if not self.left_out:
            return (self._head + self._tail).decode("utf-8", "replace")
        end = " and then it was stopped" if self.endless else ""
        note = f"\n[... {self.left_out:,} bytes left out{end} ...]\n"
        return self._head.decode("utf-8", "replace") + note + self._tail.decode("utf-8", "replace")


_CHUNK = 65_536
_LAST_CHUNKS = 16
_LAST_OUTPUT_SECONDS = 5.0


class Program(ABC):
    """Program that runs one command of a sandbox. `process` is what this process started; its stdout is a pipe.

    Its stderr goes there too, or is a pipe of its own.

    `broken` is set by whoever kills it, and says why; a command that just takes too long needs none.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.broken: Killed | SandboxError | None = None
        self._ending = asyncio.Lock()
        self._ended = False

    @property
    @abstractmethod
    def root(self) -> int | None:
        """Return the pid below which all that the command starts is found, once it is known."""

    @abstractmethod
    def kill(self) -> None:
        """Begin to end it, from any thread; may come late or twice."""

    async def end(self) -> None:
        """Kill what is left of it and of all that it started, and see it gone. May be called twice.

        Raises SandboxError where it cannot be killed.
        """
        async with self._ending:
            # Whoever waits for the command and whoever stops the sandbox may both come here.
            if not self._ended:
                self._ended = True
                await self._end()

    def exit_code(self) -> int:
        """Return the command's exit code, once it has ended: 128 + n for signal n.

        Raises SandboxError where it was never started.
        """
        code = self.process.returncode
        return code if code >= 0 else 128 - code

    @abstractmethod
    async def _end(self) -> None:
        """Do so; called once, by `end`."""


async def collect_output(program: Program, *, seconds: float, output_limit: int) -> ExecResult:
    """Return the output of a command and how it ended, after at most `seconds`; nothing of it is left then, also if
    cancelled.
    """
    began = time.perf_counter()
    capture = Capture(output_limit)
    killed: Killed | None = None
    try:
        await asyncio.get_running_loop().connect_read_pipe(lambda: capture, program.process.stdout)
        async with asyncio.timeout(seconds):
            await capture.enough.wait()
    except TimeoutError:
        killed = "time-out"
    finally:
        await _await_end(program, capture)
    if isinstance(program.broken, SandboxError):
        raise program.broken
    # A limit that was broken says more than the time-out or the flood of output that came of it.
    killed = program.broken or ("output" if capture.endless else killed)
    try:
        exit_code = None if killed else program.exit_code()
    except SandboxError as error:
        raise SandboxError(f"{error}: {capture.text().strip() or 'it says no more'}") from error
    return ExecResult(
        exit_code=exit_code,
        output=capture.text(),
        killed=killed,
        truncated=capture.left_out > 0,
        seconds=time.perf_counter() - began,
    )


async def _await_end(program: Program, capture: Capture) -> None:
    try:
        await program.end()
        if capture.pipe is not None:
            with suppress(TimeoutError):  # held by what nobody can find: the local sandbox isolates nothing
                async with asyncio.timeout(_LAST_OUTPUT_SECONDS):
                    await capture.closed.wait()
    finally:
        if capture.pipe is not None:
            capture.pipe.close()
        else:  # cancelled before anything was read
            assert program.process.stdout is not None
            program.process.stdout.close()


class PipedProcess:
    """A program that stays, as the protocol `Process` says. What it writes waits in the pipe until it is read."""

    def __init__(self, program: Program, stdin: int, ended: Callable[[Program], None]) -> None:
        """Take over `stdin`, the writing end of the pipe that the program reads; `ended` is told of its end."""
        assert program.process.stdout is not None
        self._program = program
        self._stdin = stdin
        self._stdout = program.process.stdout.fileno()
        self._ended = ended
        self._input_ended = self._stopped = False
        self._errors = None if program.process.stderr is None else _StderrTail(program.process.stderr)
        self._readable, self._writable = asyncio.Event(), asyncio.Event()
        os.set_blocking(self._stdin, False)
        os.set_blocking(self._stdout, False)

    async def write(self, data: bytes) -> None:
        """Write to its input."""
        left = memoryview(data)
        while left:
            if self._input_ended:
                raise BrokenPipeError("the program was stopped")
            try:
                # A pipe takes what it has room for: the rest waits until the program has read.
                left = left[os.write(self._stdin, left) :]
            except BlockingIOError:
                self._writable.clear()
                asyncio.get_running_loop().add_writer(self._stdin, self._wake_writer)
                await self._writable.wait()

    async def end_input(self) -> None:
        """End its input."""
        if not self._input_ended:
            self._input_ended = True
            self._wake_writer()
            os.close(self._stdin)

    async def read(self) -> bytes:
        """Return the output since the last call, at least one byte; nothing at its end."""
        while not self._stopped:
            try:
                return os.read(self._stdout, _CHUNK)
            except BlockingIOError:
                self._readable.clear()
                asyncio.get_running_loop().add_reader(self._stdout, self._wake_reader)
                await self._readable.wait()
        return b""

    def errors(self) -> str:
        """Return the end of its stderr so far, where that is kept apart."""
        return "" if self._errors is None else self._errors.text()

    async def stop(self) -> None:
        """End it with all that it started."""
        if self._stopped:
            return
        self._stopped = True
        try:
            await self._program.end()
        finally:
            self._wake_reader()
            await self.end_input()
            assert self._program.process.stdout is not None
            self._program.process.stdout.close()
            if self._errors is not None:
                self._errors.close()
            self._ended(self._program)

    def _wake_reader(self) -> None:
        asyncio.get_running_loop().remove_reader(self._stdout)
        self._readable.set()

    def _wake_writer(self) -> None:
        asyncio.get_running_loop().remove_writer(self._stdin)
        self._writable.set()


class _StderrTail:
    """A pipe for a program's stderr, emptied as it fills: the program never waits for a reader."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe, self._words = pipe, OutputTail()
        os.set_blocking(pipe.fileno(), False)
        asyncio.get_running_loop().add_reader(pipe.fileno(), self._hear)

    def text(self) -> str:
        """Return the end of all that was written so far."""
        # Bounded: a program that writes faster than this reads would hold it for ever.
        for _ in range(_LAST_CHUNKS):
            if self._pipe.closed or not self._hear():
                break
        return self._words.text()

    def close(self) -> None:
        """Take what is still in the pipe; nothing more is read."""
        self.text()
        asyncio.get_running_loop().remove_reader(self._pipe.fileno())
        self._pipe.close()

    def _hear(self) -> bool:
        """Read once, and return whether there was something."""
        try:
            data = os.read(self._pipe.fileno(), _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            asyncio.get_running_loop().remove_reader(self._pipe.fileno())
        self._words.add(data)
        return bool(data)


def open_input(content: bytes, owner: int | None) -> int:
    """Return a descriptor to read the content from, of a file that is `owner`'s own: it can open /dev/stdin too."""
    if not content:
        return os.open(os.devnull, os.O_RDONLY)
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(content)
        file.seek(0)
        give_ownership(file.fileno(), owner)
        return os.dup(file.fileno())
