"""The containers of one session at one daemon: made ahead of need, one for each run, and removed on every path."""

from __future__ import annotations

import asyncio
import atexit
import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from os.path import isabs
from pathlib import Path
from typing import Any

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.records.run import SandboxUsed
from pytest_agentbench.workspaces.containers import podman
from pytest_agentbench.workspaces.containers.bounds import ServiceBounds
from pytest_agentbench.workspaces.containers.compose import Project, service_images, start_services
from pytest_agentbench.workspaces.containers.container import (
    HOST,
    SESSION,
    Container,
    ContainerSpec,
    run_labels,
    start_container,
    user_of,
)
from pytest_agentbench.workspaces.containers.daemon import Daemon
from pytest_agentbench.workspaces.containers.images import Image, Images
from pytest_agentbench.workspaces.containers.sandbox import ContainerSandbox
from pytest_agentbench.workspaces.sandboxes.base import SandboxSession, SandboxSpec
from pytest_agentbench.workspaces.sandboxes.watchdog import Watchdog
from pytest_agentbench.workspaces.sessions import Workspaces, host_mark, session_is_dead
from pytest_agentbench.workspaces.workspace import Workspace

_MOST_READY = 16
"""How many containers wait for runs at most."""

_CLOSE_SECONDS = 4.0
"""How long a session's end waits for containers that are being made."""


_logger = logging.getLogger(__name__)


class ContainerPool(SandboxSession):
    """All containers of one session at one daemon. None serves two runs, and its workspace's folder is made with it.

    Everything but the coroutines may be called in any thread. `program` is as in Daemon.
    """

    def __init__(self, program: str | None, workspaces: Workspaces, watchdog: Watchdog) -> None:
        self._daemon, self._workspaces, self._watchdog = Daemon(program), workspaces, watchdog
        self._images = Images(self._daemon)
        self._bounds: dict[str, ServiceBounds] = {}
        self._ready: dict[SandboxSpec, deque[tuple[Workspace, Future[Container]]]] = {}
        self._handed_out: dict[Path, Future[Container]] = {}
        self._state = threading.Condition()
        self._making = 0
        self._made: dict[str, Callable[[], None]] = {}
        self._is_used = False
        self._closed = threading.Event()

    async def prepare(self, spec: SandboxSpec) -> None:
        """Have the image of such a container on this machine, and those of its services.

        Raises UnavailableError, SandboxError, ConfigError.
        """
        await self._daemon.call(self._find_images, spec)

    async def describe(self, spec: SandboxSpec) -> SandboxUsed:
        """Return the image's name and id. Raises as `prepare` does."""
        image = await self._daemon.call(self._find_images, spec)
        return SandboxUsed(kind=spec.kind, image=image.name, image_id=image.image_id)

    def expect(self, spec: SandboxSpec, runs: int) -> None:
        """Make containers for runs to come. Raises SandboxError where there is no room for their workspaces."""
        if spec.compose is not None:  # its services are the run's own, and dear
            return
        ready = self._ready.setdefault(spec, deque())
        while len(ready) < min(runs, _MOST_READY):
            workspace = self._workspaces.create("container")
            ready.append((workspace, self._daemon.submit(self._make, spec, workspace)))

    def workspace(self, spec: SandboxSpec) -> Workspace | None:
        """Return the folder of a container that was made ahead, None where there is none."""
        ready = self._ready.get(spec)
        if not ready:
            return None
        workspace, making = ready.popleft()
        self._handed_out[workspace.path] = making
        return workspace

    async def start(self, spec: SandboxSpec, workspace: Workspace, *, beside: bool = False) -> ContainerSandbox:
        """Return the container of the run that has the workspace, or a further one `beside` it.

        Raises SandboxError, UnavailableError.
        """
        made = None if beside else self._handed_out.pop(workspace.path, None)
        making = made or self._daemon.submit(self._make, spec, workspace)
        try:
            container = await asyncio.wrap_future(making)
        except asyncio.CancelledError:  # the thread makes it all the same
            making.add_done_callback(_remove_unused)
            raise
        return ContainerSandbox(container, workspace, spec.limits, self._watchdog)

    def release(self, workspace: Workspace) -> None:
        """Say that the run which has the workspace has ended, and may have started no container."""
        making = self._handed_out.pop(workspace.path, None)
        if making is not None:
            making.add_done_callback(_remove_unused)

    async def close(self) -> None:
        """Remove every container that is left."""
        left = self._refuse_more()
        if self._daemon.is_used:
            await asyncio.gather(*(self._daemon.call(remove) for remove in left))
            await self._daemon.call(self._end)

    def _find_images(self, spec: SandboxSpec) -> Image:
        """Return the image of a container, with those of its services here too."""
        if (spec.image is None or spec.compose is not None) and self._daemon.is_podman:
            podman.refuse_builds(self._daemon.program)
        if spec.compose is not None:
            service_images(self._images, spec)
        return self._images.get(spec.image, spec.dockerfile, build_network=spec.build_network, limits=spec.limits)

    def _make(self, sandbox: SandboxSpec, workspace: Workspace) -> Container:
        """Return a container that runs, unless the session ends meanwhile."""
        is_first = self._begin_making()
        spec = ContainerSpec(f"agentbench-{secrets.token_hex(8)}", sandbox, workspace, run_labels(workspace))
        remove = partial(self._remove, spec)
        try:
            if is_first:  # where there is a daemon, that is: a session without containers asks none
                remove_orphans(self._daemon)
            image = self._find_images(sandbox)
            try:
                container = self._start(spec, image, remove)
                with self._state:
                    if self._closed.is_set():  # while it was made: nobody else knows of it
                        raise SandboxError("the session ended")
                    self._made[spec.name] = remove
            except BaseException:
                remove()
                raise
            return container
        finally:
            with self._state:
                self._making -= 1
                self._state.notify_all()

    def _start(self, spec: ContainerSpec, image: Image, remove: Callable[[], None]) -> Container:
        """Start a container, and its services before it. What was made where this raises has its labels and name."""
        sandbox, bounds = spec.sandbox, None
        network = "bridge" if sandbox.network else "none"
        if sandbox.compose is not None:
            project = Project(spec.name, spec.labels)
            network = project.network
            bounds = self._bounds[spec.name] = ServiceBounds(self._daemon, sandbox.limits, project.labels)
            bounds.begin()
            start_services(self._daemon, self._images, sandbox, project, bounds, self._closed)
        container_id = start_container(self._daemon, spec, image, network)
        return Container(self._daemon, container_id, user_of(spec.workspace), remove, bounds)

    def _begin_making(self) -> bool:
        """Return whether it is the session's first container that is being made from now on."""
        with self._state:
            if self._closed.is_set():
                raise SandboxError("the session ended")
            is_first, self._is_used = not self._is_used, True
            self._making += 1
        if is_first:
            atexit.register(self._close_late)
        return is_first

    def _remove(self, spec: ContainerSpec) -> None:
        """Remove a container, and all that was made beside it. Never raises: what stays is an orphan."""
        if (bounds := self._bounds.pop(spec.name, None)) is not None:
            bounds.end()
        try:
            _remove_one(self._daemon.client.api.remove_container, spec.name, v=True, force=True)
            if spec.sandbox.compose is not None:
                _remove_all(self._daemon, spec.labels, list)
        except Exception as error:  # noqa: BLE001 - the daemon may be gone, and why is said by who needs it
            _logger.warning("%s: could not remove what was made for a run: %s", self._daemon.program, error)
        with self._state:
            self._made.pop(spec.name, None)

    def _close_late(self) -> None:
        """Close at the end of a process that did not: no thread can be started any more."""
        for remove in self._refuse_more():
            remove()
        self._end()

    def _refuse_more(self) -> list[Callable[[], None]]:
        """Return what removes the containers that there are. From now on none is made."""
        atexit.unregister(self._close_late)
        with self._state:
            self._closed.set()
            return list(self._made.values())

    def _end(self) -> None:
        """Wait for the containers that were being made, which are removed then, and end the way to the daemon."""
        with self._state:
            self._state.wait_for(lambda: not self._making, _CLOSE_SECONDS)
        self._daemon.close()


