"""Commands on this machine whose background processes continue: a command's end, and what it leaves until the end.

The program of such a command reports the command's exit code on its stderr, and continues. The command does not have
that stderr: its own goes to stdout.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
import termios
import time
from dataclasses import dataclass

from pytest_agentbench.workspaces.sandboxes.base import ExecResult, Killed
from pytest_agentbench.workspaces.sandboxes.programs import Capture, Program, end_program, make_result

_REPORT_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Service:
    """A program that continues after the end of its command. Its output is read, so that it waits for no reader."""

    program: Program
    output: _Output
    report: _Report

    def close(self) -> None:
        """Close its pipes. Call it when the program has ended."""
        for pipe in (self.output.pipe, self.report.pipe):
            if pipe is not None:
                pipe.close()

    async def end(self) -> None:
        """Kill the program with all its descendants, and close its pipes."""
        try:
            await end_program(self.program, self.output)
        finally:
            self.close()

    async def wait(self, seconds: float) -> Killed | None:
        """Wait for the end of the command. Return the reason if it has to be killed instead."""
        connect = asyncio.get_running_loop().connect_read_pipe
        try:
            await connect(lambda: self.output, self.program.process.stdout)
            await connect(lambda: self.report, self.program.process.stderr)
            async with asyncio.timeout(seconds):
                await self.output.enough.wait()
        except TimeoutError:
            return "time-out"
        return "output" if self.output.endless else None


class _Output(Capture):
    """Output of a command and of the processes that it leaves. Its end is not the command's."""

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()

    def read_rest(self) -> None:
        """Read the output that the pipe holds now, which includes all output of an ended command."""
        if self.pipe is None or self.pipe.is_closing():
            return
        descriptor = self.pipe.get_extra_info("pipe").fileno()
        size = int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), sys.byteorder)
        while size > 0 and (data := os.read(descriptor, size)):
            self.data_received(data)
            size -= len(data)


class _Report(asyncio.Protocol):
    """The exit code of a command, in the first line of a pipe. `ended` is set when it has come, or never can."""

    def __init__(self, ended: asyncio.Event) -> None:
        self.pipe: asyncio.BaseTransport | None = None
        self.text = b""
        self._ended = ended

    def exit_code(self) -> int | None:
        """Return the exit code, or None if the program ended before the command did."""
        line, newline, _ = self.text.partition(b"\n")
        return int(line) if newline and line.isdigit() else None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.pipe = transport

    def data_received(self, data: bytes) -> None:
        self.text += data[: _REPORT_BYTES - len(self.text)]
        if b"\n" in data:
            self._ended.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended.set()


async def collect_and_leave(
    program: Program, *, seconds: float, output_limit: int
) -> tuple[ExecResult, Service | None]:
    """Return the output and the end of a command, and the program that continues, or None if nothing does.

    After a broken limit and on cancellation all processes of the program have ended. Raises SandboxError.
    """
    began = time.perf_counter()
    output = _Output(output_limit)
    service = Service(program, output, _Report(output.enough))
    continues = False
    try:
        killed = await service.wait(seconds)
        code = service.report.exit_code()
        if killed is None and program.broken is None and code is not None:
            output.read_rest()
            truncated = output.left_out > 0
            result = ExecResult(code, output.text(), None, truncated, time.perf_counter() - began)
            continues = True
            return result, service
    finally:
        if not continues:
            await service.end()
    if code is None:
        output.data_received(service.report.text)  # an error of the program itself
    return make_result(program, output, killed, began), None
