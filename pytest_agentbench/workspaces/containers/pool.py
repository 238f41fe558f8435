"""The containers of one session at one daemon: created ahead, one for each run, and removed in every case."""

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

from docker.errors import APIError, DockerException, NotFound
from requests import RequestException

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
from pytest_agentbench.workspaces.sandboxes.base import SandboxRequest, SandboxSession, SandboxSpec
from pytest_agentbench.workspaces.sandboxes.watchdog import Watchdog
from pytest_agentbench.workspaces.sessions import Workspaces, host_mark, session_is_dead
from pytest_agentbench.workspaces.workspace import Workspace

_MOST_READY = 16
"""Maximum containers that wait for runs."""

_CLOSE_SECONDS = 4.0
"""Maximum seconds that a session's end waits for containers that are being created."""


_logger = logging.getLogger(__name__)


class ContainerPool(SandboxSession):
    """The containers of one session at one daemon. Each serves one run and is created with the run's workspace.

    All methods except the coroutines may be called in any thread. `program` is the engine's command, as for Daemon.

    Threads of the daemon create and remove containers. `_state` guards `_making`, `_made` and `_is_used`. `_ready` and
    `_handed_out` need no lock, because `deque.popleft` and `dict.pop` are atomic.
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
        """Pull or build the images of the spec's container and of its services.

        Raises UnavailableError, SandboxError, ConfigError.
        """
        await self._daemon.call(self._find_images, spec)

    async def describe(self, spec: SandboxSpec) -> SandboxUsed:
        """Return the image's name and id. Raises as `prepare` does."""
        image = await self._daemon.call(self._find_images, spec)
        return SandboxUsed(kind=spec.kind, image=image.name, image_id=image.image_id)

    def expect(self, spec: SandboxSpec, runs: int) -> None:
        """Create containers for later runs. Raises SandboxError if there is no space for their workspaces."""
        if spec.compose is not None:  # services belong to one run, and are expensive
            return
        ready = self._ready.setdefault(spec, deque())
        while len(ready) < min(runs, _MOST_READY):
            workspace = self._workspaces.create("container")
            ready.append((workspace, self._daemon.submit(self._make, spec, workspace)))

    def workspace(self, spec: SandboxSpec) -> Workspace | None:
        """Return the workspace of a container that was created ahead for the spec, or None."""
        try:
            workspace, making = self._ready[spec].popleft()
        except (KeyError, IndexError):  # caught and not checked before, because several threads may take the last one
            return None
        self._handed_out[workspace.path] = making
        return workspace

    async def start(self, request: SandboxRequest) -> ContainerSandbox:
        """Return the container that was made with the workspace, or a new one if the run's own sandbox uses that.

        Raises SandboxError, UnavailableError.
        """
        spec, workspace = request.spec, request.workspace
        made = None if request.is_beside else self._handed_out.pop(workspace.path, None)
        making = made or self._daemon.submit(self._make, spec, workspace)
        try:
            container = await asyncio.wrap_future(making)
        except asyncio.CancelledError:  # the thread cannot be cancelled and creates it anyway
            making.add_done_callback(_remove_unused)
            raise
        return ContainerSandbox(container, workspace, spec.limits, self._watchdog)

    def release(self, workspace: Workspace) -> None:
        """Report that the run of this workspace has ended. It may have started no container."""
        making = self._handed_out.pop(workspace.path, None)
        if making is not None:
            making.add_done_callback(_remove_unused)

    async def close(self) -> None:
        """Remove all remaining containers."""
        removals = self._refuse_more()
        if self._daemon.is_used:
            await asyncio.gather(*(self._daemon.call(remove) for remove in removals))
            await self._daemon.call(self._end)

    def _find_images(self, spec: SandboxSpec) -> Image:
        """Return the image of a container. Pull or build the images of its services, too."""
        if (spec.image is None or spec.compose is not None) and self._daemon.is_podman:
            podman.refuse_builds(self._daemon.program)
        if spec.compose is not None:
            service_images(self._images, spec)
        return self._images.get(spec.image, spec.dockerfile, build_network=spec.build_network, limits=spec.limits)

    def _make(self, sandbox: SandboxSpec, workspace: Workspace) -> Container:
        """Create and return a running container. Raises SandboxError if the session ends in the meantime."""
        is_first = self._begin_making()
        spec = ContainerSpec(f"agentbench-{secrets.token_hex(8)}", sandbox, workspace, run_labels(workspace))
        remove = partial(self._remove, spec)
        try:
            if is_first:  # here and not at the session's start, because a session without containers needs no daemon
                remove_orphans(self._daemon)
            image = self._find_images(sandbox)
            try:
                container = self._start(spec, image, remove)
                with self._state:
                    if self._closed.is_set():  # closed in the meantime, and `close` did not see this container
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
        """Start the services and the container. After an exception, all created objects have its labels or name."""
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
        """Count a container that is being created. Return whether it is the session's first."""
        with self._state:
            if self._closed.is_set():
                raise SandboxError("the session ended")
            is_first, self._is_used = not self._is_used, True
            self._making += 1
        if is_first:
            atexit.register(self._close_late)
        return is_first

    def _remove(self, spec: ContainerSpec) -> None:
        """Remove a container and its services. Never raises: the rest is removed as orphans later."""
        if (bounds := self._bounds.pop(spec.name, None)) is not None:
            bounds.end()
        try:
            _remove_one(self._daemon.client.api.remove_container, spec.name, v=True, force=True)
            if spec.sandbox.compose is not None:
                _remove_all(self._daemon, spec.labels, list)
        except Exception as error:  # noqa: BLE001 - the daemon may be gone, which the next call reports
            _logger.warning("%s: could not remove a run's container: %s", self._daemon.program, error)
        with self._state:
            self._made.pop(spec.name, None)

    def _close_late(self) -> None:
        """Close at the end of a process that did not call `close`. No thread can be started any more."""
        for remove in self._refuse_more():
            remove()
        self._end()

    def _refuse_more(self) -> list[Callable[[], None]]:
        """Refuse new containers from now on. Return functions that remove the existing ones."""
        atexit.unregister(self._close_late)
        with self._state:
            self._closed.set()
            return list(self._made.values())

    def _end(self) -> None:
        """Wait for containers that are being created, which remove themselves, and close the daemon."""
        with self._state:
            self._state.wait_for(lambda: not self._making, _CLOSE_SECONDS)
        self._daemon.close()


