"""Sandbox provider: `sandbox: plain` runs commands as processes of this machine, in the workspace.

It isolates nothing: a command may read and write what its user may, and has the network. What it gives is a clean
environment, limits of time and of file sizes, and that nothing outlives its command.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from subprocess import PIPE, STDOUT
from typing import Any, Literal
from uuid import uuid4

from agentbench_sample.plain_process import MARK, PlainProcess, kill_marked, read_ends
from pytest_agentbench import (
    ExecResult,
    SandboxProvider,
    SandboxRequest,
    SandboxSession,
    SandboxSpec,
    SharedFolder,
    Workspace,
)


class PlainSandbox(SharedFolder):
    """Processes in one workspace; `put` and `get` are SharedFolder's, as the workspace is a folder of this machine."""

    kind = "plain"

    def __init__(self, spec: SandboxSpec, workspace: Workspace) -> None:
        self.workspace, self._limits, self._mark, self._started = workspace, spec.limits, uuid4().hex, 0

    async def exec(
        self,
        argv: Sequence[str],
        *,
        seconds: float,
        stdin: bytes = b"",
        output_limit: int = 64_000,
        environment: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        leave_running: bool = False,
    ) -> ExecResult:
        """Run a command to its end, or to its limit of time. `user` is None: the provider does not switch users."""
        began = time.monotonic()
        # Files, and no pipes: a daemon that the command leaves behind would hold a pipe open, and nobody read it.
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as output:
            given.write(stdin)
            given.seek(0)
            killed: Literal["time-out"] | None = None
            code = None
            try:
                process, mark = await self._start(argv, environment, given, output, STDOUT, cwd=cwd)
            except OSError as error:  # the command's fault, as a shell has it
                output.write(f"{argv[0]}: {error.strerror}\n".encode())
                code = 127
            else:
                try:
                    code = await asyncio.wait_for(process.wait(), seconds)
                except TimeoutError:
                    killed = "time-out"
                finally:
                    if code is None or not leave_running:
                        kill_marked(mark if killed is None else self._mark)
                    await process.wait()
            text, truncated = read_ends(output, output_limit)
        code = 128 - code if code is not None and code < 0 else code  # a signal, as a shell has it
        return ExecResult(code, text, killed, truncated, time.monotonic() - began)

    async def spawn(
        self, argv: Sequence[str], *, environment: Mapping[str, str] | None = None, stderr: str = "merged"
    ) -> PlainProcess:
        """Start a program that stays. Its stderr is kept in a file if it is apart."""
        errors = tempfile.TemporaryFile() if stderr == "apart" else None  # noqa: SIM115 - as long as the program
        process, mark = await self._start(argv, environment, PIPE, PIPE, STDOUT if errors is None else errors)

        async def end() -> None:
            kill_marked(mark)

        return PlainProcess(process, end, errors)

    async def stop(self) -> None:
        """End all that still runs."""
        kill_marked(self._mark)

    async def _start(
        self, argv: Sequence[str], environment: Mapping[str, str] | None, *streams: Any, cwd: str | None = None
    ) -> tuple[asyncio.subprocess.Process, str]:
        stdin, stdout, stderr = streams
        self._started += 1
        mark, folder, most = f"{self._mark}.{self._started}.", str(self.workspace.path), self._limits.file_bytes
        own = {"PATH": os.environ.get("PATH", os.defpath), "HOME": folder, "TMPDIR": str(self.workspace.private_tmp())}
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=os.path.join(folder, cwd or ""),
            env={**own, **(environment or {}), MARK: mark},
            # Before the program starts: it could have written a file by the time that `start` returns
            preexec_fn=partial(resource.setrlimit, resource.RLIMIT_FSIZE, (most, most)),
        )
        return process, mark


class PlainSession(SandboxSession):
    """What a session has of them: one for each run."""

    async def start(self, request: SandboxRequest) -> PlainSandbox:
        """Return a sandbox in the workspace."""
        return PlainSandbox(request.spec, request.workspace)


class PlainProvider(SandboxProvider):
    """Provider: that it isolates nothing is the default of `isolation`."""

    def problem(self) -> str | None:
        """Return why there is none here."""
        return None if sys.platform == "linux" else "it finds processes in /proc, which only Linux has; use docker"

    def open(self) -> PlainSession:
        """Return what a session has of them."""
        return PlainSession()


PLAIN = PlainProvider()
