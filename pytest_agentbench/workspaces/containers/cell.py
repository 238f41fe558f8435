"""What cells have in common, whatever engine their container is of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from pytest_agentbench.errors import SandboxError

S = TypeVar("S")


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


async def started(start: Callable[[], Awaitable[S]], restart: Callable[[], Awaitable[None]]) -> S:
    """What `start` starts in a container, which is started again where it is dead.

    Raises SandboxError where that cannot be.
    """
    try:
        return await start()
    except SandboxError:
        await restart()
    try:
        return await start()
    except SandboxError as error:
        raise cannot_run(str(error)) from error


def cannot_run(why: str) -> SandboxError:
    """What to say of a container in which nothing can be started."""
    needed = "`sh` and `sleep`, for this machine's architecture"
    return SandboxError(f"the container runs no commands, for which its image needs {needed}: {why.strip()}")
