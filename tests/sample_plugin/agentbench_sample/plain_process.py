"""Programs of the sample's sandboxes that stay, and how `plain` finds everything that a command has started."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import IO

MARK = "AGENTBENCH_PLAIN"
"""A variable that everything which a command starts inherits: a process group would lose daemons."""


class PlainProcess:
    """A program that stays, with pipes. `end` kills it with all that it started."""

    def __init__(
        self, process: asyncio.subprocess.Process, end: Callable[[], Awaitable[None]], errors: IO[bytes] | None
    ) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._input, self._output = process, process.stdin, process.stdout
        self._end, self._errors, self._last_errors = end, errors, ""

    async def write(self, data: bytes) -> None:
        """Send to its stdin. Raises BrokenPipeError where it no longer reads."""
        try:
            self._input.write(data)
            await self._input.drain()
        except ConnectionResetError as error:  # asyncio's word for the same, once it has seen the end
            raise BrokenPipeError(error) from error

    async def end_input(self) -> None:
        """Close its stdin."""
        self._input.close()

    async def read(self) -> bytes:
        """Return what it wrote since, nothing at its end."""
        return await self._output.read(65_536)

    def errors(self) -> str:
        """Return the end of its stderr, where that is kept apart."""
        if self._errors is not None and not self._errors.closed:
            file = self._errors.fileno()  # the program goes on writing at the end
            last = os.pread(file, 16_384, max(0, os.fstat(file).st_size - 16_384))
            self._last_errors = last.decode("utf-8", "replace")
        return self._last_errors

    async def stop(self) -> None:
        """Kill it with all that it started."""
        await self._end()
        await self._process.wait()
        if self._errors is not None:
            self.errors()
            self._errors.close()


def kill_marked(mark: str) -> None:
    """Kill all processes whose mark begins so, until two looks find none.

    One look misses a process that forks, or begins another program: it has no environment at that moment.
    """
    wanted, empty_looks = f"{MARK}={mark}".encode(), 0
    while empty_looks < 2:
        found = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if wanted in _environment(pid)]
        empty_looks = 0 if found else empty_looks + 1
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()  # empty of what was killed
    except OSError:
        return b""


def read_ends(file: IO[bytes], most: int) -> tuple[str, bool]:
    """Return a file's text, and whether so much of its middle is left out that `most` bytes remain."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size <= most:
        return file.read().decode("utf-8", "replace"), False
    begin = file.read(most // 2)
    file.seek(size - most // 2)
    note = f"\n[... {size - 2 * (most // 2)} bytes left out ...]\n"
    return begin.decode("utf-8", "replace") + note + file.read().decode("utf-8", "replace"), True
