"""What the sandboxes that start programs on this machine have in common: local and bubblewrap."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.confined import give
from pytest_agentbench.workspaces.sandboxes.base import (
    NO_VARIABLES,
    ExecResult,
    Killed,
    Process,
    ResourceLimits,
    SandboxKind,
    SharedFolder,
    Stderr,
)
from pytest_agentbench.workspaces.sandboxes.programs import Conversation, Program, collect, input_file
from pytest_agentbench.workspaces.sandboxes.watchdog import Watch, Watchdog, over_disk
from pytest_agentbench.workspaces.workspace import Workspace

_STDERR: Mapping[Stderr, int] = {"merged": subprocess.STDOUT, "apart": subprocess.PIPE}
_logger = logging.getLogger(__name__)


class HostSandbox(SharedFolder, ABC):
    """A sandbox of which every command is a program of its own on this machine, looked after by the watchdog."""

    kind: SandboxKind

    def __init__(self, workspace: Workspace, limits: ResourceLimits, watchdog: Watchdog) -> None:
        self.workspace = workspace
        self.limits = limits
        self._watchdog = watchdog
        self._watch = Watch(workspace.path, limits, self._roots, self._break)
        self._live: set[Program] = set()

    @abstractmethod
    def _start(self, argv: Sequence[str], stdin: int, environment: Mapping[str, str], stderr: int) -> Program:
        """Start `argv` with that descriptor as its stdin and a pipe for its output. Raises SandboxError.

        `stderr` is subprocess.STDOUT, or subprocess.PIPE for a pipe of its own.
        """

    async def exec(
        self,
        argv: Sequence[str],
        *,
        seconds: float,
        stdin: bytes = b"",
        output_limit: int = 64_000,
        environment: Mapping[str, str] = NO_VARIABLES,
    ) -> ExecResult:
        """As the protocol says. Daemons the command started are killed too, when it ends or is ended."""
        given = input_file(stdin, self.workspace.owner)
        try:
            program = self._begin(argv, given, environment)
        finally:
            os.close(given)
        try:
            result = await collect(program, seconds=seconds, output_limit=output_limit)
        finally:
            self._forget(program)
        if result.killed is None and await asyncio.to_thread(over_disk, self.workspace.path, self.limits):
            result = replace(result, exit_code=None, killed="disk")
        if result.killed is not None:
            self._break(result.killed)
            await self.stop()
        return result

    async def open(
        self, argv: Sequence[str], *, environment: Mapping[str, str] = NO_VARIABLES, stderr: Stderr = "merged"
    ) -> Process:
        """As the protocol says."""
        reads, writes = os.pipe()
        try:
            give(reads, self.workspace.owner)
            program = self._begin(argv, reads, environment, _STDERR[stderr])
        except BaseException:
            os.close(writes)
            raise
        finally:
            os.close(reads)
        return Conversation(program, writes, self._forget)

    async def stop(self) -> None:
        """As the protocol says."""
        self._break(SandboxError("the sandbox was stopped while a command ran in it"))
        for program in tuple(self._live):
            try:
                await program.end()
            except SandboxError as error:
                _logger.warning("%s", error)

    def _begin(
        self, argv: Sequence[str], stdin: int, environment: Mapping[str, str], stderr: int = subprocess.STDOUT
    ) -> Program:
        program = self._start(argv, stdin, environment, stderr)
        for pipe in (program.process.stdout, program.process.stderr):
            if pipe is not None:
                give(pipe.fileno(), self.workspace.owner)
        if not self._live:
            self._watchdog.begin(self._watch)
        self._live.add(program)
        return program

    def _forget(self, program: Program) -> None:
        self._live.discard(program)
        if not self._live:
            self._watchdog.end(self._watch)

    def _roots(self) -> list[int]:
        return [root for program in tuple(self._live) if (root := program.root) is not None]

    def _break(self, broken: Killed | SandboxError) -> None:
        for program in tuple(self._live):
            program.broken = program.broken or broken
            program.kill()
