"""What the container of a run is made of, whatever engine makes it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from posixpath import normpath

from pytest_agentbench.workspaces.containers.images import Image
from pytest_agentbench.workspaces.sandboxes.base import Mount, SandboxSpec
from pytest_agentbench.workspaces.workspace import PRIVATE_TMP, WORKSPACE, Workspace

_KEEPERS = (65534, 65533)
"""Users of the process that keeps the container alive: the agent's, which is another, cannot signal it."""

KEEPING = 2147483647
"""Seconds that a container waits for commands. In the command of its first process, by which scripts know it."""

OWN_PROCESSES = 16
"""What the container's own processes and the start of a command take of the limit of processes."""

_TMP = "/tmp"  # noqa: S108 - the container's, which is the run's private one


def user_of(workspace: Workspace) -> str:
    """Whose rights a command in the container has: the workspace's owner's."""
    owner = workspace.owner
    return f"{os.getuid()}:{os.getgid()}" if owner is None else f"{owner}:{owner}"


def keeper_of(workspace: Workspace) -> str:
    """Whose rights the process has that keeps its container alive."""
    taken = user_of(workspace)
    return next(user for user in (f"{each}:{each}" for each in _KEEPERS) if user.split(":")[0] != taken.split(":")[0])


def mounts_of(workspace: Workspace, mounts: Iterable[Mount]) -> Iterator[tuple[Mount, bool]]:
    """The mounts of a container, and whether it may write there: the workspace, and those given."""
    private = workspace.private_tmp()
    yield Mount(workspace.path, WORKSPACE), True
    yield Mount(private, _TMP), True
    # where it lies too: a link put in its place would be followed, outside, when the container starts again
    yield Mount(private, f"{WORKSPACE}/{PRIVATE_TMP}"), True
    for mount in mounts:
        yield mount, False


def in_memory(image: Image, spec: SandboxSpec) -> list[str]:
    """Where the image wants volumes, which would have no limit: it gets memory there, but not over what is mounted."""
    mounted = {WORKSPACE, _TMP, *(mount.target for mount in spec.mounts)}
    return [path for path in image.volumes if normpath(path) not in mounted]
