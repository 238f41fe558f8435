"""A run's container as its sandbox: commands in it, and their ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import uuid4

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.records.base import SandboxKind
from pytest_agentbench.workspaces.containers.commands import (
    END,
    LEAVE,
    READ_ON,
    RUN_ALONE,
    RUN_BESIDE,
    STAY,
    STAY_APART,
    STDOUT,
    ExecStream,
    MarkedCapture,
)
from pytest_agentbench.workspaces.containers.container import Container, cannot_run, check_user
from pytest_agentbench.workspaces.sandboxes.base import (
    NO_VARIABLES,
    ExecResult,
    Killed,
    Process,
    ResourceLimits,
    Stderr,
    command_in_folder,
    refuse_words,
)
from pytest_agentbench.workspaces.sandboxes.programs import Capture, OutputTail
from pytest_agentbench.workspaces.sandboxes.shared import SharedFolder
from pytest_agentbench.workspaces.sandboxes.watchdog import Broken, Watch, Watchdog, exceeds_disk
from pytest_agentbench.workspaces.workspace import WORKSPACE, Workspace

_SWEEP_SECONDS = 10.0
_REPORT_BYTES = 4096
_FOR_ALL_USERS = 0o755
"""Mode of a workspace in which a command runs as another user. Others on this machine do not see it: the folder above
belongs to this process's user alone.
"""

_OVER = "the program has ended"
_KILLED_CODE = 128 + 9
"""Exit code of a command that killed its own script, so that its real exit code is unknown."""


@dataclass(slots=True)
class _Command:
    """A command, and what is known of its end: the report of its script, or the reason if it was killed before.

    `mark`: if it is to leave processes running, the text that its script writes to stdout after its output.
    """

    argv: Sequence[str]
    environment: Mapping[str, str]
    user: str | None
    mark: str | None
    capture: Capture
    report: bytearray = field(default_factory=bytearray)
    killed: Killed | None = None

    @property
    def has_left(self) -> bool:
        """Return whether the command has ended, and its script continues."""
        is_complete = isinstance(self.capture, MarkedCapture) and self.capture.is_complete
        return is_complete and _parse_report(self.report) is not None


class ContainerSandbox(SharedFolder):
    """One container, used by one run. It runs one command at a time, and any number of programs next to it.

    A time limit, a broken limit or a cancelled command kills the whole container. The next command restarts it.

    The event loop owns the state. `_programs` were started by `spawn`. `_services` read the output of processes that
    commands left running. Only `_break` is called in the watchdog's thread. `_lock` serialises commands, because the
    end of a command may kill all processes of the container.
    """

    kind: SandboxKind = "docker"

    def __init__(self, container: Container, workspace: Workspace, limits: ResourceLimits, watchdog: Watchdog) -> None:
        self.workspace = workspace
        self._container, self._limits, self._watchdog = container, limits, watchdog
        # The daemon limits its processes. Those of the snapshot may have ended before `processes` reads what is left
        self._watch = Watch(workspace.path, limits, container.processes, self._break, counts_processes=False)
        self._broken: Broken | SandboxError | None = None
        self._programs: set[ContainerProcess] = set()
        self._services: set[asyncio.Task[None]] = set()
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
        user: str | None = None,
        cwd: str | None = None,
        leave_running: bool = False,
    ) -> ExecResult:
        """Run a command in the container, with no other command at the same time."""
        if (refused := refuse_words(argv, environment, cwd)) is not None:
            return refused
        argv = command_in_folder(argv, cwd, WORKSPACE)
        mark = uuid4().hex if leave_running else None
        if user is not None:
            self.workspace.path.chmod(_FOR_ALL_USERS)
        async with self._lock:
            for _ in range(2):  # other programs may have used up the limit of processes: a restart makes room
                capture = Capture(output_limit) if mark is None else MarkedCapture(output_limit, mark.encode())
                command = _Command(argv, environment, user, mark, capture)
                began = time.perf_counter()
                code = await self._run(command, seconds, stdin)
                text, truncated = command.capture.text(), command.capture.left_out > 0
                if command.killed is not None or code is not None:
                    return ExecResult(code, text, command.killed, truncated, time.perf_counter() - began)
                check_user(user, text)  # some daemons write the reason to the output of the command
                await self._kill()
        raise cannot_run(text)

    async def spawn(
        self, argv: Sequence[str], *, environment: Mapping[str, str] = NO_VARIABLES, stderr: Stderr = "merged"
    ) -> Process:
        """Start a program in a new session of the container."""
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
        """Remove the container with all its processes."""
        self._watchdog.end(self._watch)
        for process in tuple(self._programs):
            await process.close()
        await self._end_services()
        await asyncio.wrap_future(self._container.remove())

    async def _run(self, command: _Command, seconds: float, stdin: bytes) -> int | None:
        """Return the exit code, or None if the command was killed or could not be started."""
        script, argv = RUN_ALONE, command.argv
        if command.mark is not None:
            script, argv = LEAVE, [command.mark, *command.argv]
        else:
            if self._has_company(command.user):
                script = RUN_BESIDE
            if stdin:
                script += READ_ON
        stream = await self._container.run(script, argv, command.environment, with_stdin=bool(stdin), user=command.user)
        self._broken = None
        self._watch_limits()
        try:
            await _collect(command, stream, seconds, stdin)
        finally:
            if command.has_left and command.killed is None:
                self._keep_service(stream)
            else:
                await stream.close()
            if command.killed is not None:
                await self._kill()
            self._unwatch_limits()
        if command.killed is not None:
            return None
        code = await self._read_end(command)
        if command.killed is not None:
            await self._kill()
            return None
        return code

    async def _read_end(self, command: _Command) -> int | None:
        """Return the exit code of a command that was not killed here, or None if it never began. Sets `killed` for a
        limit.
        """
        if isinstance(self._broken, SandboxError):
            raise self._broken
        if self._broken is not None:
            command.killed = self._broken
            return None
        if not command.report:
            return None
        code, ooms = _parse_report(command.report) or (_KILLED_CODE, await self._sweep_remains(command))
        # The kernel's counter continues from command to command, and restarts at 0 with the container
        if (self._container.starts, ooms) > self._ooms:
            self._ooms = (self._container.starts, ooms)
            command.killed = "memory" if ooms else None
        if command.killed is None and await asyncio.to_thread(exceeds_disk, self.workspace.path, self._limits):
            command.killed = "disk"
        return code

    async def _sweep_remains(self, command: _Command) -> int:
        """Kill the processes of a command that killed its own script, which reported its session before."""
        if self._has_company(command.user):
            session = command.report.partition(b"\n")[0].decode("ascii", "replace")
            return await self._sweep(session, command.user)
        return await self._sweep("all")

    async def _sweep(self, session: str, user: str | None = None) -> int:
        """Kill all processes (`all`) or a session's processes, else the container. Return how often memory ran out.

        Raises SandboxError if the container is gone or cannot be started.
        """
        for _ in range(2):  # the second start reports whether the container still exists
            end = _Command([session], NO_VARIABLES, user, None, Capture(0))
            with suppress(TimeoutError):
                async with asyncio.timeout(_SWEEP_SECONDS):
                    stream = await self._container.run(END, end.argv, end.environment, user=user)
                    try:
                        await _follow(end, stream)
                    finally:
                        await stream.close()
            if (result := _parse_report(end.report)) is not None:
                return result[1]
            await self._kill()
        return 0

    async def _end(self, process: ContainerProcess) -> None:
        """Kill a program with its descendants."""
        if process not in self._programs:
            return
        self._programs.discard(process)
        with suppress(SandboxError):  # the container is gone, and the program with it
            if self._programs or self._services or self._lock.locked():
                await self._sweep(str(process.session))
                return
            self._unwatch_limits()
            async with self._lock:
                await self._sweep("all")

    async def _kill(self) -> None:
        for process in self._programs:
            process.has_ended = True
        self._programs.clear()
        await self._end_services()
        self._unwatch_limits()
        await self._container.kill()

    def _has_company(self, user: str | None) -> bool:
        """Return whether a command's end may not kill all processes of its user."""
        return user is not None or bool(self._programs or self._services)

    def _keep_service(self, stream: ExecStream) -> None:
        """Read the output of processes that a command left running, until their container ends."""
        service = asyncio.ensure_future(_discard(stream))
        self._services.add(service)
        service.add_done_callback(self._services.discard)

    async def _end_services(self) -> None:
        services = tuple(self._services)
        for service in services:
            service.cancel()
        await asyncio.gather(*services, return_exceptions=True)

    def _watch_limits(self) -> None:
        self._watchdog.begin(self._watch)

    def _unwatch_limits(self) -> None:
        """Stop to watch the limits, if nothing runs between commands."""
        if not (self._programs or self._services):
            self._watchdog.end(self._watch)

    def _break(self, broken: Broken | SandboxError) -> None:
        self._broken = self._broken or broken
        self._container.kill_soon()


