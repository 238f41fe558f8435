"""Run programs of the evaluation, such as hooks, in isolation: once for one result, or until stopped."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pytest_agentbench.workspaces.sandboxes import bubblewrap
from pytest_agentbench.workspaces.sandboxes import host as local
from pytest_agentbench.workspaces.sandboxes.base import ExecResult, Process, ResourceLimits
from pytest_agentbench.workspaces.sandboxes.bwrap import SandboxView, python_mounts, python_path, read_only_arguments
from pytest_agentbench.workspaces.sandboxes.host import Command, HostSandbox
from pytest_agentbench.workspaces.sandboxes.programs import Program
from pytest_agentbench.workspaces.sandboxes.watchdog import Watchdog
from pytest_agentbench.workspaces.sessions import Workspaces
from pytest_agentbench.workspaces.workspace import Workspace

MAX_RESULT_BYTES = 2**20
"""Maximum bytes of a result."""

_FIRST_DESCRIPTOR = 10  # shell redirections use lower numbers
_LAST_RESULT_SECONDS = 5.0
_FOLDER = "/tmp"  # noqa: S108 - the sandbox's own
_watchdog, _slow_watchdog = Watchdog(), Watchdog(look_seconds=1.0)


@dataclass(frozen=True, slots=True)
class Isolation:
    """Isolation of a program in an empty folder.

    The program can write only that folder. Of this machine it sees the system's folders, the running Python, and
    `readable`, files and folders at their own paths. If this process is root, the program runs as an unused user id,
    and may still read all visible files. If not `is_contained`, it has limits only and this user's rights.
    """

    is_contained: bool = True
    readable: tuple[Path, ...] = ()
    network: bool = False
    limits: ResourceLimits = field(default_factory=ResourceLimits)


def isolation_problem() -> str | None:
    """Return why programs can only be run without isolation here and the remedy, or None."""
    return bubblewrap.bubblewrap_problem()


@dataclass(frozen=True, slots=True)
class IsolatedResult:
    """The end of a program and its result, None for a result longer than MAX_RESULT_BYTES."""

    ended: ExecResult
    result: bytes | None


async def run_isolated(
    argv: Sequence[str], isolation: Isolation, *, seconds: float, stdin: bytes = b"", output_limit: int = 64_000
) -> IsolatedResult:
    """Run a program to its end. It gets one more argument: the number of the descriptor for its result.

    Raises SandboxError if it cannot be started.
    """
    workspaces = Workspaces()  # separate ones: if this process is killed, the next session removes them
    try:
        return await _run(argv, isolation, workspaces.create("isolated"), seconds, stdin, output_limit)
    finally:
        await asyncio.to_thread(workspaces.close)


@asynccontextmanager
async def open_isolated(
    argv: Sequence[str], isolation: Isolation, environment: Mapping[str, str]
) -> AsyncIterator[Process]:
    """Run a program until the block's end, with separate stderr. Raises SandboxError if it cannot be started.

    The watchdog checks it once a second only.
    """
    workspaces = Workspaces()
    try:
        box = _IsolatedProgram(isolation, workspaces.create("isolated"), watchdog=_slow_watchdog)
        process = await box.spawn(argv, environment=environment, stderr="apart")
        try:
            yield process
        finally:
            await process.stop()
    finally:
        await asyncio.to_thread(workspaces.close)


async def _run(
    argv: Sequence[str], isolation: Isolation, workspace: Workspace, seconds: float, stdin: bytes, output_limit: int
) -> IsolatedResult:
    reads, writes = _make_result_pipe()
    result, box = _ResultPipe(), _IsolatedProgram(isolation, workspace, writes)
    try:
        await asyncio.get_running_loop().connect_read_pipe(lambda: result, os.fdopen(reads, "rb", 0))
        ended = await box.exec([*argv, str(writes)], seconds=seconds, stdin=stdin, output_limit=output_limit)
        with suppress(TimeoutError):  # a process that the local sandbox cannot find may hold the pipe open
            async with asyncio.timeout(_LAST_RESULT_SECONDS):
                await result.ended.wait()
    finally:
        box.close_result()
        result.close()
    return IsolatedResult(ended, result.content())


class _IsolatedProgram(HostSandbox):
    """Sandbox of one program, with the writing end of the pipe for its result, if any."""

    def __init__(
        self, isolation: Isolation, workspace: Workspace, result: int | None = None, watchdog: Watchdog = _watchdog
    ) -> None:
        super().__init__(workspace, isolation.limits, watchdog)
        self.kind = "bubblewrap" if isolation.is_contained else "local"
        self._isolation = isolation
        self._result = [] if result is None else [result]

    def close_result(self) -> None:
        """Close the writing end here, so that the pipe ends when the program has."""
        while self._result:
            os.close(self._result.pop())

    @property
    def folder(self) -> str:
        """Return the path of its folder."""
        return _FOLDER if self._isolation.is_contained else str(self.workspace.path)

    def _start(self, command: Command, stdin: int, stderr: int) -> Program:
        argv, environment = command.argv, command.environment
        folder, keep = self.workspace.path, tuple(self._result)
        try:
            if self._isolation.is_contained:
                view = self._view()
                return bubblewrap.start_in_bubblewrap(
                    view, argv, stdin=stdin, environment=environment, stderr=stderr, keep=keep
                )
            own = {"HOME": str(folder), "TMPDIR": str(folder), **environment}
            return local.start_program(
                argv, folder=folder, limits=self.limits, stdin=stdin, environment=own, stderr=stderr, keep=keep
            )
        finally:  # the program has inherited it: if it stayed open here, the pipe would never end
            self.close_result()

    def _view(self) -> SandboxView:
        mounts = ["--bind", str(self.workspace.path), _FOLDER, *python_mounts()]
        for path in map(str, self._isolation.readable):
            mounts += read_only_arguments(path, path)
        return SandboxView(
            tuple(mounts),
            _FOLDER,
            self.workspace.owner,
            path=python_path(),
            reads_all=True,  # only root may be allowed to read the shown files
            network=self._isolation.network,
            limits=self.limits,
        )


class _ResultPipe(asyncio.Protocol):
    """A result that arrives through a pipe."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self._content = bytearray()
        self._pipe: asyncio.BaseTransport | None = None

    def content(self) -> bytes | None:
        """Return the whole result, or None if it is too long."""
        if len(self._content) <= MAX_RESULT_BYTES:
            return bytes(self._content)
        return None

    def close(self) -> None:
        """Stop reading."""
        if self._pipe is not None:
            self._pipe.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._pipe = transport

    def data_received(self, data: bytes) -> None:
        # One byte more than allowed is stored, so that `content` can detect the excess.
        room = MAX_RESULT_BYTES + 1 - len(self._content)
        self._content += data[:room]

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()


def _make_result_pipe() -> tuple[int, int]:
    """Return a pipe whose writing end has a number that shell redirections do not use."""
    reads, writes = os.pipe()
    try:
        return reads, fcntl.fcntl(writes, fcntl.F_DUPFD_CLOEXEC, _FIRST_DESCRIPTOR)
    finally:
        os.close(writes)
