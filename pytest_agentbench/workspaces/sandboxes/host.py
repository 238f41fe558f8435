"""Sandboxes that start programs on this machine. The local one has limits and a clean end, but no isolation."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.records.base import SandboxKind
from pytest_agentbench.workspaces.confined import give_ownership
from pytest_agentbench.workspaces.sandboxes.base import (
    NO_VARIABLES,
    ExecResult,
    Killed,
    Process,
    ResourceLimits,
    Stderr,
    command_in_folder,
    refuse_user,
    refuse_words,
)
from pytest_agentbench.workspaces.sandboxes.launcher import kill_session
from pytest_agentbench.workspaces.sandboxes.programs import PipedProcess, Program, collect_output, open_input
from pytest_agentbench.workspaces.sandboxes.shared import SharedFolder
from pytest_agentbench.workspaces.sandboxes.watchdog import Watch, Watchdog, exceeds_disk
from pytest_agentbench.workspaces.workspace import Workspace

if TYPE_CHECKING:
    from pytest_agentbench.workspaces.sandboxes.services import Service

_STDERR: Mapping[Stderr, int] = {"merged": subprocess.STDOUT, "apart": subprocess.PIPE}
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Command:
    """A command to start. `leave_running`: its program reports the command's end on stderr, and continues."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    leave_running: bool = False


class HostSandbox(SharedFolder, ABC):
    """A sandbox whose commands are processes of this machine, supervised by the watchdog.

    The event loop owns `_live` and `_services`, those of its programs that continue after their commands' ends. The
    watchdog's thread reads copies of `_live` and calls `_kill_all`.
    """

    kind: SandboxKind

    def __init__(self, workspace: Workspace, limits: ResourceLimits, watchdog: Watchdog) -> None:
        self.workspace = workspace
        self.limits = limits
        self._watchdog = watchdog
        self._watch = Watch(workspace.path, limits, self._root_pids, self._kill_all)
        self._live: set[Program] = set()
        self._services: list[Service] = []

    @abstractmethod
    def _start(self, command: Command, stdin: int, stderr: int) -> Program:
        """Start a command with the descriptor `stdin` and a pipe for its output. Raises SandboxError.

        `stderr` is subprocess.STDOUT, or subprocess.PIPE for a separate pipe.
        """

    @property
    @abstractmethod
    def folder(self) -> str:
        """Return the workspace's path in the sandbox."""

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
        """Run a command to its end. Daemons that it started are killed when it ends, unless they are to continue."""
        refuse_user(self.kind, user)
        if (refused := refuse_words(argv, environment, cwd)) is not None:
            return refused
        command = Command(command_in_folder(argv, cwd, self.folder), environment, leave_running)
        descriptor = open_input(stdin, self.workspace.owner)
        try:
            program = self._start_watched(command, descriptor, subprocess.PIPE if leave_running else subprocess.STDOUT)
        finally:
            os.close(descriptor)
        if leave_running:
            result = await self._leave_running(program, seconds, output_limit)
        else:
            try:
                result = await collect_output(program, seconds=seconds, output_limit=output_limit)
            finally:
                self._drop_program(program)
        # The watchdog checks every 0.1 s at best, so a short command may have filled the workspace between two checks
        if result.killed is None and await asyncio.to_thread(exceeds_disk, self.workspace.path, self.limits):
            result = replace(result, exit_code=None, killed="disk")
        if result.killed is not None:
            self._kill_all(result.killed)
            await self.stop()
        return result

    async def spawn(
        self, argv: Sequence[str], *, environment: Mapping[str, str] = NO_VARIABLES, stderr: Stderr = "merged"
    ) -> Process:
        """Start a program with open streams."""
        reads, writes = os.pipe()
        try:
            # Without ownership a program of another user cannot open /dev/stdin
            give_ownership(reads, self.workspace.owner)
            program = self._start_watched(Command(argv, environment), reads, _STDERR[stderr])
        except BaseException:
            os.close(writes)
            raise
        finally:
            os.close(reads)
        return PipedProcess(program, writes, self._drop_program)

    async def stop(self) -> None:
        """Kill all running programs."""
        self._kill_all(SandboxError("the sandbox was stopped while a command ran in it"))
        for program in tuple(self._live):
            try:
                await program.end()
            except SandboxError as error:
                _logger.warning("%s", error)
        while self._services:
            service = self._services.pop()
            service.close()
            self._drop_program(service.program)

    async def _leave_running(self, program: Program, seconds: float, output_limit: int) -> ExecResult:
        """Return the end of a command. If it was not killed, its background processes are a service until `stop`."""
        from pytest_agentbench.workspaces.sandboxes.services import collect_and_leave

        service = None
        try:
            result, service = await collect_and_leave(program, seconds=seconds, output_limit=output_limit)
        finally:
            if service is None:
                self._drop_program(program)
            else:
                self._services.append(service)
        return result

    def _start_watched(self, command: Command, stdin: int, stderr: int) -> Program:
        program = self._start(command, stdin, stderr)
        if not self._live:
            self._watchdog.begin(self._watch)
        self._live.add(program)
        return program

    def _drop_program(self, program: Program) -> None:
        self._live.discard(program)
        if not self._live:
            self._watchdog.end(self._watch)

    def _root_pids(self) -> list[int]:
        return [root for program in tuple(self._live) if (root := program.root) is not None]

    def _kill_all(self, broken: Killed | SandboxError) -> None:
        for program in tuple(self._live):
            program.broken = program.broken or broken
            program.kill()