class ContainerProcess:
    """A program in a container. `session` is its session there. `has_ended` is true once it is over.

    `early` is output on stdout before the number of the session, `errors` output on stderr that came with that number.
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
        """Write to its stdin. Raises BrokenPipeError if it has ended."""
        if self.has_ended:  # the daemon would accept the data and block
            raise BrokenPipeError(_OVER)
        try:
            await self._stream.write(data)
        except OSError as error:
            raise BrokenPipeError(_OVER) from error

    async def end_input(self) -> None:
        """Close its stdin."""
        await self._stream.finish(b"")

    async def read(self) -> bytes:
        """Wait for output on stdout and return it. Output on stderr in the meantime is stored."""
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
        """Kill it with its descendants."""
        await self._end(self)
        await self.close()

    async def close(self) -> None:
        """Close the connection to it."""
        await self._stream.close()


async def _read_session(stream: ExecStream) -> tuple[bytes, bytes]:
    """Return stdout until the script reported its session on stderr, and that report if it came.

    The two are separate pipes, so their order is not preserved.
    """
    early = b""
    while True:
        source, piece = await stream.read()
        if source != STDOUT or not piece:
            return early, piece
        early += piece


async def _collect(command: _Command, stream: ExecStream, seconds: float, stdin: bytes) -> None:
    """Write stdin and read output until the command's end, or a limit of time or output. Cancelled counts as killed."""
    sending = asyncio.ensure_future(stream.finish(stdin)) if stdin else None
    command.killed = "time-out"
    try:
        async with asyncio.timeout(seconds):
            await _follow(command, stream)
        command.killed = "output" if command.capture.endless else None
    except TimeoutError:
        return
    finally:
        if sending is not None:
            sending.cancel()


async def _follow(command: _Command, stream: ExecStream) -> None:
    """Read to the end of the stream or of the command, or until the output counts as endless."""
    async for source, piece in stream.pieces():
        if source == STDOUT:
            command.capture.data_received(piece)
        else:  # the script's report; a program may have found a way to write there, too
            command.report += piece[: _REPORT_BYTES - len(command.report)]
        if command.capture.endless or command.has_left:
            return


async def _discard(stream: ExecStream) -> None:
    """Read a stream to its end."""
    try:
        async for _ in stream.pieces():
            pass
    finally:
        await stream.close()


def _parse_report(report: bytearray) -> tuple[int, int] | None:
    """Return the exit code and how often memory ran out, as the scripts report them in their last line."""
    for line in reversed(report.decode("ascii", "replace").splitlines()):  # a program may have added lines
        code, _, ooms = line.partition(" ")
        if code.isdigit() and ooms.isdigit():
            return int(code), int(ooms)
    return None