def remove_orphans(daemon: Daemon) -> None:
    """Remove the objects of dead sessions of this user on this machine. Other users' sessions may be alive."""
    _remove_all(daemon, {HOST: host_mark()}, _of_dead)


def _remove_all(
    daemon: Daemon, labels: Mapping[str, str], chosen: Callable[[Iterable[Any]], list[dict[str, Any]]]
) -> None:
    """Remove the containers, networks and volumes with the labels that `chosen` selects."""
    api = daemon.client.api
    filters = {"label": [f"{name}={value}" for name, value in labels.items()]}
    for container in chosen(api.containers(all=True, filters=filters)):
        _remove_one(api.remove_container, container["Id"], v=True, force=True)
    for network in chosen(api.networks(filters=filters)):
        _remove_one(api.remove_network, network["Id"])
    for volume in chosen(api.volumes(filters=filters)["Volumes"] or ()):
        _remove_one(api.remove_volume, volume["Name"])


def _of_dead(objects: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the objects whose session has ended, by the session's folder in their labels."""
    marked = ((item, (item["Labels"] or {}).get(SESSION)) for item in objects)
    return [item for item, folder in marked if folder and isabs(folder) and session_is_dead(folder)]


def _remove_one(function: Any, name: str, **options: Any) -> None:
    try:
        function(name, **options)
    except NotFound:
        return
    except APIError as error:
        if error.status_code == 409:  # another session, or the daemon itself, is removing it
            return
        _logger.warning("docker: could not remove %s: %s", name, error.explanation)
    except (DockerException, RequestException) as error:
        _logger.warning("docker: could not remove %s: %s", name, error)


def _remove_unused(making: Future[Container]) -> None:
    if not making.cancelled() and making.exception() is None:
        making.result().remove()
