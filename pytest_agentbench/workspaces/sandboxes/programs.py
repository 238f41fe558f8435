"""Programs that a sandbox started on this machine: output, input, and the end of all descendants."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.confined import give_ownership
from pytest_agentbench.workspaces.sandboxes.base import ExecResult, Killed

_ENDLESS_BYTES = 32 * 2**20
_LAST_BYTES = 16_384


class OutputTail:
    """The last 16 KiB of a program's stderr."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def add(self, data: bytes) -> None:
        """Append data."""
        self._kept += data
        del self._kept[:-_LAST_BYTES]

    def text(self) -> str:
        """Return the stored text."""
        return self._kept.decode("utf-8", "replace")


class Capture(asyncio.Protocol):
    """Beginning and end of a stream, `limit` bytes together. The bytes between are only counted.

    `closed` is set at the stream's end, `enough` at the end or when the stream counts as endless.
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
        """Return whether there was so much output that waiting for the end is pointless."""
        return self.left_out > _ENDLESS_BYTES

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the pipe, which `end_program` closes."""
        self.pipe = transport

    def data_received(self, data: bytes) -> None:
        """Store the first and the last bytes."""
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
        """Return the stored bytes as text, with a note in place of missing ones."""
        if not self.left_out:
            return (self._head + self._tail).decode("utf-8", "replace")
        end = " and then it was stopped" if self.endless else ""
        note = f"\n[... {self.left_out:,} bytes left out{end} ...]\n"
        return self._head.decode("utf-8", "replace") + note + self._tail.decode("utf-8", "replace")


_CHUNK = 65_536
_LAST_CHUNKS = 16
_LAST_OUTPUT_SECONDS = 5.0


class Program(ABC):
    """A program that runs one command of a sandbox. `process` is the started process; its stdout is a pipe.

    Its stderr goes into the same pipe, or into a separate one. Callers of `kill` set `broken` to the reason, except
    after a time limit. `kill` may be called in any thread; everything else belongs to the event loop.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.broken: Killed | SandboxError | None = None
        self._ending = asyncio.Lock()
        self._ended = False

    @property
    @abstractmethod
    def root(self) -> int | None:
        """Return the pid of the ancestor of all the command's processes, or None while it is unknown."""

    @abstractmethod
    def kill(self) -> None:
        """Start to kill it, in any thread. May be called late or twice."""

    async def end(self) -> None:
        """Kill the program and all its descendants, and wait until they have ended. May be called twice.

        Raises SandboxError if they cannot be killed.
        """
        async with self._ending:
            # `collect_output` and `stop` of the sandbox may call this at the same time.
            if not self._ended:
                self._ended = True
                await self._end()

    def exit_code(self) -> int:
        """Return the exit code of the ended command: 128 + n for signal n.

        Raises SandboxError if it was never started.
        """
        code = self.process.returncode
        if code >= 0:
            return code
        return 128 - code

    @abstractmethod
    async def _end(self) -> None:
        """Kill it and all descendants. Called once, by `end`."""


