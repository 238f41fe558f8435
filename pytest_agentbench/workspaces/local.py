"""Commands as plain processes of this machine: limits and a clean end, but no isolation."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.launcher import kill_session
from pytest_agentbench.workspaces.sandbox import ExecResult, ResourceLimits
from pytest_agentbench.workspaces.workspace import Workspace

_LAUNCHER = str(Path(__file__).with_name("launcher.py"))
_ENDLESS_BYTES = 32 * 2**20
_END_SECONDS = 8.0


@dataclass(frozen=True, slots=True)
class LocalSandbox:
    """Runs commands in the workspace with a scrubbed environment, resource limits and a sure end.

    It is no isolation: a command has this user's rights to files, network and other processes.
    """

    limits: ResourceLimits = field(default_factory=ResourceLimits)

    async def run(
        self, argv: Sequence[str], *, workspace: Workspace, seconds: float, output_limit: int = 64_000
    ) -> ExecResult:
        """As the protocol says. Daemons the command started are killed too, when it ends or is ended."""
        started = time.perf_counter()
        process = self._start(argv, workspace)
        capture = _Capture(output_limit)
        timed_out = False
        try:
            await asyncio.get_running_loop().connect_read_pipe(lambda: capture, process.stdout)
            async with asyncio.timeout(seconds):
                await capture.enough.wait()
        except TimeoutError:
            timed_out = True
        finally:
            await _end(process, capture)
        code = process.returncode
        return ExecResult(
            exit_code=None if timed_out or capture.endless else code if code >= 0 else 128 - code,
            output=capture.text(),
            timed_out=timed_out,
            truncated=capture.left_out > 0,
            seconds=time.perf_counter() - started,
        )

    def _start(self, argv: Sequence[str], workspace: Workspace) -> subprocess.Popen[bytes]:
        environment = _environment(workspace)
        limits = json.dumps(asdict(self.limits))
        try:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", _LAUNCHER, limits, *argv],
                cwd=workspace.path,
                env=environment,
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


async def _end(process: subprocess.Popen[bytes], capture: _Capture) -> None:
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


class _Capture(asyncio.Protocol):
    """The beginning and the end of a stream, `limit` bytes together; what lies between is only counted.

    `closed` is set at the stream's end, `enough` there or when its writer counts as endless.
    """

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.left_out = 0
        self.pipe: asyncio.BaseTransport | None = None
        self.enough = asyncio.Event()
        self.closed = asyncio.Event()

    @property
    def endless(self) -> bool:
        """Whether so much came that there was no use in waiting for the end."""
        return self.left_out > _ENDLESS_BYTES

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The pipe, to be closed in the end."""
        self.pipe = transport

    def data_received(self, data: bytes) -> None:
        """Keep what is first, and what is last so far."""
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        excess = len(self._tail) - self._half
        if excess > 0:
            del self._tail[:excess]
            self.left_out += excess
        if self.endless:
            self.enough.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """The stream's end."""
        self.enough.set()
        self.closed.set()

    def text(self) -> str:
        """What was kept, with a note where something is missing."""
        if not self.left_out:
            return (self._head + self._tail).decode("utf-8", "replace")
        end = " and then it was stopped" if self.endless else ""
        note = f"\n[... {self.left_out:,} bytes left out{end} ...]\n"
        return self._head.decode("utf-8", "replace") + note + self._tail.decode("utf-8", "replace")
