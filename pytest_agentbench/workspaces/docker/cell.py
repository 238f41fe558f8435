"""A container of a run, as the sandbox uses it: scripts are started in it, and all of it is killed or removed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.containers.cell import CountedCell, pids_file, started
from pytest_agentbench.workspaces.docker.bounds import ServiceBounds
from pytest_agentbench.workspaces.docker.daemon import Daemon
from pytest_agentbench.workspaces.docker.stream import ExecStream, start_exec


class DaemonCell(CountedCell):
    """A container of the docker daemon. `user` is whom scripts run as; `remove` removes it, with what is beside it.

    `services` are the bounds of those that run beside it, None where there are none.
    """

    def __init__(
        self,
        daemon: Daemon,
        container_id: str,
        user: str,
        remove: Callable[[], None],
        services: ServiceBounds | None = None,
    ) -> None:
        super().__init__()
        self._services = services
        self._daemon, self._id, self._user, self._remove = daemon, container_id, user, remove

    async def run(
        self, script: str, argv: Sequence[str], environment: Mapping[str, str], *, with_stdin: bool = False
    ) -> ExecStream:
        """As the protocol says."""
        if self._services is not None:
            self._services.check()
        command = ["sh", "-c", script, "sh", *argv]
        return await started(
            partial(self._started, command, environment, with_stdin), partial(self._daemon.call, self._restart)
        )

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
