"""Limits that the daemon does not enforce: processes and bytes of builds, and bytes that services write.

The daemon cannot limit the processes of a build, and most storage drivers cannot limit its bytes. A thread for each
build, and one for the services of each run, checks containers from here and kills those that exceed a limit.
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
_NOWHERE = "0.0.0.0"  # noqa: S104 - nothing listens there: it is the address of a name
_ALIVE = ["created", "running"]
_logger = logging.getLogger(__name__)


def pids_file(pid: int, container_id: str) -> Path | None:
    """Return the file that lists the pids of a container, or None if this process cannot see it. `pid` is one of
    them.
    """
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii")
    except OSError:
        return None
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in ("pids", "") and container_id in path:  # v2 has one line, without a controller
            file = Path("/sys/fs/cgroup", controllers, path.lstrip("/"), "cgroup.procs")
            if file.exists():
                return file
            return None
    return None


class Bounds(ABC):
    """Supervision of containers from `begin` to `end`, by a thread. `broken` is the first broken limit, as text."""

    def __init__(self, daemon: Daemon, limits: ResourceLimits) -> None:
        self._daemon, self._limits = daemon, limits
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="agentbench-bounds", daemon=True)
        self.broken: str | None = None

    def begin(self) -> None:
        """Start checking."""
        self._thread.start()

    def end(self) -> None:
        """Stop checking. May be called twice."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        pause = 0.0
        while not self._over.wait(pause):
            began = time.monotonic()
            try:
                self._look()
            except Exception as error:  # noqa: BLE001 - a container may end during the check
                _logger.debug("docker: containers could not be checked: %s", error)
            # A check takes longer on a busy daemon. Checks take at most a quarter of the time
            pause = max(_LOOK_SECONDS, _SHARE_OF_TIME * (time.monotonic() - began))

    @abstractmethod
    def _look(self) -> None:
        """Kill containers that exceed a limit. After an exception the next check tries again."""

    def _listed(self, **filters: Any) -> list[dict[str, Any]]:
        """Return running containers, with the bytes that each has written to its own file system."""
        return list(self._daemon.client.api.containers(all=True, size=True, filters={"status": _ALIVE, **filters}))

    def _break(self, why: str, *containers: str) -> None:
        self.broken = self.broken or why
        for container in containers:
            self._daemon.client.api.kill(container)

    @property
    def _megabytes(self) -> str:
        return f"more than {self._limits.workspace_bytes >> 20} MB (workspace_mb)"


class BuildBounds(Bounds):
    """Bounds of one build: the bytes of its layers and of the running command, and each command's processes.

    The build has to get `extra_hosts`. By that unique name the container of a RUN is found, usually before it starts.
    It then gets the limit of processes that the builder does not take.
    """

    def __init__(self, daemon: Daemon, limits: ResourceLimits) -> None:
        super().__init__(daemon, limits)
        self._mark = f"agentbench-build-{secrets.token_hex(8)}"
        self._written: dict[str, int] = {}
        self._layers: dict[str, int] = {}
        self._made: Any = None

    @property
    def extra_hosts(self) -> dict[str, str]:
        """Return a unique host name, which identifies the containers of this build."""
        return {self._mark: _NOWHERE}

    def begin(self) -> None:
        """Start following events and checking. Every container that is created after the return is seen."""
        filters = {"type": "container", "event": "create"}
        self._made = self._daemon.client.api.events(filters=filters, decode=True)
        threading.Thread(target=self._follow_events, name="agentbench-bounds", daemon=True).start()
        super().begin()

    def end(self) -> None:
        """Stop checking, and stop following events."""
        self._made.close()
        super().end()

    def count(self, layer: str) -> bool:
        """Count the bytes that a new layer adds. Return whether the limit still holds."""
        images = self._daemon.client.images
        with suppress(Exception):  # the line may be a command's output instead of a layer
            about = images.get(layer).attrs
            below = images.get(about["Parent"]).attrs["Size"] if about.get("Parent") else about["Size"]
            self._layers[about["Id"]] = about["Size"] - below
        if sum(self._layers.values()) > self._limits.workspace_bytes:
            self._break(f"its layers hold {self._megabytes}")
        return self.broken is None

    def _follow_events(self) -> None:
        with suppress(Exception):  # `end` cuts the connection, which ends the stream with an exception
            for event in self._made:
                with suppress(Exception):  # the container of another build, which may be gone already
                    self._limit_processes(event["id"])

    def _limit_processes(self, container: str) -> None:
        """Limit the processes of a container of this build. The SDK's `update_container` lacks that field."""
        api, most = self._daemon.client.api, self._limits.processes
        hosts = api.inspect_container(container)["HostConfig"].get("ExtraHosts") or ()
        if not any(host.startswith(f"{self._mark}:") for host in hosts):
            return
        url = f"{api.base_url}/v{api.api_version}/containers/{container}/update"
        api.post(url, json={"PidsLimit": most}).raise_for_status()
        self._written[container] = 0  # from now on its bytes are checked
        if len(api.top(container)["Processes"]) > most:  # it may have started before the limit was set
            self._break(f"a command started more than {most} processes (processes)", container)

    def _look(self) -> None:
        for container in tuple(self._written):
            alive = self._listed(id=container)
            if not alive:  # its bytes are a layer now, which `count` adds
                del self._written[container]
            for info in alive:
                self._written[container] = info.get("SizeRw") or 0
                if sum((*self._written.values(), *self._layers.values())) > self._limits.workspace_bytes:
                    self._break(f"a command wrote {self._megabytes}", container)


class ServiceBounds(Bounds):
    """Bounds of each service of one run: the bytes that it wrote outside of volumes, which have limits already.

    Deleted files that are still open count if this process may inspect the service. All containers with the labels are
    killed together, because the run cannot continue without its services.
    """

    def __init__(self, daemon: Daemon, limits: ResourceLimits, labels: Mapping[str, str]) -> None:
        super().__init__(daemon, limits)
        self._labels = [f"{name}={value}" for name, value in labels.items()]
        self._pids: dict[str, Path | None] = {}

    def check(self) -> None:
        """Raise SandboxError if a service has exceeded its limit."""
        if self.broken is not None:
            raise SandboxError(f"compose: {self.broken}, the limit of the run profile's sandbox")

    def _look(self) -> None:
        for service in self._listed(label=[*self._labels, SERVICE]):
            written = (service.get("SizeRw") or 0) + self._deleted_bytes(service["Id"])
            if written > self._limits.workspace_bytes:
                everything = self._daemon.client.api.containers(filters={"label": self._labels})
                why = f"the service {service['Labels'][SERVICE]!r} wrote {self._megabytes}"
                self._break(why, *(container["Id"] for container in everything))

    def _deleted_bytes(self, container: str) -> int:
        """Return the bytes of deleted files that are still open. The daemon's listings do not count them."""
        if self._pids.get(container) is None:
            state = self._daemon.client.api.inspect_container(container)["State"]
            self._pids[container] = pids_file(state["Pid"], container) if state["Running"] else None
        file = self._pids[container]
        if file is None or not file.exists():
            return 0
        return nameless_files(map(int, file.read_text(encoding="ascii").split()), device=-1).memory
