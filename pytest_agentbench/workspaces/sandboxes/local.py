"""Commands as plain processes of this machine: limits and a clean end, but no isolation."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.sandboxes.base import (
    NO_VARIABLES,
    ExecResult,
    Killed,
    Process,
    ResourceLimits,
    SandboxKind,
)
from pytest_agentbench.workspaces.sandboxes.capture import Capture
from pytest_agentbench.workspaces.sandboxes.launcher import kill_session
from pytest_agentbench.workspaces.workspace import Workspace

_LAUNCHER = str(Path(__file__).with_name("launcher.py"))
_END_SECONDS = 8.0


@dataclass(frozen=True, slots=True)
class LocalSandbox:
    """Runs commands in the workspace with a scrubbed environment, resource limits and a sure end.

    It is no isolation: a command has this user's rights to files, network and other processes.
    """

    workspace: Workspace
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    kind: SandboxKind = "local"

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
        started = time.perf_counter()
        process = self._start(argv, environment)
        capture = Capture(output_limit)
        killed: Killed | None = None
        try:
            await asyncio.get_running_loop().connect_read_pipe(lambda: capture, process.stdout)
            async with asyncio.timeout(seconds):
                await capture.enough.wait()
        except TimeoutError:
            killed = "time-out"
        finally:
            await _end(process, capture)
        killed = "output" if capture.endless else killed
        code = process.returncode
        return ExecResult(
            exit_code=None if killed else code if code >= 0 else 128 - code,
            output=capture.text(),
            killed=killed,
            truncated=capture.left_out > 0,
            seconds=time.perf_counter() - started,
        )

    async def open(self, argv: Sequence[str], *, environment: Mapping[str, str] = NO_VARIABLES) -> Process:
        """As the protocol says."""
        raise NotImplementedError

    async def put(self, path: str, content: bytes) -> None:
        """As the protocol says."""
        self.workspace.write_bytes(path, content)

    async def get(self, path: str, limit: int) -> bytes:
        """As the protocol says."""
        return self.workspace.read_bytes(path, limit)

    async def stop(self) -> None:
        """Commands end by themselves."""

    def _start(self, argv: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        limits = json.dumps(asdict(self.limits))
        try:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", _LAUNCHER, limits, *argv],
                cwd=self.workspace.path,
                env={**_environment(self.workspace), **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise SandboxError(f"the local sandbox could not start a command: {error}") from error


def _environment(workspace: Workspace) -> dict[str, str]:
    """All that a command sees of the environment: no key can be in it."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(workspace.path),
        "TMPDIR": str(workspace.private_tmp()),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
    }


async def _end(process: subprocess.Popen[bytes], capture: Capture) -> None:
    """Close the launcher's stdin, upon which it kills all that is left, and see it gone. Runs when cancelled too.

    The pipe is at its end when nobody holds it: neither the launcher nor anything that the command started.
    """
    assert process.stdin is not None
    process.stdin.close()
    if capture.pipe is None:  # cancelled before anything was read
        process.wait()
        return
    try:
        if not capture.closed.is_set() and process.poll() is not None:  # its command killed it: do its work
            kill_session(process.pid)
        async with asyncio.timeout(_END_SECONDS):
            await capture.closed.wait()
    except TimeoutError:
        process.kill()
        kill_session(process.pid)
    finally:
        capture.pipe.close()
        process.wait()
