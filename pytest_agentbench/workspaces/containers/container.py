"""One container of a run: what it is made of, how it is started, and what a sandbox does with it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from posixpath import normpath
from typing import Any

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.containers import podman
from pytest_agentbench.workspaces.containers.bounds import ServiceBounds, pids_file
from pytest_agentbench.workspaces.containers.commands import KEEP_ALIVE_SECONDS, ExecStream, start_exec
from pytest_agentbench.workspaces.containers.daemon import Daemon
from pytest_agentbench.workspaces.containers.images import Image
from pytest_agentbench.workspaces.sandboxes.base import Mount, ResourceLimits, SandboxSpec
from pytest_agentbench.workspaces.sandboxes.seccomp import seccomp_profile, write_seccomp_profile
from pytest_agentbench.workspaces.sessions import host_mark
from pytest_agentbench.workspaces.workspace import PRIVATE_TMP, WORKSPACE, Workspace

NO_RESOLVER = ("127.0.0.1",)
"""Beside services: all other names end inside. Docker before 26 asks this machine's resolver for them, which leaks."""

OWN_PROCESSES = 16
"""What the container's own processes and the start of a command take of the limit of processes."""

SESSION = "pytest-agentbench.session"
HOST = "pytest-agentbench.host"
RUN = "pytest-agentbench.run"
"""Labels of all that a session makes at the daemon, by which the next one knows what a dead one left there."""

_KEEPERS = (65534, 65533)
"""Users of the process that keeps the container alive: the agent's, which is another, cannot signal it."""

_NO_SOURCE = "bind source path does not exist"
_NO_SHELL = re.compile("executable file.* not found")
_TMP = "/tmp"  # noqa: S108 - the container's, which is the run's private one


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """A container to be made. `labels` are on all that is made for it."""

    name: str
    sandbox: SandboxSpec
    workspace: Workspace
    labels: Mapping[str, str]


def run_labels(workspace: Workspace) -> dict[str, str]:
    """Return the labels of what ends with a run. The session's folder among them tells whether it lives."""
    return {SESSION: str(workspace.path.parent), HOST: host_mark(), RUN: workspace.path.name}


def user_of(workspace: Workspace) -> str:
    """Return whose rights a command in the container has: the workspace's owner's."""
    owner = workspace.owner
    return f"{os.getuid()}:{os.getgid()}" if owner is None else f"{owner}:{owner}"


class Container:
    """A container that runs. `starts` counts how often it was started again.

    Scripts run as `user`; `remove` removes it, with what is beside it. `services` are the bounds of those that run
    beside it, None where there are none.
    """

    def __init__(
        self,
        daemon: Daemon,
        container_id: str,
        user: str,
        remove: Callable[[], None],
        services: ServiceBounds | None = None,
    ) -> None:
        self.starts = 0
        self._daemon, self._id, self._user, self._remove = daemon, container_id, user, remove
        self._services = services
        self._pids: Path | None = None
        self._found_pids_at = -1

    def processes(self) -> list[int]:
        """Return the pids on this machine of all that runs in it; none where this process cannot see them. For threads.

        They are read from the cgroup, which is looked up once a start: what is executed in a container does not descend
        from its first process.
        """
        if self._found_pids_at != self.starts:
            self._found_pids_at, self._pids = self.starts, self._find_pids()
        try:
            return [] if self._pids is None else list(map(int, self._pids.read_text(encoding="ascii").split()))
        except OSError:  # it is dead
            return []

    async def run(
        self, script: str, argv: Sequence[str], environment: Mapping[str, str], *, with_stdin: bool = False
    ) -> ExecStream:
        """Start a script of the container's shell. A dead container is started again.

        Raises SandboxError where that cannot be.
        """
        if self._services is not None:
            self._services.check()
        command = ["sh", "-c", script, "sh", *argv]
        # A command may have killed its container: to start the next one is the way to find out.
        try:
            return await self._start(command, environment, with_stdin)
        except SandboxError:
            await self._daemon.call(self._restart)
        try:
            return await self._start(command, environment, with_stdin)
        except SandboxError as error:
            raise cannot_run(str(error)) from error

    async def kill(self) -> None:
        """Kill all that runs in it. Never raises: one that is dead or gone is found out at the next start."""
        with suppress(SandboxError):
            await self._daemon.call(self._kill)

    def kill_soon(self) -> None:
        """Do the same, for any thread, without waiting."""
        self._daemon.submit(self._kill)

    def remove(self) -> Future[None]:
        """Remove it, and what was made beside it, without waiting; for any thread. The future has no exception."""
        return self._daemon.submit(self._remove)

    async def _start(self, command: list[str], environment: Mapping[str, str], with_stdin: bool) -> ExecStream:
        exec_id = await self._daemon.call(self._create_exec, command, environment, with_stdin)
        return await start_exec(self._daemon.socket_path, self._daemon.api_version, exec_id)

    def _create_exec(self, command: list[str], environment: Mapping[str, str], with_stdin: bool) -> str:
        api = self._daemon.client.api
        made = api.exec_create(self._id, command, stdin=with_stdin, user=self._user, environment=dict(environment))
        return str(made["Id"])

    def _kill(self) -> None:
        self._daemon.client.api.kill(self._id)

    def _restart(self) -> None:
        self._daemon.client.api.restart(self._id, timeout=0)
        self.starts += 1

    def _find_pids(self) -> Path | None:
        from docker.errors import APIError

        try:
            pid = self._daemon.client.api.inspect_container(self._id)["State"]["Pid"]
        except (APIError, OSError):
            return None
        return pids_file(pid, self._id)


