"""Docker, by its SDK: containers that its daemon makes."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pytest_agentbench.workspaces.containers.base import Order
from pytest_agentbench.workspaces.containers.images import Image
from pytest_agentbench.workspaces.containers.making import user_of
from pytest_agentbench.workspaces.docker.bounds import ServiceBounds
from pytest_agentbench.workspaces.docker.cell import DaemonCell
from pytest_agentbench.workspaces.docker.compose import Project, service_images, start_services
from pytest_agentbench.workspaces.docker.container import create_container
from pytest_agentbench.workspaces.docker.daemon import Daemon
from pytest_agentbench.workspaces.docker.images import Images
from pytest_agentbench.workspaces.docker.orphans import remove_container, remove_labelled, remove_orphans
from pytest_agentbench.workspaces.sandboxes.base import SandboxSpec


class DaemonEngine:
    """The docker daemon, for one session."""

    def __init__(self) -> None:
        self.calls = Daemon()
        self._images = Images(self.calls)
        self._bounds: dict[str, ServiceBounds] = {}

    def image(self, spec: SandboxSpec) -> Image:
        """As the protocol says."""
        if spec.compose is not None:
            service_images(self._images, spec)
        return self._image(spec)

    def make(self, order: Order, remove: Callable[[], None], ended: threading.Event) -> DaemonCell:
        """As the protocol says."""
        project = _project(order)
        bounds = None
        if project is not None:
            bounds = self._bounds[order.name] = ServiceBounds(self.calls, order.spec.limits, project.labels)
            bounds.begin()
            start_services(self.calls, self._images, order.spec, project, bounds, ended)
        container_id = create_container(
            self.calls,
            order.name,
            self._image(order.spec),
            order.spec,
            order.workspace,
            network=project.network if project is not None else "bridge" if order.spec.network else "none",
            labels=order.labels,
        )
        self.calls.client.api.start(container_id)
        return DaemonCell(self.calls, container_id, user_of(order.workspace), remove, bounds)

    def remove(self, order: Order) -> None:
        """As the protocol says."""
        if (bounds := self._bounds.pop(order.name, None)) is not None:
            bounds.end()
        remove_container(self.calls.client, order.name)
        if order.spec.compose is not None:
            remove_labelled(self.calls.client, order.labels)

    def remove_orphans(self) -> None:
        """As the protocol says."""
        remove_orphans(self.calls.client)

    def _image(self, spec: SandboxSpec) -> Image:
        return self._images.get(spec.image, spec.dockerfile, build_network=spec.build_network, limits=spec.limits)


def _project(order: Order) -> Project | None:
    return None if order.spec.compose is None else Project(order.name, order.labels)
