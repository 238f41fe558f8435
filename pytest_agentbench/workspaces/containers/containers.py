"""The containers of one session: made ahead of need, one for each run, and removed on every path."""

from __future__ import annotations

import asyncio
import atexit
import secrets
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.containers.base import Cell, Engine, Order
from pytest_agentbench.workspaces.containers.images import Image
from pytest_agentbench.workspaces.containers.labels import labels
from pytest_agentbench.workspaces.containers.sandbox import ContainerSandbox
from pytest_agentbench.workspaces.sandboxes.base import SandboxSpec
from pytest_agentbench.workspaces.sandboxes.watchdog import Watchdog
from pytest_agentbench.workspaces.sessions import Workspaces
from pytest_agentbench.workspaces.workspace import Workspace

_MOST_READY = 16
"""How many containers wait for runs at most."""

_CLOSE_SECONDS = 4.0
"""How long a session's end waits for containers that are being made."""


class Containers:
    """All containers of one session at one engine. None serves two runs, and its workspace's folder is made with it.

    Everything but the coroutines may be called in any thread.
    """

    def __init__(self, engine: Engine, workspaces: Workspaces, watchdog: Watchdog) -> None:
        self._engine, self._workspaces, self._watchdog = engine, workspaces, watchdog
        self._calls = engine.calls
        self._ready: dict[SandboxSpec, deque[tuple[Workspace, Future[Cell]]]] = {}
        self._handed_out: dict[Path, Future[Cell]] = {}
        self._state = threading.Condition()
        self._making = 0
        self._made: dict[str, Callable[[], None]] = {}
        self._used = False
        self._closed = threading.Event()

    async def image(self, spec: SandboxSpec) -> Image:
        """The image of such a container, on this machine, with those of its services there too.

        Raises UnavailableError, SandboxError, ConfigError.
        """
        return await self._calls.call(self._engine.image, spec)

    def expect(self, spec: SandboxSpec, runs: int) -> None:
        """Makes containers for runs to come. Raises SandboxError where there is no room for their workspaces."""
        if spec.compose is not None:  # its services are the run's own, and dear
            return
        ready = self._ready.setdefault(spec, deque())
        while len(ready) < min(runs, _MOST_READY):
            workspace = self._workspaces.create("container")
            ready.append((workspace, self._calls.submit(self._make, spec, workspace)))

    def workspace(self, spec: SandboxSpec) -> Workspace | None:
        """The folder of a container that was made ahead, None where there is none."""
        ready = self._ready.get(spec)
        if not ready:
            return None
        workspace, making = ready.popleft()
        self._handed_out[workspace.path] = making
        return workspace

    async def start(self, spec: SandboxSpec, workspace: Workspace, *, beside: bool = False) -> ContainerSandbox:
        """The container of the run that has the workspace, or a further one `beside` it.

        Raises SandboxError, UnavailableError.
        """
        made = None if beside else self._handed_out.pop(workspace.path, None)
        making = made or self._calls.submit(self._make, spec, workspace)
        try:
            cell = await asyncio.wrap_future(making)
        except asyncio.CancelledError:
            making.add_done_callback(_remove_unused)
            raise
        return ContainerSandbox(cell, workspace, spec.limits, self._watchdog)

    def release(self, workspace: Workspace) -> None:
        """Says that the run which has the workspace has ended, and may have started no container."""
        making = self._handed_out.pop(workspace.path, None)
        if making is not None:
            making.add_done_callback(_remove_unused)

    async def close(self) -> None:
        """Removes every container that is left."""
        left = self._left()
        if self._calls.is_used:
            await asyncio.gather(*(self._calls.call(remove) for remove in left))
            await self._calls.call(self._end)

    def _make(self, spec: SandboxSpec, workspace: Workspace) -> Cell:
        """A container that runs, unless the session ends meanwhile."""
        is_first = self._begin()
        made_for = labels(str(workspace.path.parent), workspace.path.name)
        order = Order(f"agentbench-{secrets.token_hex(8)}", spec, workspace, made_for)
        remove = partial(self._remove, order)
        try:
            if is_first:
                self._engine.remove_orphans()
            cell = self._engine.make(order, remove, self._closed)
            with self._state:
                if self._closed.is_set():
                    raise SandboxError("the session ended")
                self._made[order.name] = remove
            return cell
        except BaseException:
            remove()
            raise
        finally:
            with self._state:
                self._making -= 1
                self._state.notify_all()

    def _begin(self) -> bool:
        """Whether it is the session's first container that is being made from now on."""
        with self._state:
            if self._closed.is_set():
                raise SandboxError("the session ended")
            is_first, self._used = not self._used, True
            self._making += 1
        if is_first:
            atexit.register(self._close)
        return is_first

    def _remove(self, order: Order) -> None:
        self._engine.remove(order)
        with self._state:
            self._made.pop(order.name, None)

    def _close(self) -> None:
        """At the end of a process that did not close its session: no thread can be started any more."""
        for remove in self._left():
            remove()
        self._end()

    def _left(self) -> list[Callable[[], None]]:
        """What removes the containers that there are. From now on none is made."""
        atexit.unregister(self._close)
        with self._state:
            self._closed.set()
            return list(self._made.values())

    def _end(self) -> None:
        """Waits for the containers that were being made, which are removed then."""
        with self._state:
            self._state.wait_for(lambda: not self._making, _CLOSE_SECONDS)
        self._calls.close()


def _remove_unused(making: Future[Cell]) -> None:
    if not making.cancelled() and making.exception() is None:
        making.result().remove()
