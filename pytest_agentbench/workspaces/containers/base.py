"""The seam for container engines: what makes the containers of a session, and what a sandbox needs of each."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from pytest_agentbench.workspaces.containers.calls import Calls
from pytest_agentbench.workspaces.containers.images import Image
from pytest_agentbench.workspaces.sandboxes.base import SandboxSpec
from pytest_agentbench.workspaces.workspace import Workspace

STDOUT = 1
"""The command's stream in a frame; 2 is stderr."""


class Stream(Protocol):
    """A script that was started in a container: what it writes to stdout and stderr, and its stdin."""

    async def read(self) -> tuple[int, bytes]:
        """The next piece and the stream it is of, 1 or 2; no bytes at the end."""
        ...

    def pieces(self) -> AsyncIterator[tuple[int, bytes]]:
        """All that comes, to the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Send to its stdin. Raises OSError where it no longer reads."""
        ...

    async def finish(self, data: bytes) -> None:
        """Send to its stdin, and end that. A script that does not read it is none of the caller's business."""
        ...

    async def close(self) -> None:
        """End the connection to it, with what was not sent. The script may go on."""
        ...


class Cell(Protocol):
    """A container that runs. `starts` counts how often it was started again."""

    starts: int

    def processes(self) -> list[int]:
        """The pids on this machine of all that runs in it; none where this process cannot see them. For threads."""
        ...

    async def run(
        self, script: str, argv: Sequence[str], environment: Mapping[str, str], *, with_stdin: bool = False
    ) -> Stream:
        """Start a script of the container's shell. A dead container is started again.

        Raises SandboxError where that cannot be.
        """
        ...

    async def kill(self) -> None:
        """Kill all that runs in it. Never raises: one that is dead or gone is found out at the next start."""
        ...

    def kill_soon(self) -> None:
        """The same, for any thread, without waiting."""
        ...

    def remove(self) -> Future[None]:
        """Remove it, and what was made beside it, without waiting; for any thread. The future has no exception."""
        ...


@dataclass(frozen=True, slots=True)
class Order:
    """A container to be made. `labels` are on all that is made for it."""

    name: str
    spec: SandboxSpec
    workspace: Workspace
    labels: Mapping[str, str]


class Engine(Protocol):
    """What makes containers. Its methods wait, for minutes where an image is made, and are called by `calls`."""

    @property
    def calls(self) -> Calls:
        """The threads that wait for it."""
        ...

    def image(self, spec: SandboxSpec) -> Image:
        """The image of such a container, on this machine, with those of its services there too.

        Raises UnavailableError, SandboxError, ConfigError.
        """
        ...

    def make(self, order: Order, remove: Callable[[], None], ended: threading.Event) -> Cell:
        """A container that runs; its cell removes it by `remove`. Gives up where `ended` is set meanwhile.

        Raises UnavailableError, SandboxError, ConfigError. What was made by then is removed by its labels and name.
        """
        ...

    def remove(self, order: Order) -> None:
        """Removes the container, and all that was made beside it. Never raises: what stays is an orphan."""
        ...

    def remove_orphans(self) -> None:
        """Removes what dead sessions of this user on this machine left. Nothing of others: their sessions may live."""
        ...
