"""A run's container as its sandbox: the commands in it, and what ends them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.records.base import SandboxKind
from pytest_agentbench.workspaces.containers.commands import (
    END,
    RUN_ALONE,
    RUN_BESIDE,
    STAY,
    STAY_APART,
    STDOUT,
    ExecStream,
)
from pytest_agentbench.workspaces.containers.container import Container, cannot_run
from pytest_agentbench.workspaces.sandboxes.base import (
    NO_VARIABLES,
    ExecResult,
    Killed,
    Process,
    ResourceLimits,
    SharedFolder,
    Stderr,
)
from pytest_agentbench.workspaces.sandboxes.programs import Capture, OutputTail
from pytest_agentbench.workspaces.sandboxes.watchdog import Broken, Watch, Watchdog, exceeds_disk
from pytest_agentbench.workspaces.workspace import Workspace

_SWEEP_SECONDS = 10.0
_REPORT_BYTES = 4096
_OVER = "the program has ended"
_KILLED_CODE = 128 + 9
"""Of a command whose script was killed, which it can do itself: nobody knows its own."""


@dataclass(slots=True)
class _Command:
    """A command under way. `report` is what its script says of its end, `killed` why it was ended before."""

    capture: Capture
    report: bytearray = field(default_factory=bytearray)
    killed: Killed | None = None


class ContainerSandbox(SharedFolder):
    """One container, used by one run. One command at a time; programs that stay may run beside it.

    A time limit or a broken limit kills the whole container; the next command starts it again.
    """

    kind: SandboxKind = "docker"

    def __init__(self, container: Container, workspace: Workspace, limits: ResourceLimits, watchdog: Watchdog) -> None:
        self.workspace = workspace
        self._container, self._limits, self._watchdog = container, limits, watchdog
        self._watch = Watch(workspace.path, limits, container.processes, self._break)
        self._broken: Broken | SandboxError | None = None
        self._programs: set[ContainerProcess] = set()
        self._ooms = (0, 0)
        self._lock = asyncio.Lock()

    async def exec(
        self,
        argv: Sequence[str],
        *,
        seconds: float,
        stdin: bytes = b"",
        output_limit: int = 64_000,
        environment: Mapping[str, str] = NO_VARIABLES,
    ) -> ExecResult:
        """Run a command in the container, alone but for programs that stay."""
        async with self._lock:
            for _ in range(2):  # where programs that stay took all processes there may be, a new start makes room
                command = _Command(Capture(output_limit))
                begun = time.perf_counter()
                code = await self._run(command, argv, seconds, stdin, environment)
                text, truncated = command.capture.text(), command.capture.left_out > 0
                if command.killed is not None or code is not None:
                    return ExecResult(code, text, command.killed, truncated, time.perf_counter() - begun)
                await self._kill()
        raise cannot_run(text)

    async def open(
        self, argv: Sequence[str], *, environment: Mapping[str, str] = NO_VARIABLES, stderr: Stderr = "merged"
    ) -> Process:
        """Start a program that stays, in a session of its own."""
        script = STAY if stderr == "merged" else STAY_APART
        async with self._lock:
            for _ in range(2):
                stream = await self._container.run(script, argv, environment, with_stdin=True)
                early, first = await _read_session(stream)
                if first:
                    session, _, errors = first.partition(b"\n")
                    process = ContainerProcess(stream, int(session), early, errors, self._end)
                    self._programs.add(process)
                    self._watch_limits()
                    return process
                await stream.close()
                await self._kill()
        raise cannot_run(early.decode("utf-8", "replace"))

    async def stop(self) -> None:
        """Remove the container with all that runs in it."""
        self._watchdog.end(self._watch)
        for process in tuple(self._programs):
            await process.close()
        await asyncio.wrap_future(self._container.remove())

    async def _run(
        self, command: _Command, argv: Sequence[str], seconds: float, stdin: bytes, environment: Mapping[str, str]
    ) -> int | None:
        """Return the exit code; None for what was killed, and for what the container could not start."""
        script = RUN_BESIDE if self._programs else RUN_ALONE
        stream = await self._container.run(script, argv, environment, with_stdin=bool(stdin))
        self._broken = None
        self._watch_limits()
        try:
            await _collect(command, stream, seconds, stdin)
        finally:
            await stream.close()
            if command.killed is not None:
                await self._kill()
            if not self._programs:
                self._watchdog.end(self._watch)
        if command.killed is not None:
            return None
        code = await self._read_end(command)
        if command.killed is not None:
            await self._kill()
            return None
        return code

    async def _read_end(self, command: _Command) -> int | None:
        """Return the exit code of what nothing here ended, None where it never began. Sets `killed` for a limit."""
        if isinstance(self._broken, SandboxError):
            raise self._broken
        if self._broken is not None:
            command.killed = self._broken
            return None
        if not command.report:
            return None
        code, ooms = _parse_report(command.report) or (_KILLED_CODE, await self._sweep("all"))
        # The kernel counts on from command to command, and from nothing again where the container was started anew.
        if (self._container.starts, ooms) > self._ooms:
            self._ooms = (self._container.starts, ooms)
            command.killed = "memory" if ooms else None
        if command.killed is None and await asyncio.to_thread(exceeds_disk, self.workspace.path, self._limits):
            command.killed = "disk"
        return code

    async def _sweep(self, what: str) -> int:
        """Kill all processes or a session's, else the whole container, and return how often memory ran out.

        Raises SandboxError where there is no container any more, or none that can be started.
        """
        for _ in range(2):  # a new start tells whether the container is still there
            report = bytearray()
            with suppress(TimeoutError):
                async with asyncio.timeout(_SWEEP_SECONDS):
                    stream = await self._container.run(END, [what], NO_VARIABLES)
                    try:
                        await _follow(stream, Capture(0), report)
                    finally:
                        await stream.close()
            if (ended := _parse_report(report)) is not None:
                return ended[1]
            await self._kill()
        return 0

    async def _end(self, process: ContainerProcess) -> None:
        """Kill a program that stays, with all that it started."""
        if process not in self._programs:
            return
        self._programs.discard(process)
        with suppress(SandboxError):  # what is gone has ended
            if self._programs or self._lock.locked():
                await self._sweep(str(process.session))
                return
            self._watchdog.end(self._watch)
            async with self._lock:
                await self._sweep("all")

    async def _kill(self) -> None:
        for process in self._programs:
            process.has_ended = True
        self._programs.clear()
        self._watchdog.end(self._watch)
        await self._container.kill()

    def _watch_limits(self) -> None:
        self._watchdog.begin(self._watch)

    def _break(self, broken: Broken | SandboxError) -> None:
        self._broken = self._broken or broken
        self._container.kill_soon()


class ContainerProcess:
    """A program that stays in a container. `session` is its session there, `has_ended` that it is over.

    `early` is what came of its stdout before the number of that session, `errors` what came of its stderr with it.
    """

    def __init__(
        self,
        stream: ExecStream,
        session: int,
        early: bytes,
        errors: bytes,
        end: Callable[[ContainerProcess], Awaitable[None]],
    ) -> None:
        self.session, self.has_ended = session, False
        self._stream, self._early, self._end = stream, early, end
        self._errors = OutputTail()
        self._errors.add(errors)

    async def write(self, data: bytes) -> None:
        """Send to its stdin. Raises BrokenPipeError where it has ended."""
        if self.has_ended:  # the daemon would take it, and wait for somebody to read it
            raise BrokenPipeError(_OVER)
        try:
            await self._stream.write(data)
        except OSError as error:
            raise BrokenPipeError(_OVER) from error

    async def end_input(self) -> None:
        """Close its stdin."""
        await self._stream.finish(b"")

    async def read(self) -> bytes:
        """Return its output since the last call. What comes on its stderr meanwhile is kept."""
        if self._early:
            piece, self._early = self._early, b""
            return piece
        source, piece = await self._stream.read()
        while source != STDOUT:
            self._errors.add(piece)
            source, piece = await self._stream.read()
        self.has_ended = self.has_ended or not piece
        return piece

    def errors(self) -> str:
        """Return the end of its stderr so far."""
        return self._errors.text()

    async def stop(self) -> None:
        """Kill it with all that it started."""
        await self._end(self)
        await self.close()

    async def close(self) -> None:
        """End the connection to it."""
        await self._stream.close()


async def _read_session(stream: ExecStream) -> tuple[bytes, bytes]:
    """Return what came on stdout until the script reported its session on stderr, and that report if it came.

    They are two pipes: what was written first may come last.
    """
    early = b""
    while True:
        source, piece = await stream.read()
        if source != STDOUT or not piece:
            return early, piece
        early += piece


async def _collect(command: _Command, stream: ExecStream, seconds: float, stdin: bytes) -> None:
    """Feed and read a command to its end, or to its limit of time or output. Cancelled, it counts as killed."""
    sending = asyncio.ensure_future(stream.finish(stdin)) if stdin else None
    command.killed = "time-out"
    try:
        async with asyncio.timeout(seconds):
            await _follow(stream, command.capture, command.report)
        command.killed = "output" if command.capture.endless else None
    except TimeoutError:
        return
    finally:
        if sending is not None:
            sending.cancel()


async def _follow(stream: ExecStream, capture: Capture, report: bytearray) -> None:
    """Read to the end, or until so much came that the command counts as endless."""
    async for source, piece in stream.pieces():
        if source != STDOUT:  # the script's report, and whatever a program found a way to write there
            report += piece[: _REPORT_BYTES - len(report)]
            continue
        capture.data_received(piece)
        if capture.endless:
            return


def _parse_report(report: bytearray) -> tuple[int, int] | None:
    """Return the exit code and how often memory ran out, as the scripts report them in their last line."""
    for line in reversed(report.decode("ascii", "replace").splitlines()):  # a program between may add words of its own
        code, _, ooms = line.partition(" ")
        if code.isdigit() and ooms.isdigit():
            return int(code), int(ooms)
    return None
