"""A container of a run, as the sandbox uses it: scripts are started in it, and all of it is killed or removed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.docker.daemon import Daemon
from pytest_agentbench.workspaces.docker.stream import ExecStream, start_exec


class CountedCell(ABC):
    """A container whose processes are looked up once for each of its starts."""

    def __init__(self) -> None:
        self.starts = 0
        self._pids: Path | None = None
        self._looked_up = -1

    def processes(self) -> list[int]:
        """As the protocol says."""
        if self._looked_up != self.starts:
            self._looked_up, self._pids = self.starts, self._pids_file()
        try:
            return [] if self._pids is None else list(map(int, self._pids.read_text(encoding="ascii").split()))
        except OSError:  # it is dead
            return []

    @abstractmethod
    def _pids_file(self) -> Path | None:
        """What lists the pids of all that runs in it; those that are executed do not descend from its first one."""


class DaemonCell(CountedCell):
    """A container of the docker daemon. `user` is whom scripts run as; `remove` removes it, with what is beside it."""

    def __init__(self, daemon: Daemon, container_id: str, user: str, remove: Callable[[], None]) -> None:
        super().__init__()
        self._daemon, self._id, self._user, self._remove = daemon, container_id, user, remove

    async def run(
        self, script: str, argv: Sequence[str], environment: Mapping[str, str], *, with_stdin: bool = False
    ) -> ExecStream:
        """As the protocol says."""
        command = ["sh", "-c", script, "sh", *argv]
        try:
            return await self._started(command, environment, with_stdin)
        except SandboxError:
            await self._daemon.call(self._restart)
        try:
            return await self._started(command, environment, with_stdin)
        except SandboxError as error:
            raise cannot_run(str(error)) from error

    async def kill(self) -> None:
        """As the protocol says."""
        with suppress(SandboxError):
            await self._daemon.call(self._daemon.client.api.kill, self._id)

    def kill_soon(self) -> None:
        """As the protocol says."""
        self._daemon.submit(self._daemon.client.api.kill, self._id)

    def remove(self) -> Future[None]:
        """As the protocol says."""
        return self._daemon.submit(self._remove)

    async def _started(self, command: list[str], environment: Mapping[str, str], with_stdin: bool) -> ExecStream:
        exec_id = await self._daemon.call(self._create, command, environment, with_stdin)
        return await start_exec(self._daemon.socket_path, self._daemon.api_version, exec_id)

    def _create(self, command: list[str], environment: Mapping[str, str], with_stdin: bool) -> str:
        api = self._daemon.client.api
        made = api.exec_create(self._id, command, stdin=with_stdin, user=self._user, environment=dict(environment))
        return str(made["Id"])

    def _restart(self) -> None:
        self._daemon.client.api.restart(self._id, timeout=0)
        self.starts += 1

    def _pids_file(self) -> Path | None:
        from docker.errors import APIError

        try:
            pid = self._daemon.client.api.inspect_container(self._id)["State"]["Pid"]
        except (APIError, OSError):
            return None
        return pids_file(pid, self._id)


def pids_file(pid: int, container_id: str) -> Path | None:
    """What lists the pids of a container, one of which is given; None where this process cannot see them."""
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii")
    except OSError:
        return None
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in ("pids", "") and container_id in path:
            file = Path("/sys/fs/cgroup", controllers, path.lstrip("/"), "cgroup.procs")
            return file if file.exists() else None
    return None


def cannot_run(why: str) -> SandboxError:
    """What to say of a container in which nothing can be started."""
    needed = "`sh` and `sleep`, for this machine's architecture"
    return SandboxError(f"the container runs no commands, for which its image needs {needed}: {why.strip()}")