def remove_orphans(daemon: Daemon) -> None:
    """Remove what dead sessions of this user on this machine left. Nothing of others: their sessions may live."""
    _remove_all(daemon, {HOST: host_mark()}, _of_dead)


def _remove_all(
    daemon: Daemon, labels: Mapping[str, str], chosen: Callable[[Iterable[Any]], list[dict[str, Any]]]
) -> None:
    """Remove those containers, networks and volumes that have the labels and are `chosen`."""
    api = daemon.client.api
    filters = {"label": [f"{name}={value}" for name, value in labels.items()]}
    for found in chosen(api.containers(all=True, filters=filters)):
        _remove_one(api.remove_container, found["Id"], v=True, force=True)
    for found in chosen(api.networks(filters=filters)):
        _remove_one(api.remove_network, found["Id"])
    for found in chosen(api.volumes(filters=filters)["Volumes"] or ()):
        _remove_one(api.remove_volume, found["Name"])


def _of_dead(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    marked = ((each, (each["Labels"] or {}).get(SESSION)) for each in found)
    return [each for each, folder in marked if folder and isabs(folder) and session_is_dead(folder)]


def _remove_one(function: Any, name: str, **options: Any) -> None:
    from docker.errors import APIError, DockerException, NotFound
    from requests import RequestException

    try:
        function(name, **options)
    except NotFound:
        return
    except APIError as error:
        if error.status_code == 409:  # another session, or the daemon itself, is about to
            return
        _logger.warning("docker: could not remove %s: %s", name, error.explanation)
    except (DockerException, RequestException) as error:
        _logger.warning("docker: could not remove %s: %s", name, error)


def _remove_unused(making: Future[Container]) -> None:
    if not making.cancelled() and making.exception() is None:
        making.result().remove()
