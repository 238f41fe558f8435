"""How the container of a run is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.containers.images import Image
from pytest_agentbench.workspaces.containers.making import KEEPING, OWN_PROCESSES, in_memory, keeper_of, mounts_of
from pytest_agentbench.workspaces.docker.daemon import Daemon
from pytest_agentbench.workspaces.sandboxes.base import ResourceLimits, SandboxSpec
from pytest_agentbench.workspaces.sandboxes.seccomp import seccomp_profile
from pytest_agentbench.workspaces.workspace import WORKSPACE, Workspace

NO_RESOLVER = ("127.0.0.1",)
"""Beside services: all other names end inside. Docker before 26 asks this machine's resolver for them, which leaks."""

_NO_SOURCE = "bind source path does not exist"


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


def _isolation() -> dict[str, Any]:
    from docker.types import LogConfig

    return {
        "log_config": LogConfig(type="none"),
        "cap_drop": ["ALL"],
        "security_opt": security_options(),
        "read_only": True,
        "ipc_mode": "private",
    }


def security_options() -> list[str]:
    """No new rights, and the profile of system calls; the daemon's own holds on machines for which there is none."""
    profile = seccomp_profile()
    return ["no-new-privileges", *([] if profile is None else [f"seccomp={profile}"])]


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
