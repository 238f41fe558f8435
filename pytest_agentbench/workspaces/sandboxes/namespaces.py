"""A process of bubblewrap with its namespaces: their end, and the network that other programs join."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import subprocess
import threading
from contextlib import suppress

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.sandboxes.programs import Program

_END_SECONDS = 30.0
_BWRAP_SECONDS = 0.5
_NS_GET_USERNS = 0xB701
"""Request of `ioctl_ns(2)`: open the user namespace that owns a namespace."""


class BubblewrapProgram(Program):
    """A `bwrap` process and its process namespace. Killing the namespace's first process kills all of them.

    Bwrap then ends, too, and leaves nothing to collect. `status` is the pipe for bwrap's reports: first the pid of that
    process, later the command's exit code.

    The loop reads the reports, and any thread may kill: `_lock` guards `_first`'s descriptor against its closing,
    because a closed descriptor's number may belong to another process.
    """

    def __init__(self, process: subprocess.Popen[bytes], status: int) -> None:
        super().__init__(process)
        self._status = status
        self._reports = b""
        self._first: tuple[int, int] | None = None  # its pid, and a descriptor of it
        # Set once the first process is known, or is known not to exist
        self._known = asyncio.Event()
        self._doomed = False
        self._namespaces: dict[str, int] = {}
        self._lock = threading.Lock()
        self._closed = False
        os.set_blocking(status, False)
        asyncio.get_running_loop().add_reader(status, self._hear)

    @property
    def root(self) -> int | None:
        """Return the pid of the namespace's first process."""
        if self._first is None:
            return None
        return self._first[0]

    def kill(self) -> None:
        """Kill the first process of the namespace, and with it all others."""
        with self._lock:
            if self._closed:
                return
            if self._first is not None:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._first[1], signal.SIGKILL)
            elif self._known.is_set():
                self.process.kill()
            else:
                # bwrap has not reported its child yet. Killed now, it would leave it running, so `_hear` kills later
                self._doomed = True

    def open_network(self) -> dict[str, str]:
        """Return paths of its network namespace and, for an ordinary user, of the user namespace that owns the network.

        The paths are valid until `end`. Return {} if its processes have ended already. For the event loop.
        """
        if self._closed or self._first is None:
            return {}
        pid, process = self._first
        try:
            if not self._namespaces:
                network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
                self._namespaces["net"] = network
                if os.getuid() != 0:
                    self._namespaces["user"] = fcntl.ioctl(network, _NS_GET_USERNS)
            signal.pidfd_send_signal(process, 0)  # so the pid was its own when the namespace was opened
        except OSError:
            return {}
        return {kind: f"/proc/{os.getpid()}/fd/{opened}" for kind, opened in self._namespaces.items()}

    def exit_code(self) -> int:
        """Return the exit code that bwrap reports. The exit code of bwrap itself may be its own failure."""
        for line in self._reports.splitlines():
            code = json.loads(line).get("exit-code")
            if isinstance(code, int):
                return code
        raise SandboxError(f"bubblewrap could not run a command (exit code {self.process.returncode})")

    async def _end(self) -> None:
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self._known.wait()
                self.kill()
                if self._first is not None:
                    await _wait_for_end(self._first[1])
        except TimeoutError as error:
            raise SandboxError(f"a command in bubblewrap could not be killed within {_END_SECONDS:g} s") from error
        finally:
            self._collect()
            self._hear()
            self._close()

    def _hear(self) -> None:
        """Read bwrap's reports. The pipe ends when bwrap does."""
        over = False
        with suppress(BlockingIOError):
            while chunk := os.read(self._status, 4096):
                self._reports += chunk
            over = True
        if over:
            asyncio.get_running_loop().remove_reader(self._status)
        if self._first is None and b"\n" in self._reports:
            self._first = _open_first_process(json.loads(self._reports.splitlines()[0]))
        if over or b"\n" in self._reports:
            self._known.set()
            if self._doomed:
                self.kill()

    def _collect(self) -> None:
        """Wait until bwrap has ended, which should follow the end of the first process, else kill it."""
        try:
            self.process.wait(_BWRAP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._status)
        os.close(self._status)
        for namespace in self._namespaces.values():
            os.close(namespace)
        with self._lock:
            self._closed = True
            if self._first is not None:
                os.close(self._first[1])


def _open_first_process(report: dict[str, int]) -> tuple[int, int] | None:
    """Return the pid and a descriptor of a sandbox's first process, or None if it has ended."""
    pid = report["child-pid"]
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    try:
        if os.stat(f"/proc/{pid}/ns/pid").st_ino == report["pid-namespace"]:
            return pid, descriptor
    except OSError:  # it has ended, and the pid may belong to another process
        pass
    os.close(descriptor)
    return None


async def _wait_for_end(process: int) -> None:
    """Wait for the end of a namespace's first process, which comes after that of all others in it."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    # A pidfd becomes readable when its process ends. The pid would not do: another process may get it
    loop.add_reader(process, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(process)
