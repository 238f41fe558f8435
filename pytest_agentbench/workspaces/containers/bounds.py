"""Limits that the daemon does not hold by itself: of the containers of a build, and of what services write.

It takes no limit of processes for a build, and most storage drivers take none of bytes. So containers are looked at
from here, by a thread for each build and for the services of each run, and killed where they took too much.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.containers.daemon import Daemon
from pytest_agentbench.workspaces.sandboxes.base import ResourceLimits
from pytest_agentbench.workspaces.sandboxes.watchdog import nameless_files

SERVICE = "pytest-agentbench.service"
"""The label of a container that a compose file's service has: its name there."""

_LOOK_SECONDS = 0.05
_SHARE_OF_TIME = 3
_NOWHERE = "0.0.0.0"  # noqa: S104 - nothing listens there: it is what a name leads to
_ALIVE = ["created", "running"]
_logger = logging.getLogger(__name__)


def pids_file(pid: int, container_id: str) -> Path | None:
    """Return what lists the pids of a container, one of which is given; None where this process cannot see them."""
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii")
    except OSError:
        return None
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in ("pids", "") and container_id in path:  # v2 has one line, without a controller
            file = Path("/sys/fs/cgroup", controllers, path.lstrip("/"), "cgroup.procs")
            return file if file.exists() else None
    return None


class Bounds(ABC):
    """Look after containers from `begin` to `end`. `broken` says which limit was broken first."""

    def __init__(self, daemon: Daemon, limits: ResourceLimits) -> None:
        self._daemon, self._limits = daemon, limits
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="agentbench-bounds", daemon=True)
        self.broken: str | None = None

    def begin(self) -> None:
        """Look from now on."""
        self._thread.start()

    def end(self) -> None:
        """Look no longer. May be called twice."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        pause = 0.0
        while not self._over.wait(pause):
            began = time.monotonic()
            try:
                self._look()
            except Exception as error:  # noqa: BLE001 - a container may end while it is asked for
                _logger.debug("docker: containers could not be looked after: %s", error)
            # The busier the daemon, the longer a look: no more than a quarter of the time goes into looks.
            pause = max(_LOOK_SECONDS, _SHARE_OF_TIME * (time.monotonic() - began))

    @abstractmethod
    def _look(self) -> None:
        """Kill what took too much. What it raises is tried again at the next look."""

    def _listed(self, **filters: Any) -> list[dict[str, Any]]:
        """Return containers that live, with the bytes that each has written to its own file system."""
        return list(self._daemon.client.api.containers(all=True, size=True, filters={"status": _ALIVE, **filters}))

    def _break(self, why: str, *containers: str) -> None:
        self.broken = self.broken or why
        for container in containers:
            self._daemon.client.api.kill(container)

    @property
    def _megabytes(self) -> str:
        return f"more than {self._limits.workspace_bytes >> 20} MB (workspace_mb)"


class BuildBounds(Bounds):
    """Bound one build: what its layers hold together with what its command is writing, and each command's processes.

    `extra_hosts` is to be given to the build: by that name, which nobody else has, the container of a RUN is found
    before it starts, as a rule, and gets the limit of processes that the builder does not take.
    """

    def __init__(self, daemon: Daemon, limits: ResourceLimits) -> None:
        super().__init__(daemon, limits)
        self._mark = f"agentbench-build-{secrets.token_hex(8)}"
        self._written: dict[str, int] = {}
        self._layers: dict[str, int] = {}
        self._made: Any = None

    @property
    def extra_hosts(self) -> dict[str, str]:
        """Return a name that only the containers of this build know."""
        return {self._mark: _NOWHERE}

    def begin(self) -> None:
        """Look from now on. Returns once nothing that is made escapes it."""
        made = {"type": "container", "event": "create"}
        self._made = self._daemon.client.api.events(filters=made, decode=True)
        threading.Thread(target=self._follow_events, name="agentbench-bounds", daemon=True).start()
        super().begin()

    def end(self) -> None:
        """Look no longer, at what is made neither."""
        self._made.close()
        super().end()

    def count(self, layer: str) -> bool:
        """Count a layer that was made, by what it has more than the one below. Return whether there is room."""
        images = self._daemon.client.images
        with suppress(Exception):  # a command's own words
            about = images.get(layer).attrs
            below = images.get(about["Parent"]).attrs["Size"] if about.get("Parent") else about["Size"]
            self._layers[about["Id"]] = about["Size"] - below
        if sum(self._layers.values()) > self._limits.workspace_bytes:
            self._break(f"its layers hold {self._megabytes}")
        return self.broken is None

    def _follow_events(self) -> None:
        with suppress(Exception):  # the end of the stream is that of a connection which was cut
            for event in self._made:
                with suppress(Exception):  # another's, which may be gone already
                    self._limit_processes(event["id"])

    def _limit_processes(self, container: str) -> None:
        """Give a container of this build the limit of processes, which the SDK's `update_container` does not know."""
        api, most = self._daemon.client.api, self._limits.processes
        hosts = api.inspect_container(container)["HostConfig"].get("ExtraHosts") or ()
        if not any(host.startswith(f"{self._mark}:") for host in hosts):
            return
        url = f"{api.base_url}/v{api.api_version}/containers/{container}/update"
        api.post(url, json={"PidsLimit": most}).raise_for_status()
        self._written[container] = 0  # from now on its bytes are looked at
        if len(api.top(container)["Processes"]) > most:  # it was faster, where it runs already
            self._break(f"a command started more than {most} processes (processes)", container)

    def _look(self) -> None:
        for container in tuple(self._written):
            alive = self._listed(id=container)
            if not alive:  # what it wrote is a layer now, and counted as one
                del self._written[container]
            for found in alive:
                self._written[container] = found.get("SizeRw") or 0
                if sum((*self._written.values(), *self._layers.values())) > self._limits.workspace_bytes:
                    self._break(f"a command wrote {self._megabytes}", container)


class ServiceBounds(Bounds):
    """Bound the services of one run, each: what it wrote outside of volumes, which have limits of their own.

    Files that it deleted and holds open are counted where this process may look into it. All containers with the
    labels are killed together: the run has no use without its services.
    """

    def __init__(self, daemon: Daemon, limits: ResourceLimits, labels: Mapping[str, str]) -> None:
        super().__init__(daemon, limits)
        self._labels = [f"{name}={value}" for name, value in labels.items()]
        self._pids: dict[str, Path | None] = {}

    def check(self) -> None:
        """Raise SandboxError where a service took too much."""
        if self.broken is not None:
            raise SandboxError(f"compose: {self.broken}, the limit of the run profile's sandbox")

    def _look(self) -> None:
        for found in self._listed(label=[*self._labels, SERVICE]):
            written = (found.get("SizeRw") or 0) + self._deleted_bytes(found["Id"])
            if written > self._limits.workspace_bytes:
                everything = self._daemon.client.api.containers(filters={"label": self._labels})
                why = f"the service {found['Labels'][SERVICE]!r} wrote {self._megabytes}"
                self._break(why, *(each["Id"] for each in everything))

    def _deleted_bytes(self, container: str) -> int:
        """Return what deleted files hold that are open: no listing of the daemon counts them."""
        if self._pids.get(container) is None:
            state = self._daemon.client.api.inspect_container(container)["State"]
            self._pids[container] = pids_file(state["Pid"], container) if state["Running"] else None
        listed = self._pids[container]
        pids = [] if listed is None or not listed.exists() else map(int, listed.read_text(encoding="ascii").split())
        return nameless_files(pids, device=-1).memory
