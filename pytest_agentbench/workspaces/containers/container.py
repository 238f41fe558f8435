"""One container of a run: its settings, its start, and the calls of its sandbox."""

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
"""Resolver of containers with services: unknown names fail inside. Docker before 26 would ask this machine's
resolver, which leaks data.
"""

OWN_PROCESSES = 16
"""Processes for the container's own programs and the start of a command, in addition to the limit."""

SESSION = "pytest-agentbench.session"
HOST = "pytest-agentbench.host"
RUN = "pytest-agentbench.run"
"""Labels of everything that a session creates at the daemon. Later sessions find the remains of dead ones by them."""

_KEEPERS = (65534, 65533)
"""Users of the process that keeps the container alive. The agent has another user, so it cannot signal it."""

_NO_SOURCE = "bind source path does not exist"
_NO_USER = re.compile(r"unable to find (user|group)|[ug]ids? ", re.IGNORECASE)
_NO_SHELL = re.compile("executable file.* not found")
_TMP = "/tmp"  # noqa: S108 - in the container, where it is the run's private folder


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """A container to create. All objects that are created for it get the `labels`."""

    name: str
    sandbox: SandboxSpec
    workspace: Workspace
    labels: Mapping[str, str]


def run_labels(workspace: Workspace) -> dict[str, str]:
    """Return the labels of objects that end with a run. The session's folder shows whether the session is alive."""
    return {SESSION: str(workspace.path.parent), HOST: host_mark(), RUN: workspace.path.name}


def user_of(workspace: Workspace) -> str:
    """Return the user of commands in the container: the workspace's owner, as `uid:gid`."""
    owner = workspace.owner
    if owner is None:
        return f"{os.getuid()}:{os.getgid()}"
    return f"{owner}:{owner}"


