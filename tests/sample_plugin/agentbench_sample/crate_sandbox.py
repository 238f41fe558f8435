"""A container of the sandbox `crate`, by the command of its engine."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from subprocess import DEVNULL, PIPE
from typing import Any, Literal

from agentbench_sample.plain_process import MARK, PlainProcess, read_ends
from pytest_agentbench import ExecResult, SandboxError, SharedFolder, Workspace

OUTPUTS = "/run/agentbench-outputs"
"""The folder of the outputs of commands in a container: it cannot be removed there, unlike /tmp."""
RUN = 'echo begun; exec >"$1" 2>&1; cd -- "$2" || exit 127; shift 2; exec "$@"'
"""Becomes a command whose output is a file: processes that it leaves behind would hold a pipe open."""
SPAWN = {"merged": 'exec "$@" 2>&1', "apart": 'exec "$@"'}
KILL = f"""
looks=0
while [ $looks -lt 2 ]; do
    found=$(grep -Fla {MARK}="$0" /proc/[0-9]*/environ 2>/dev/null)
    if [ -z "$found" ]; then looks=$((looks + 1)); else looks=0; fi
    for file in $found; do process=${{file#/proc/}}; kill -9 "${{process%/environ}}" 2>/dev/null; done
done
"""
"""Kills all processes with a mark, until two looks find none: a process that forks may be missed by one."""


class Engine:
    """The command of a container engine, docker or podman."""

    def __init__(self, program: str) -> None:
        self.program = program

    async def call(self, *arguments: str) -> str:
        """Return the output of a call. Raises SandboxError with the engine's own words if it fails."""
        process = await self.open(*arguments, stdin=DEVNULL, stderr=PIPE)
        output, errors = await process.communicate()
        if process.returncode != 0:
            raise SandboxError(f"{self.program} {arguments[0]}: {errors.decode('utf-8', 'replace').strip()}")
        return output.decode("utf-8", "replace").strip()

    async def open(self, *arguments: str, stdin: Any, stderr: Any) -> asyncio.subprocess.Process:
        """Start a call that stays."""
        return await asyncio.create_subprocess_exec(self.program, *arguments, stdin=stdin, stdout=PIPE, stderr=stderr)


class CrateSandbox(SharedFolder):
    """A container with the workspace at /workspace."""

    kind = "crate"

    def __init__(self, engine: Engine, container: str, workspace: Workspace, outputs: str) -> None:
        self.workspace, self._engine, self._container, self._outputs = workspace, engine, container, outputs
        self._started, self._has_stopped = 0, False

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
        """Run a command to its end. A command that takes too long ends with all that runs in the container."""
        began, has_ended = time.monotonic(), False
        killed: Literal["time-out"] | None = None
        output = tempfile.NamedTemporaryFile(dir=self._outputs, delete=False)  # noqa: SIM115 - see the next line
        with output, tempfile.TemporaryFile() as given:
            os.fchmod(output.fileno(), 0o666)
            given.write(stdin)
            given.seek(0)
            command = [RUN, "sh", f"{OUTPUTS}/{os.path.basename(output.name)}", cwd or ".", *argv]
            call, mark = await self._open(command, environment, stdin=given, stderr=PIPE)
            try:
                begun, errors = await asyncio.wait_for(call.communicate(), seconds)
                has_ended = True
            except TimeoutError:
                killed = "time-out"
            finally:
                if not has_ended:  # also if this call is cancelled
                    call.kill()
                    await self._engine.call("restart", "--time=0", self._container)
            if has_ended and not begun:
                raise SandboxError(f"{self._engine.program} exec: {errors.decode('utf-8', 'replace').strip()}")
            if has_ended and not leave_running:
                await self._end(mark)
            text, truncated = read_ends(output, output_limit)
        with suppress(FileNotFoundError):  # a command may remove it
            os.unlink(output.name)
        return ExecResult(None if killed else call.returncode, text, killed, truncated, time.monotonic() - began)

    async def spawn(
        self, argv: Sequence[str], *, environment: Mapping[str, str] | None = None, stderr: str = "merged"
    ) -> PlainProcess:
        """Start a program that stays, with pipes. Its stderr is kept in a file if it is kept apart."""
        errors = tempfile.TemporaryFile() if stderr == "apart" else None  # noqa: SIM115 - as long as the program
        script = [SPAWN[stderr], "sh", *argv]
        call, mark = await self._open(script, environment, stdin=PIPE, stderr=errors or DEVNULL)
        return PlainProcess(call, partial(self._end, mark), errors)

    async def stop(self) -> None:
        """Remove the container with all that runs in it."""
        if not self._has_stopped:
            self._has_stopped = True
            with suppress(SandboxError):  # it is gone already
                await self._engine.call("rm", "--force", "--volumes", self._container)
            shutil.rmtree(self._outputs, ignore_errors=True)

    async def _open(
        self, script: Sequence[str], environment: Mapping[str, str] | None, *, stdin: Any, stderr: Any
    ) -> tuple[asyncio.subprocess.Process, str]:
        self._started += 1
        mark = f"{self._started}."
        variables = [f"--env={name}={value}" for name, value in {**(environment or {}), MARK: mark}.items()]
        arguments = ("exec", "--interactive", *variables, self._container, "sh", "-c", *script)
        return await self._engine.open(*arguments, stdin=stdin, stderr=stderr), mark

    async def _end(self, mark: str) -> None:
        """Kill all that a command has started. Restart the container if its processes leave no room to do so."""
        if not self._has_stopped:
            try:
                await self._engine.call("exec", self._container, "sh", "-c", KILL, mark)
            except SandboxError:
                await self._engine.call("restart", "--time=0", self._container)
