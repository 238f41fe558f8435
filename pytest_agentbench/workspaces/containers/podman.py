"""Podman's API where it differs from docker's, with which it is compatible but for this table.

| of a container | docker | podman |
|---|---|---|
| filter of system calls | the profile itself | the path of a file with it, for which it takes all text |
| first process | its init, with `sleep` | a shell: an init of its own may not be installed |
| its users, for an ordinary user | the machine's | `keep-id`: that user's id is the same inside |
| who keeps it alive | a user of its own | the same; an ordinary user may have no second one, and keeps it |
| folders of this machine | `Mounts` | `Binds`, so no `:` in a path: `Mounts` become CSV, unquoted |
| /run and /var/tmp, read-only | as in the image | memory to write to, so they are mounted anew, read-only |
| limits of files and processes | the daemon's | named: its own may be higher than it has the right to set |
| SELinux | not told | `label=disable`: else it uses no file or socket of this session |

Cases' Dockerfiles and compose files are refused: what a build or a service takes is bounded by events, updates of
containers that run and volumes of a size, and podman's API has not all of them.

What it does not know in a request, its API leaves out without a word. So every container is looked at once it is made,
before anything runs in it.
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
"""The container's first process. As such it cannot be killed from inside, and a shell buries what has no parent."""

_CLOSED = {"/run": "ro", "/var/tmp": "ro"}  # noqa: S108 - the container's; /tmp is the run's own
_COUNTED = ("Memory", "MemorySwap", "PidsLimit", "NanoCpus")
_STEP = 10**7
"""Nanoseconds of a second of processor time that podman may be off: it keeps a share of 100 ms, in microseconds."""
_MOST_FILES = 2**20
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")


def refuse_builds(program: str) -> NoReturn:
    """Raise UnavailableError: podman's API cannot bound what a case's build or services take."""
    raise UnavailableError(f"{program} runs images that are named; a dockerfile or compose needs docker")


def is_rootless(info: Mapping[str, Any]) -> bool:
    """Return whether the service is an ordinary user's, by what it says of itself."""
    return bool(info.get("Rootless"))


def host_config(
    config: Mapping[str, Any], mounts: Sequence[tuple[Mount, bool]], profile: Path | None, info: Mapping[str, Any]
) -> dict[str, Any]:
    """Return docker's host configuration of a container as podman has to be told it.

    `profile` is the file with the profile of system calls, `info` what the service says of itself, and `mounts` are the
    folders with whether they may be written. Raises SandboxError for a path that it cannot be told.
    """
    options = ["no-new-privileges", "label=disable", *([] if profile is None else [f"seccomp={profile}"])]
    told = dict(config)
    del told["Mounts"], told["Init"]
    told |= {
        "SecurityOpt": options,
        "Binds": [_bind(mount, writable=writable) for mount, writable in mounts],
        "Tmpfs": _CLOSED | (config.get("Tmpfs") or {}),
        "Ulimits": [*(config.get("Ulimits") or ()), *own_limits()],
    }
    return told | ({"UsernsMode": "keep-id"} if is_rootless(info) else {})


def own_limits() -> list[dict[str, Any]]:
    """Return the limits of open files and of processes, as high as podman's service may set them.

    It lowers its own to the highest pid first. Without CAP_SYS_RESOURCE none can be above those that it has then, and
    no container starts with podman's own choice of them.
    """
    highest_pid = int(Path("/proc/sys/kernel/pid_max").read_text(encoding="ascii"))
    wanted = {"nofile": (resource.RLIMIT_NOFILE, _MOST_FILES), "nproc": (resource.RLIMIT_NPROC, highest_pid)}
    given = {name: (resource.getrlimit(limit)[1], most) for name, (limit, most) in wanted.items()}
    highest = {name: most if own == resource.RLIM_INFINITY else min(own, most) for name, (own, most) in given.items()}
    return [{"Name": name, "Soft": most, "Hard": most} for name, most in highest.items()]


def check_made(made: Mapping[str, Any], told: Mapping[str, Any], user: str, info: Mapping[str, Any]) -> None:
    """Raise SandboxError where a container that was made is not what was told. `made` is what podman says of it."""
    if made["Config"].get("User") != user:
        raise _make_mismatch_error("User", made["Config"].get("User"), user)
    host = made["HostConfig"]
    # with cgroups of version 1 the kernel lets no ordinary user set them: the watchdog alone counts
    counted = () if is_rootless(info) and info.get("CgroupVersion") == "1" else _COUNTED
    for name in counted:
        if abs((host.get(name) or 0) - told[name]) > (_STEP if name == "NanoCpus" else 0):
            raise _make_mismatch_error(name, host.get(name), told[name])
    for name in ("ReadonlyRootfs", "NetworkMode"):
        if host.get(name) != told[name]:
            raise _make_mismatch_error(name, host.get(name), told[name])
    if missing := {*told["SecurityOpt"]} - {*(host.get("SecurityOpt") or ())}:
        raise _make_mismatch_error("SecurityOpt", host.get("SecurityOpt"), sorted(missing))
    in_memory = host.get("Tmpfs") or {}
    for path, options in told["Tmpfs"].items():
        if path not in in_memory or not {*options.split(",")} - {""} <= {*in_memory[path].split(",")}:
            raise _make_mismatch_error(f"Tmpfs of {path}", in_memory.get(path), options)
    for name in ("Privileged", "CapAdd"):
        if host.get(name):
            raise _make_mismatch_error(name, host[name], None)
    if volumes := [each["Destination"] for each in made.get("Mounts") or () if each["Type"] == "volume"]:
        raise _make_mismatch_error("Mounts", volumes, "no volume, which would have no limit")
    for variable in made["Config"].get("Env") or ():
        name, _, value = variable.partition("=")
        if name.lower() in _PROXIES and value and value == os.environ.get(name):  # its address may hold a password
            raise _make_mismatch_error(f"Env {name}", "this user's proxy", None)


def _make_mismatch_error(name: str, found: object, expected: object) -> SandboxError:
    return SandboxError(
        f"podman made a container otherwise than it was told to, so nothing was run in it: {name}: found {found!r}, "
        f"expected {expected!r}; a newer podman may do better, docker does"
    )


def _bind(mount: Mount, *, writable: bool) -> str:
    if ":" in f"{mount.source}{mount.target}":
        raise SandboxError(f"podman takes no folder with a colon in its path: found {mount.source} for {mount.target}")
    if not mount.source.exists():  # it would make a folder there
        raise SandboxError(f"podman: {mount.source}: no such file or directory")
    return f"{mount.source}:{mount.target}:{'rw' if writable else 'ro'}"