class Container:
    """A running container. `starts` counts its restarts.

    Scripts run as `user`, unless a call names another. `remove` removes the container with its services. `services` are
    the bounds of the services, or None.
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
        """Return this machine's pids of all processes in it, or [] if this process cannot see them. For threads.

        They are read from the cgroup, which is looked up once a start. Executed commands are not descendants of the
        container's first process.
        """
        if self._found_pids_at != self.starts:
            self._found_pids_at, self._pids = self.starts, self._find_pids()
        try:
            if self._pids is None:
                return []
            return list(map(int, self._pids.read_text(encoding="ascii").split()))
        except OSError:  # the container has ended
            return []

    async def run(
        self,
        script: str,
        argv: Sequence[str],
        environment: Mapping[str, str],
        *,
        with_stdin: bool = False,
        user: str | None = None,
    ) -> ExecStream:
        """Start a script of the container's shell, as the run's user or as `user`. An ended container is restarted.

        Raises SandboxError if that fails.
        """
        if self._services is not None:
            self._services.check()
        command = ["sh", "-c", script, "sh", *argv]
        # A command may have killed its container. Starting the next command is the way to find out
        try:
            return await self._start(command, environment, with_stdin, user)
        except SandboxError as error:
            check_user(user, str(error))
            await self._daemon.call(self._restart)
        try:
            return await self._start(command, environment, with_stdin, user)
        except SandboxError as error:
            raise cannot_run(str(error)) from error

    async def kill(self) -> None:
        """Kill all its processes. Never raises: the next start reports a container that is gone."""
        with suppress(SandboxError):
            await self._daemon.call(self._kill)

    def kill_soon(self) -> None:
        """Kill all its processes without waiting, in any thread."""
        self._daemon.submit(self._kill)

    def remove(self) -> Future[None]:
        """Remove it and its services without waiting, in any thread. The future has no exception."""
        return self._daemon.submit(self._remove)

    async def _start(
        self, command: list[str], environment: Mapping[str, str], with_stdin: bool, user: str | None
    ) -> ExecStream:
        exec_id = await self._daemon.call(self._create_exec, command, environment, with_stdin, user or self._user)
        return await start_exec(self._daemon.socket_path, self._daemon.api_version, exec_id)

    def _create_exec(self, command: list[str], environment: Mapping[str, str], with_stdin: bool, user: str) -> str:
        api = self._daemon.client.api
        made = api.exec_create(self._id, command, stdin=with_stdin, user=user, environment=dict(environment))
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


def check_user(user: str | None, why: str) -> None:
    """Raise SandboxError if the daemon started no command because the container has no such user."""
    if user is not None and _NO_USER.search(why):
        raise SandboxError(f"the container has no user {user!r}: {why.strip()}")


def cannot_run(why: str) -> SandboxError:
    """Return the error for a container in which no command can be started."""
    needed = "`sh` and `sleep`, for this machine's architecture"
    return SandboxError(f"the container runs no commands; its image needs {needed}: {why.strip()}")


def start_container(daemon: Daemon, spec: ContainerSpec, image: Image, network: str) -> str:
    """Create a container that waits for commands, start it, and return its id.

    Raises SandboxError if the daemon cannot see the workspace, docker.errors.APIError for all other errors.
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
            healthcheck={"test": ["NONE"]},  # the image's own would count towards the agent's limits
            stop_signal="SIGKILL",
            use_config_proxy=sandbox.network and not daemon.is_podman,  # its address may contain a password
            host_config=host,
        )
    except APIError as error:
        if _NO_SOURCE not in (error.explanation or ""):
            raise
        raise SandboxError(
            f"the docker daemon does not see this machine's folder {spec.workspace.path}: it is on another machine, or "
            "this process runs in a container; set TMPDIR to a folder that both have at the same path"
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
    """Return docker's options: no new privileges, and the package's list of system calls, or docker's own without
    one.
    """
    profile = seccomp_profile()
    return ["no-new-privileges", *([] if profile is None else [f"seccomp={profile}"])]


def _host_config(daemon: Daemon, spec: ContainerSpec, image: Image, network: str) -> dict[str, Any]:
    from docker import types

    sandbox = spec.sandbox
    mounts = list(_mounts(spec.workspace, sandbox.mounts))
    config: dict[str, Any] = daemon.client.api.create_host_config(
        network_mode=network,
        dns=None if sandbox.network or sandbox.compose is None else list(NO_RESOLVER),
        log_config=types.LogConfig(type="none"),  # the first process writes nothing, and a log could fill the disk
        cap_drop=["ALL"],
        security_opt=security_options(),
        read_only=True,
        init=True,  # reaps the zombies of the agent's daemons, which would count as processes
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
        # Not `nproc`, which counts all processes of the user on this machine, those of other runs too
        "ulimits": [Ulimit(name=name, soft=most, hard=most) for name, most in ulimits.items()],
    }


def _keeper_of(daemon: Daemon, workspace: Workspace) -> str:
    """Return the user of the process that keeps the container alive."""
    taken = user_of(workspace)
    if daemon.is_podman and podman.is_rootless(daemon.info):  # an ordinary user may have no second user id
        return taken
    keeper = next(user for user in _KEEPERS if str(user) != taken.split(":")[0])
    return f"{keeper}:{keeper}"


def _mounts(workspace: Workspace, mounts: Sequence[Mount]) -> Iterator[tuple[Mount, bool]]:
    """Yield the mounts of a container, and whether each is writable: the workspace's, then `mounts`."""
    private = workspace.private_tmp()
    yield Mount(workspace.path, WORKSPACE), True
    yield Mount(private, _TMP), True
    # Also inside the workspace: a program could put a link in its place, which would be followed outside at a restart
    yield Mount(private, f"{WORKSPACE}/{PRIVATE_TMP}"), True
    for mount in mounts:
        yield mount, False


def _volumes_in_memory(image: Image, spec: SandboxSpec) -> list[str]:
    """Return the paths at which the image wants volumes, except mounts. It gets memory there, because volumes have
    no limit.
    """
    mounted = {WORKSPACE, _TMP, *(mount.target for mount in spec.mounts)}
    return [path for path in image.volumes if normpath(path) not in mounted]
