"""Differences of podman's API from docker's. Otherwise the two are compatible.

| of a container | docker | podman |
|---|---|---|
| filter of system calls | the profile itself | the path of a file: podman takes any text for a path |
| first process | docker's init, with `sleep` | a shell, because an init program may not be installed |
| users, for an ordinary user | the machine's | `keep-id`: that user's id is the same inside |
| user of the first process | a separate user | the same; an ordinary user may have no second id and uses its own |
| folders of this machine | `Mounts` | `Binds`, so no `:` in a path: `Mounts` become CSV, unquoted |
| /run and /var/tmp, read-only | as in the image | writable memory by default, so they are mounted read-only |
| limits of files and processes | the daemon's | explicit: podman's default may exceed its own rights |
| SELinux | no option | `label=disable`: otherwise it can use no file or socket of this session |

Cases' Dockerfiles and compose files are refused. Their bounds need events, updates of running containers and volumes of
a size, and podman's API lacks some of them.

Podman's API silently ignores unknown fields of a request. So every container is compared with its request before
anything runs in it.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from pytest_agentbench.errors import SandboxError, UnavailableError
from pytest_agentbench.workspaces.containers.commands import KEEP_ALIVE_SECONDS
from pytest_agentbench.workspaces.sandboxes.base import Mount

KEEP_ALIVE = f"while :; do sleep {KEEP_ALIVE_SECONDS}; done"
"""The container's first process. Processes in the container cannot kill it, and a shell reaps orphans."""

_CLOSED = {"/run": "ro", "/var/tmp": "ro"}  # noqa: S108 - in the container; /tmp is the run's private folder
_COUNTED = ("Memory", "MemorySwap", "PidsLimit", "NanoCpus")
_STEP = 10**7
"""Tolerance for processor time, in nanoseconds per second: podman stores a share of 100 ms, in microseconds."""
_MOST_FILES = 2**20
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")


def refuse_builds(program: str) -> NoReturn:
    """Raise UnavailableError: podman's API cannot bound a case's build or services."""
    raise UnavailableError(f"{program} runs images that are named; a dockerfile or compose needs docker")


def is_rootless(info: Mapping[str, Any]) -> bool:
    """Return whether an ordinary user runs the service, by the service's own information."""
    return bool(info.get("Rootless"))


def host_config(
    config: Mapping[str, Any], mounts: Sequence[tuple[Mount, bool]], profile: Path | None, info: Mapping[str, Any]
) -> dict[str, Any]:
    """Return podman's form of docker's host configuration of a container.

    `profile` is the file with the profile of system calls, `info` the service's information, and `mounts` are the
    folders with whether they are writable. Raises SandboxError for a path that podman cannot mount.
    """
    options = ["no-new-privileges", "label=disable", *([] if profile is None else [f"seccomp={profile}"])]
    request = dict(config)
    del request["Mounts"], request["Init"]
    request |= {
        "SecurityOpt": options,
        "Binds": [_bind(mount, writable=writable) for mount, writable in mounts],
        "Tmpfs": _CLOSED | (config.get("Tmpfs") or {}),
        "Ulimits": [*(config.get("Ulimits") or ()), *own_limits()],
    }
    return request | ({"UsernsMode": "keep-id"} if is_rootless(info) else {})


def own_limits() -> list[dict[str, Any]]:
    """Return the limits of open files and processes, as high as podman's service may set them.

    The service first lowers its own limit of processes to the highest pid. Without CAP_SYS_RESOURCE it cannot exceed
    its own limits, and a container with podman's default limits does not start.
    """
    highest_pid = int(Path("/proc/sys/kernel/pid_max").read_text(encoding="ascii"))
    most = {"nofile": (resource.RLIMIT_NOFILE, _MOST_FILES), "nproc": (resource.RLIMIT_NPROC, highest_pid)}
    limits = []
    for name, (limit, highest) in most.items():
        own = resource.getrlimit(limit)[1]
        value = highest if own == resource.RLIM_INFINITY else min(own, highest)
        limits.append({"Name": name, "Soft": value, "Hard": value})
    return limits


def check_made(container: Mapping[str, Any], request: Mapping[str, Any], user: str, info: Mapping[str, Any]) -> None:
    """Raise SandboxError if a new container differs from its request. `made` is podman's description of it."""
    if container["Config"].get("User") != user:
        raise _make_mismatch_error("User", container["Config"].get("User"), user)
    host = container["HostConfig"]
    # With cgroups v1 an ordinary user cannot set these limits, so only the watchdog enforces them
    counted = () if is_rootless(info) and info.get("CgroupVersion") == "1" else _COUNTED
    for name in counted:
        if abs((host.get(name) or 0) - request[name]) > (_STEP if name == "NanoCpus" else 0):
            raise _make_mismatch_error(name, host.get(name), request[name])
    for name in ("ReadonlyRootfs", "NetworkMode"):
        if host.get(name) != request[name]:
            raise _make_mismatch_error(name, host.get(name), request[name])
    if missing := {*request["SecurityOpt"]} - {*(host.get("SecurityOpt") or ())}:
        raise _make_mismatch_error("SecurityOpt", host.get("SecurityOpt"), sorted(missing))
    in_memory = host.get("Tmpfs") or {}
    for path, options in request["Tmpfs"].items():
        if path not in in_memory or not {*options.split(",")} - {""} <= {*in_memory[path].split(",")}:
            raise _make_mismatch_error(f"Tmpfs of {path}", in_memory.get(path), options)
    for name in ("Privileged", "CapAdd"):
        if host.get(name):
            raise _make_mismatch_error(name, host[name], None)
    if volumes := [mount["Destination"] for mount in container.get("Mounts") or () if mount["Type"] == "volume"]:
        raise _make_mismatch_error("Mounts", volumes, "no volume, which would have no limit")
    for variable in container["Config"].get("Env") or ():
        name, _, value = variable.partition("=")
        if name.lower() in _PROXIES and value and value == os.environ.get(name):  # its address may contain a password
            raise _make_mismatch_error(f"Env {name}", "this user's proxy", None)


def _make_mismatch_error(name: str, found: object, expected: object) -> SandboxError:
    return SandboxError(
        f"podman created a container with other settings than requested, so no command was run: {name}: found "
        f"{found!r}, expected {expected!r}; update podman or use docker"
    )


def _bind(mount: Mount, *, writable: bool) -> str:
    if ":" in f"{mount.source}{mount.target}":
        raise SandboxError(f"podman accepts no path with a colon: found {mount.source} for {mount.target}")
    if not mount.source.exists():  # podman would create a folder there
        raise SandboxError(f"podman: {mount.source}: no such file or directory")
    return f"{mount.source}:{mount.target}:{'rw' if writable else 'ro'}"
