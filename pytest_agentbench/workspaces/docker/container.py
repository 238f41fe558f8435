"""How the container of a run is made."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from posixpath import normpath
from typing import Any

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.docker.daemon import Daemon
from pytest_agentbench.workspaces.docker.images import Image
from pytest_agentbench.workspaces.sandboxes.base import Mount, ResourceLimits, SandboxSpec
from pytest_agentbench.workspaces.workspace import PRIVATE_TMP, WORKSPACE, Workspace

_KEEPERS = (65534, 65533)
"""Users of the process that keeps the container alive: the agent's, which is another, cannot signal it."""

NO_RESOLVER = ("127.0.0.1",)
"""Beside services: all other names end inside. Docker before 26 asks this machine's resolver for them, which leaks."""

KEEPING = 2147483647
"""Seconds that a container waits for commands. In the command of its first process, by which scripts know it."""

OWN_PROCESSES = 16
"""What the container's own processes and the start of a command take of the limit of processes."""

_NO_SOURCE = "bind source path does not exist"
_TMP = "/tmp"  # noqa: S108 - the container's, which is the run's private one


def user_of(workspace: Workspace) -> str:
    """Whose rights a command in the container has: the workspace's owner's."""
    owner = workspace.owner
    return f"{os.getuid()}:{os.getgid()}" if owner is None else f"{owner}:{owner}"


def keeper_of(workspace: Workspace) -> str:
    """Whose rights the process has that keeps its container alive."""
    taken = user_of(workspace)
    return next(user for user in (f"{each}:{each}" for each in _KEEPERS) if user.split(":")[0] != taken.split(":")[0])


def create_container(
    daemon: Daemon,
    name: str,
    image: Image,
    spec: SandboxSpec,
    workspace: Workspace,
    *,
    network: str,
    labels: Mapping[str, str],
) -> str:
    """The id of a container that waits for commands, not started.

    Raises SandboxError where the daemon cannot see the workspace, docker.errors.APIError for all else.
    """
    from docker.errors import APIError

    api = daemon.client.api
    dns = None if spec.network or spec.compose is None else list(NO_RESOLVER)
    settings = {**_isolation(), **_limits(daemon, spec.limits), **_files(image, spec, workspace)}
    try:
        made = api.create_container(
            image.image_id,
            [str(KEEPING)],
            entrypoint=["sleep"],
            name=name,
            user=keeper_of(workspace),
            labels=dict(labels),
            environment={"HOME": WORKSPACE, "LANG": "C.UTF-8", "TERM": "dumb"},
            working_dir=WORKSPACE,
            healthcheck={"test": ["NONE"]},
            use_config_proxy=spec.network,  # its address may hold a password
            host_config=api.create_host_config(network_mode=network, dns=dns, init=True, **settings),
        )
    except APIError as error:
        if _NO_SOURCE not in (error.explanation or ""):
            raise
        raise SandboxError(
            f"the docker daemon does not see this machine's folder {workspace.path}: it runs elsewhere, or this "
            "process runs in a container; set TMPDIR to a folder that both have at the same path"
        ) from error
    return str(made["Id"])


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


def _isolation() -> dict[str, Any]:
    from docker.types import LogConfig

    return {
        "log_config": LogConfig(type="none"),
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "read_only": True,
        "ipc_mode": "private",
    }


def _limits(daemon: Daemon, limits: ResourceLimits) -> dict[str, Any]:
    from docker.types import Ulimit

    ulimits = {"core": 0, "cpu": limits.cpu_seconds, "fsize": limits.file_bytes}
    return {
        "mem_limit": limits.memory_bytes,
        "memswap_limit": limits.memory_bytes,  # the sum of both: no swap
        "nano_cpus": int(min(limits.cpus, daemon.cpus) * 1e9),
        "pids_limit": limits.processes + OWN_PROCESSES,
        "ulimits": [Ulimit(name=name, soft=most, hard=most) for name, most in ulimits.items()],
    }


def _files(image: Image, spec: SandboxSpec, workspace: Workspace) -> dict[str, Any]:
    from docker import types

    mounts = [
        types.Mount(each.target, str(each.source), type="bind", read_only=not writable)
        for each, writable in mounts_of(workspace, spec.mounts)
    ]
    return {"mounts": mounts, "tmpfs": dict.fromkeys(in_memory(image, spec), "")}