def cannot_run(why: str) -> SandboxError:
    """Return what to say of a container in which nothing can be started."""
    needed = "`sh` and `sleep`, for this machine's architecture"
    return SandboxError(f"the container runs no commands, for which its image needs {needed}: {why.strip()}")


def start_container(daemon: Daemon, spec: ContainerSpec, image: Image, network: str) -> str:
    """Make a container that waits for commands, start it, and return its id.

    Raises SandboxError where the daemon cannot see the workspace, docker.errors.APIError for all else.
    """
    from docker.errors import APIError

    api, sandbox, user = daemon.client.api, spec.sandbox, _keeper_of(daemon, spec.workspace)
    host = _host_config(daemon, spec, image, network)
    try:
        made = api.create_container(
            image.image_id,
            ["-c", podman.KEEP_ALIVE] if daemon.is_podman else [str(KEEP_ALIVE_SECONDS)],
            entrypoint=["sh" if daemon.is_podman else "sleep"],
            name=spec.name,
            user=user,
            labels=dict(spec.labels),
            environment={"HOME": WORKSPACE, "LANG": "C.UTF-8", "TERM": "dumb"},
            working_dir=WORKSPACE,
            healthcheck={"test": ["NONE"]},  # the image's own would run beside the agent, within its limits
            stop_signal="SIGKILL",
            use_config_proxy=sandbox.network and not daemon.is_podman,  # its address may hold a password
            host_config=host,
        )
    except APIError as error:
        if _NO_SOURCE not in (error.explanation or ""):
            raise
        raise SandboxError(
            f"the docker daemon does not see this machine's folder {spec.workspace.path}: it runs elsewhere, or this "
            "process runs in a container; set TMPDIR to a folder that both have at the same path"
        ) from error
    container_id = str(made["Id"])
    if daemon.is_podman:
        podman.check_made(api.inspect_container(container_id), host, user, daemon.info)
    try:
        api.start(container_id)
    except APIError as error:
        if _NO_SHELL.search(why := error.explanation or ""):
            raise cannot_run(why) from error
        raise
    return container_id


def security_options() -> list[str]:
    """Return docker's options: no new rights, and our list of system calls, or its own where there is none."""
    profile = seccomp_profile()
    return ["no-new-privileges", *([] if profile is None else [f"seccomp={profile}"])]


def _host_config(daemon: Daemon, spec: ContainerSpec, image: Image, network: str) -> dict[str, Any]:
    from docker import types

    sandbox = spec.sandbox
    mounts = list(_mounts(spec.workspace, sandbox.mounts))
    config: dict[str, Any] = daemon.client.api.create_host_config(
        network_mode=network,
        dns=None if sandbox.network or sandbox.compose is None else list(NO_RESOLVER),
        log_config=types.LogConfig(type="none"),  # its first process writes nothing, and disk is not to be filled by it
        cap_drop=["ALL"],
        security_opt=security_options(),
        read_only=True,
        init=True,  # collects what daemons of the agent leave, which would count as processes
        ipc_mode="private",
        mounts=[types.Mount(m.target, str(m.source), type="bind", read_only=not writable) for m, writable in mounts],
        tmpfs=dict.fromkeys(_volumes_in_memory(image, sandbox), ""),
        **_limits(daemon, sandbox.limits),
    )
    if not daemon.is_podman:
        return config
    profile = write_seccomp_profile(spec.workspace.path.parent)
    return podman.host_config(config, mounts, profile, daemon.info)


def _limits(daemon: Daemon, limits: ResourceLimits) -> dict[str, Any]:
    from docker.types import Ulimit

    ulimits = {"core": 0, "cpu": limits.cpu_seconds, "fsize": limits.file_bytes}
    return {
        "mem_limit": limits.memory_bytes,
        "memswap_limit": limits.memory_bytes,  # the sum of both: no swap
        "nano_cpus": int(min(limits.cpus, daemon.info["NCPU"]) * 1e9),
        "pids_limit": limits.processes + OWN_PROCESSES,
        # Not `nproc`, which counts all processes of the user on this machine, those of other runs too.
        "ulimits": [Ulimit(name=name, soft=most, hard=most) for name, most in ulimits.items()],
    }


def _keeper_of(daemon: Daemon, workspace: Workspace) -> str:
    """Return whose rights the process has that keeps its container alive."""
    taken = user_of(workspace)
    if daemon.is_podman and podman.is_rootless(daemon.info):  # an ordinary user may have no second one to give
        return taken
    return next(user for user in (f"{each}:{each}" for each in _KEEPERS) if user.split(":")[0] != taken.split(":")[0])


def _mounts(workspace: Workspace, mounts: Sequence[Mount]) -> Iterator[tuple[Mount, bool]]:
    """Yield the mounts of a container, and whether it may write there: the workspace, and those given."""
    private = workspace.private_tmp()
    yield Mount(workspace.path, WORKSPACE), True
    yield Mount(private, _TMP), True
    # where it lies too: a link put in its place would be followed, outside, when the container starts again
    yield Mount(private, f"{WORKSPACE}/{PRIVATE_TMP}"), True
    for mount in mounts:
        yield mount, False


def _volumes_in_memory(image: Image, spec: SandboxSpec) -> list[str]:
    """Return where the image wants volumes, which would have no limit: it gets memory there, but not over mounts."""
    mounted = {WORKSPACE, _TMP, *(mount.target for mount in spec.mounts)}
    return [path for path in image.volumes if normpath(path) not in mounted]