_LAUNCHER = str(Path(__file__).with_name("launcher.py"))
_END_SECONDS = 8.0


class LocalSandbox(HostSandbox):
    """Runs commands in the workspace with a clean environment and resource limits, and ends all their descendants.

    There is no isolation: a command has this user's rights to files, network and other processes.
    """

    kind: SandboxKind = "local"

    def __init__(
        self, workspace: Workspace, limits: ResourceLimits | None = None, watchdog: Watchdog | None = None
    ) -> None:
        super().__init__(workspace, limits or ResourceLimits(), watchdog or Watchdog())

    @property
    def folder(self) -> str:
        """Return the workspace's path."""
        return str(self.workspace.path)

    def _start(self, command: Command, stdin: int, stderr: int) -> Program:
        own = {"HOME": self.folder, "TMPDIR": str(self.workspace.private_tmp()), **command.environment}
        return start_program(
            command.argv,
            folder=self.workspace.path,
            limits=self.limits,
            stdin=stdin,
            environment=own,
            stderr=stderr,
            leave_running=command.leave_running,
        )


class LocalProgram(Program):
    """A launcher with its command. When the launcher's stdin is closed, it ends all descendants of the command."""

    @property
    def root(self) -> int:
        """Return the pid of the process group's leader."""
        return self.process.pid

    def kill(self) -> None:
        """Kill the command with all its descendants."""
        self.process.send_signal(signal.SIGTERM)

    async def _end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            await asyncio.to_thread(self.process.wait, _END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
        finally:
            self.process.wait()
            if self.process.returncode < 0:  # the launcher itself was killed, perhaps by its command: do its work here
                await asyncio.to_thread(kill_session, self.process.pid)


def start_program(
    argv: Sequence[str],
    *,
    folder: Path,
    limits: ResourceLimits,
    stdin: int,
    environment: Mapping[str, str],
    stderr: int = subprocess.STDOUT,
    keep: Sequence[int] = (),
    leave_running: bool = False,
) -> LocalProgram:
    """Run `argv` in a folder, with the descriptor `stdin`, and with `keep` inherited. Raises SandboxError.

    Of this process's environment it gets the PATH only, so that it sees no API keys except those in `environment`.
    `leave_running`: the program reports the end of `argv` on stderr, and continues.
    """
    plan = json.dumps({**asdict(limits), "stdin": stdin, "leave_running": leave_running})
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", _LAUNCHER, plan, *argv],
            cwd=folder,
            env={"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", "TERM": "dumb", **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            pass_fds=(stdin, *keep),
            # A new session: its id finds processes that the launcher has lost.
            start_new_session=True,
            bufsize=0,
        )
    except OSError as error:
        raise SandboxError(f"the local sandbox could not start a command: {error}") from error
    return LocalProgram(process)
