"""A container of an engine's program, as the sandbox uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.by_command.client import Client
from pytest_agentbench.workspaces.by_command.stream import ClientStream, start_client
from pytest_agentbench.workspaces.containers.calls import Calls
from pytest_agentbench.workspaces.containers.cell import CountedCell, pids_file, started

_BEGIN_SECONDS = 60


class ClientCell(CountedCell):
    """A container that a program made. `user` is whom scripts run as; `remove` removes it.

    The environment of a script is seen in this machine's list of processes: no key may be in it.
    """

    def __init__(self, client: Client, calls: Calls, name: str, user: str, remove: Callable[[], None]) -> None:
        super().__init__()
        self._client, self._calls, self._name, self._user, self._remove = client, calls, name, user, remove

    async def run(
        self, script: str, argv: Sequence[str], environment: Mapping[str, str], *, with_stdin: bool = False
    ) -> ClientStream:
        """As the protocol says."""
        variables = (text for name, value in environment.items() for text in ("--env", f"{name}={value}"))
        stdin = ("--interactive",) if with_stdin else ()
        command = ["exec", *stdin, "--user", self._user, *variables, self._name, "sh", "-c", script, "sh", *argv]
        return await started(partial(self._started, command, with_stdin), partial(self._calls.call, self._restart))

    async def kill(self) -> None:
        """As the protocol says."""
        await self._calls.call(self._kill)

    def kill_soon(self) -> None:
        """As the protocol says."""
        self._calls.submit(self._kill)

    def remove(self) -> Future[None]:
        """As the protocol says."""
        return self._calls.submit(self._remove)

    async def _started(self, command: list[str], with_stdin: bool) -> ClientStream:
        """The program, once its script tells that it has begun; where it does not in time, it never will."""
        stream = await start_client([self._client.program, *command], with_stdin=with_stdin)
        try:
            async with asyncio.timeout(_BEGIN_SECONDS):
                said = await stream.begun()
        except BaseException as error:
            await stream.close()
            await self.kill()
            if isinstance(error, TimeoutError):
                raise SandboxError(f"no command was started within {_BEGIN_SECONDS} s") from error
            raise
        if said is not None:
            await stream.close()
            raise SandboxError(said)
        return stream

    def _kill(self) -> None:
        with suppress(SandboxError):  # `kill` would not wait; its signal is the one that the container was made with
            self._client.run("stop", "-t", "0", self._name)

    def _restart(self) -> None:
        self._client.call("restart", "-t", "0", self._name)
        self.starts += 1

    def _pids_file(self) -> Path | None:
        try:
            told = self._client.call("inspect", "--format", "{{.State.Pid}} {{.Id}}", self._name)
        except SandboxError:
            return None
        pid, _, container_id = told.partition(" ")
        return pids_file(int(pid), container_id) if pid.isdigit() else None
