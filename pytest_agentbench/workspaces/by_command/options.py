"""How a container engine's program is told to make the container of a run: the same as docker by its SDK."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from pathlib import Path

from pytest_agentbench.workspaces.containers.base import Order
from pytest_agentbench.workspaces.containers.images import Image
from pytest_agentbench.workspaces.containers.making import (
    KEEPING,
    OWN_PROCESSES,
    in_memory,
    keeper_of,
    mounts_of,
    user_of,
)
from pytest_agentbench.workspaces.sandboxes.base import Mount, ResourceLimits
from pytest_agentbench.workspaces.sandboxes.seccomp import write_seccomp_profile
from pytest_agentbench.workspaces.workspace import WORKSPACE

_KEEP = f"while :; do sleep {KEEPING}; done"
"""The container's first process. As such it cannot be killed from inside, and a shell buries what has no parent."""


def run_arguments(order: Order, image: Image, *, is_podman: bool) -> list[str]:
    """The arguments that start a container which waits for commands."""
    given = [
        "run",
        *("--detach", "--name", order.name, "--pull", "never"),
        *("--user", _first_user(order), "--workdir", WORKSPACE),
        *("--network", "bridge" if order.spec.network else "none"),
        *_isolation(),
        *_filter(order.workspace.path.parent),
        *(_of_podman() if is_podman else ()),
        *(() if is_podman or order.spec.network else _no_proxies()),
        *_limits(order.spec.limits),
    ]
    for name, value in order.labels.items():
        given += ["--label", f"{name}={value}"]
    for name, value in (("HOME", WORKSPACE), ("LANG", "C.UTF-8"), ("TERM", "dumb")):
        given += ["--env", f"{name}={value}"]
    for mount, writable in mounts_of(order.workspace, order.spec.mounts):
        given += ["--mount", _mount(mount, writable=writable)]
    for path in in_memory(image, order.spec):
        given += ["--tmpfs", path]
    return [*given, "--entrypoint", "sh", image.name, "-c", _KEEP]


def _first_user(order: Order) -> str:
    """An ordinary user may have no second one to give."""
    return keeper_of(order.workspace) if os.getuid() == 0 else user_of(order.workspace)


def _isolation() -> tuple[str, ...]:
    return (
        *("--log-driver", "none"),
        *("--cap-drop", "ALL"),
        *("--security-opt", "no-new-privileges"),
        *("--security-opt", "label=disable"),  # with SELinux no container could use this session's files and sockets
        "--read-only",
        *("--ipc", "private"),
        "--no-healthcheck",
        *("--stop-signal", "SIGKILL"),
    )


def _filter(folder: Path) -> tuple[str, ...]:
    file = write_seccomp_profile(folder)
    return () if file is None else ("--security-opt", f"seccomp={file}")


def _of_podman() -> tuple[str, ...]:
    """What docker does by itself."""
    users = () if os.getuid() == 0 else ("--userns", "keep-id")
    return (*users, "--read-only-tmpfs=false", "--http-proxy=false", "--env-host=false")


def _no_proxies() -> Iterator[str]:
    """Docker's own program gives containers this user's proxies, whose addresses may hold a password."""
    for name in ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"):
        yield from ("--env", f"{name}=", "--env", f"{name.upper()}=")


def _limits(limits: ResourceLimits) -> list[str]:
    ulimits = {"core": 0, "cpu": limits.cpu_seconds, "fsize": limits.file_bytes}
    return [
        *("--memory", str(limits.memory_bytes), "--memory-swap", str(limits.memory_bytes)),  # the sum: no swap
        *("--cpus", f"{min(limits.cpus, os.cpu_count() or 1):g}"),
        *("--pids-limit", str(limits.processes + OWN_PROCESSES)),
        *(text for name, most in ulimits.items() for text in ("--ulimit", f"{name}={most}:{most}")),
    ]


def _mount(mount: Mount, *, writable: bool) -> str:
    """It is read as a line of CSV, so a comma in a path is quoted."""
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}", *([] if writable else ["readonly"])]
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()