async def collect_output(program: Program, *, seconds: float, output_limit: int) -> ExecResult:
    """Return the output and the end of a command, after at most `seconds`.

    On return or cancellation all its processes have ended.
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
        await end_program(program, capture)
    return make_result(program, capture, killed, began)


def make_result(program: Program, capture: Capture, killed: Killed | None, began: float) -> ExecResult:
    """Return the end of a program that has ended. `killed` is the caller's reason to kill it.

    Raises SandboxError if the sandbox itself failed.
    """
    if isinstance(program.broken, SandboxError):
        raise program.broken
    # A broken limit has precedence: it may be the cause of the time-out or the flood of output.
    killed = program.broken or ("output" if capture.endless else killed)
    try:
        exit_code = None if killed else program.exit_code()
    except SandboxError as error:
        raise SandboxError(f"{error}: {capture.text().strip() or 'it wrote no output'}") from error
    return ExecResult(
        exit_code=exit_code,
        output=capture.text(),
        killed=killed,
        truncated=capture.left_out > 0,
        seconds=time.perf_counter() - began,
    )


async def end_program(program: Program, capture: Capture) -> None:
    """Kill a program with all its descendants, read the rest of its output, and close that pipe."""
    try:
        await program.end()
        if capture.pipe is not None:
            with suppress(TimeoutError):  # without isolation a process that nobody can find may hold the pipe open
                async with asyncio.timeout(_LAST_OUTPUT_SECONDS):
                    await capture.closed.wait()
    finally:
        if capture.pipe is not None:
            capture.pipe.close()
        else:  # cancelled before anything was read
            assert program.process.stdout is not None
            program.process.stdout.close()


class PipedProcess:
    """A running program, an implementation of `Process`. Its output stays in the pipe until it is read."""

    def __init__(self, program: Program, stdin: int, ended: Callable[[Program], None]) -> None:
        """Take over `stdin`, the writing end of the program's input. `ended` is called when the program has ended."""
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
        rest = memoryview(data)
        while rest:
            if self._input_ended:
                raise BrokenPipeError("the program was stopped")
            try:
                # A pipe accepts only as much as it has room for. The rest waits until the program has read.
                rest = rest[os.write(self._stdin, rest) :]
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
        """Wait for output and return it: at least one byte, or b"" at the end."""
        while not self._stopped:
            try:
                return os.read(self._stdout, _CHUNK)
            except BlockingIOError:
                self._readable.clear()
                asyncio.get_running_loop().add_reader(self._stdout, self._wake_reader)
                await self._readable.wait()
        return b""

    def errors(self) -> str:
        """Return the end of its stderr if that is separate."""
        if self._errors is None:
            return ""
        return self._errors.text()

    async def stop(self) -> None:
        """Kill it with all its descendants."""
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
    """A pipe for a program's stderr. It is read at once, so that the program never waits for a reader."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe, self._words = pipe, OutputTail()
        os.set_blocking(pipe.fileno(), False)
        asyncio.get_running_loop().add_reader(pipe.fileno(), self._hear)

    def text(self) -> str:
        """Return the end of all that was written so far."""
        # Bounded, because a program may write faster than this loop reads
        for _ in range(_LAST_CHUNKS):
            if self._pipe.closed or not self._hear():
                break
        return self._words.text()

    def close(self) -> None:
        """Read the rest of the pipe and close it."""
        self.text()
        asyncio.get_running_loop().remove_reader(self._pipe.fileno())
        self._pipe.close()

    def _hear(self) -> bool:
        """Read once, and return whether there was data."""
        try:
            data = os.read(self._pipe.fileno(), _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            asyncio.get_running_loop().remove_reader(self._pipe.fileno())
        self._words.add(data)
        return bool(data)


def start_with_own_output(
    argv: Sequence[str],
    *,
    owner: int | None,
    env: Mapping[str, str],
    stdin: int,
    stderr: int,
    pass_fds: Sequence[int],
) -> subprocess.Popen[bytes]:
    """Start a program in a new session, with pipes for its output that belong to `owner`. Raises OSError.

    They belong to it before the program runs, which may open /dev/stderr at once. `stderr` is subprocess.STDOUT, or
    subprocess.PIPE for a separate pipe.
    """
    pipes = [os.pipe() for _ in range(2 if stderr == subprocess.PIPE else 1)]
    try:
        for _, writes in pipes:
            give_ownership(writes, owner)
        process = subprocess.Popen(
            argv,
            env=env,
            stdin=stdin,
            stdout=pipes[0][1],
            stderr=pipes[-1][1],
            pass_fds=pass_fds,
            start_new_session=True,
        )
    except BaseException:
        for reads, _ in pipes:
            os.close(reads)
        raise
    finally:
        for _, writes in pipes:
            os.close(writes)
    process.stdout, *errors = (os.fdopen(reads, "rb", 0) for reads, _ in pipes)
    process.stderr = errors[0] if errors else None
    return process


def open_input(content: bytes, owner: int | None) -> int:
    """Return a descriptor of a file with the content. The file belongs to `owner`, who can open it as /dev/stdin."""
    if not content:
        return os.open(os.devnull, os.O_RDONLY)
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(content)
        file.seek(0)
        give_ownership(file.fileno(), owner)
        return os.dup(file.fileno())
