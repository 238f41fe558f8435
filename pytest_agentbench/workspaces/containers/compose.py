"""Services that run beside a run's container: a validated compose file, started for one run and removed after it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from posixpath import normpath
from typing import TYPE_CHECKING, Any

from pytest_agentbench.config.compose_file import ComposeBuild, ComposeFile, ComposeService, load_compose
from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.containers.bounds import SERVICE, ServiceBounds
from pytest_agentbench.workspaces.containers.commands import KEEP_ALIVE_SECONDS
from pytest_agentbench.workspaces.containers.container import NO_RESOLVER, OWN_PROCESSES, security_options
from pytest_agentbench.workspaces.containers.daemon import Daemon
from pytest_agentbench.workspaces.containers.images import Image, Images, build_digest
from pytest_agentbench.workspaces.sandboxes.base import ResourceLimits, SandboxSpec
from pytest_agentbench.workspaces.sandboxes.seccomp import write_seccomp_profile

if TYPE_CHECKING:
    from docker.models.containers import Container

_UP_SECONDS = 300
_READY_SECONDS = 120.0
_LOOK_SECONDS = 0.2
_SHOWN_LINES = 20
_NO_GATEWAY = {"com.docker.network.bridge.inhibit_ipv4": "true"}
"""This machine has no address in the network, at which what listens here could be reached."""
# What is passed on as the file has it; all else is said here, or is no field of ComposeService and was refused.
_KEPT = ("command", "entrypoint", "environment", "working_dir", "user", "hostname", "depends_on", "healthcheck")
_KEPT_TOO = ("tmpfs", "read_only", "init")
_KEEPER_BYTES = 64 * 2**20


def compose_problem() -> str | None:
    """Return why services cannot be run here, with what to do; None where they can. Asked once."""
    if _program() is None:
        return "neither `docker compose` nor `docker-compose` works here; install the compose plugin of docker"
    return None


def compose_digest(path: Path, *, network: bool) -> str:
    """Return the SHA-256 of what the services are, with what their images are built from. Raises ConfigError."""
    file = load_compose(path)
    built = {name: build_digest(found, network=network) for name, found in _dockerfiles(path, file).items()}
    return hashlib.sha256(json.dumps([file.model_dump(), built], sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Project:
    """Services of one run. `labels` are on all that is made for them, and on nothing else."""

    name: str
    labels: Mapping[str, str]

    @property
    def network(self) -> str:
        """Return the network that its services are in."""
        return f"{self.name}_default"


def service_images(images: Images, spec: SandboxSpec) -> dict[str, Image]:
    """Return the image of each service of `spec.compose`, on this machine. For threads: it may take minutes.

    Raises ConfigError for a file that asks for too much, UnavailableError, SandboxError.
    """
    assert spec.compose is not None
    file = load_compose(spec.compose)
    dockerfiles = _dockerfiles(spec.compose, file)
    return {
        name: images.get(service.image, dockerfiles.get(name), build_network=spec.build_network, limits=spec.limits)
        for name, service in file.services.items()
    }


def start_services(
    daemon: Daemon, images: Images, spec: SandboxSpec, project: Project, bounds: ServiceBounds, ended: threading.Event
) -> None:
    """Start the services of `spec.compose`; they are ready when this returns. For threads: it may take minutes.

    Raises ConfigError for a file that asks for too much, UnavailableError and SandboxError for what cannot be started,
    and where `ended` is set meanwhile. What was started by then is there, under the project's labels.
    """
    assert spec.compose is not None
    program = _program()
    if program is None:
        raise SandboxError(f"compose: {compose_problem()}")
    file = load_compose(spec.compose)
    given = service_images(images, spec)
    volumes = _volumes(file, given, project)
    if volumes:
        # The keeper is a container of the run's own image, which is here already.
        own = images.get(spec.image, spec.dockerfile, build_network=spec.build_network, limits=spec.limits)
        _make_volumes(daemon, own, spec.limits, project, {name for each in volumes.values() for name in each.values()})
    with tempfile.TemporaryDirectory(prefix="agentbench-compose-") as folder:
        made = _document(file, given, volumes, spec, project, daemon.info["NCPU"], write_seccomp_profile(Path(folder)))
        document = Path(folder, "compose.json")
        document.write_text(json.dumps(made), encoding="utf-8")
        options = ["--project-name", project.name, "--project-directory", folder, "--file", str(document)]
        command = [*program, *options, "up", "--detach", "--no-color"]
        try:
            _up(command, _environment(daemon, Path(folder)), bounds, ended)
            _wait(daemon, project, bounds, ended)
        except SandboxError:
            bounds.check()  # rather than how the one that was killed for it ended
            raise


def _volumes(file: ComposeFile, images: Mapping[str, Image], project: Project) -> dict[str, dict[str, str]]:
    """Return the volume at each path of each service: those that it names, and those that its image wants."""
    found: dict[str, dict[str, str]] = {}
    for name, service in file.services.items():
        places = {path: f"{project.name}_{volume}" for volume, path, _ in _named(service)}
        in_memory = (service.tmpfs,) if isinstance(service.tmpfs, str) else service.tmpfs
        taken = {*places, *(normpath(each.partition(":")[0]) for each in in_memory)}
        wanted = sorted({normpath(path) for path in images[name].volumes} - taken)
        places |= {path: f"{project.name}_{name}.{number}" for number, path in enumerate(wanted)}
        if places:
            found[name] = places
    return found


def _named(service: ComposeService) -> Iterator[tuple[str, str, bool]]:
    """Yield the name of each volume that it names, its path, and whether it is only read."""
    for volume in service.volumes:
        name, path, *mode = volume.replace("$$", "$").split(":")
        yield name, normpath(path), mode == ["ro"]


def _make_volumes(daemon: Daemon, image: Image, limits: ResourceLimits, project: Project, names: set[str]) -> None:
    """Make volumes in memory, each of the size that a workspace may have, and what keeps them until the run's end.

    One that nobody holds forgets all: what an image puts there, what one service leaves for the next.
    """
    from docker.types import Mount

    options = {"type": "tmpfs", "device": "tmpfs", "o": f"size={limits.workspace_bytes},mode=0755"}
    for name in names:
        daemon.client.volumes.create(name, driver="local", driver_opts=options, labels=dict(project.labels))
    daemon.client.containers.run(
        image.image_id,
        [str(KEEP_ALIVE_SECONDS)],
        entrypoint=["sleep"],
        user="65534:65534",
        detach=True,
        network_mode="none",
        read_only=True,
        init=True,
        cap_drop=["ALL"],
        security_opt=security_options(),
        mem_limit=_KEEPER_BYTES,
        pids_limit=OWN_PROCESSES,
        labels=dict(project.labels),
        mounts=[Mount(f"/{number}", name, no_copy=True) for number, name in enumerate(sorted(names))],
    )


def _document(
    file: ComposeFile,
    images: Mapping[str, Image],
    volumes: Mapping[str, Mapping[str, str]],
    spec: SandboxSpec,
    project: Project,
    cpus: int,
    profile: Path | None,
) -> dict[str, Any]:
    labels = {name: _literal(value) for name, value in project.labels.items()}
    alone = {} if spec.network else {"dns": list(NO_RESOLVER)}
    network = {} if spec.network else {"internal": True, "driver_opts": _NO_GATEWAY}
    read_only = {
        (name, path) for name, service in file.services.items() for _, path, only_read in _named(service) if only_read
    }
    return {
        "services": {
            name: {
                **_given(service),
                **_bounds(spec.limits, cpus, profile),
                **alone,
                "image": images[name].name,  # never `build`: what is built here is bounded
                "labels": {**labels, SERVICE: name},
                "volumes": [
                    {
                        "type": "volume",
                        "source": volume,
                        "target": _literal(path),
                        "read_only": (name, path) in read_only,
                    }
                    for path, volume in volumes.get(name, {}).items()
                ],
            }
            for name, service in file.services.items()
        },
        "volumes": {
            volume: {"external": True, "name": volume} for each in volumes.values() for volume in each.values()
        },
        "networks": {"default": {**network, "labels": labels}},
    }


def _literal(text: str) -> str:
    """Return the text so that Compose takes it as it is."""
    return text.replace("$", "$$")


def _given(service: ComposeService) -> dict[str, Any]:
    return service.model_dump(include={*_KEPT, *_KEPT_TOO}, exclude_none=True, exclude_defaults=True, mode="json")


def _bounds(limits: ResourceLimits, cpus: int, profile: Path | None) -> dict[str, Any]:
    return {
        "restart": "no",
        "security_opt": ["no-new-privileges:true", *([] if profile is None else [f"seccomp={profile}"])],
        # Not all of them: images of databases start as root, give their files away and become another user.
        "cap_drop": ["NET_RAW", "MKNOD", "SYS_CHROOT", "SETFCAP", "AUDIT_WRITE"],
        "cpus": min(limits.cpus, cpus),  # docker refuses more than there are
        "mem_limit": limits.memory_bytes,
        "memswap_limit": limits.memory_bytes,  # of both together: no swap
        "pids_limit": limits.processes,
        "ulimits": {"core": 0, "fsize": limits.file_bytes},
        "logging": {"driver": "json-file", "options": {"max-size": "1m"}},
    }


def _dockerfiles(path: Path, file: ComposeFile) -> dict[str, Path]:
    """Return the Dockerfiles of the services that are built, by their names."""
    builds = {name: service.build for name, service in file.services.items() if service.build is not None}
    given = {
        name: build if isinstance(build, ComposeBuild) else ComposeBuild(context=build)
        for name, build in builds.items()
    }
    folder = path.resolve().parent
    return {name: (folder / build.context).resolve() / build.dockerfile for name, build in given.items()}


def _environment(daemon: Daemon, folder: Path) -> dict[str, str]:
    """Return what compose gets, which would fill it into the file: nothing of this process's but where programs are.

    Its configuration is an empty one: the user's names proxies, with passwords, that services would be given.
    """
    kept = {name: value for name in ("PATH", "HOME") if (value := os.environ.get(name)) is not None}
    configured = Path(os.environ.get("DOCKER_CONFIG") or Path("~/.docker").expanduser())
    (folder / "docker").mkdir()
    (folder / "docker/cli-plugins").symlink_to(configured.absolute() / "cli-plugins")
    return kept | {"DOCKER_HOST": f"unix://{daemon.socket_path}", "DOCKER_CONFIG": str(folder / "docker")}


def _up(command: list[str], environment: Mapping[str, str], bounds: ServiceBounds, ended: threading.Event) -> None:
    deadline = time.monotonic() + _UP_SECONDS
    with (
        # No pipe: nobody reads it while compose runs, which would stop where it is full.
        tempfile.TemporaryFile() as written,
        subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # `docker` starts its plugin, which is killed with it
        ) as compose,
    ):
        try:
            while compose.poll() is None:
                _go_on(bounds, ended)
                if time.monotonic() > deadline:
                    raise SandboxError(f"compose: the services were not started within {_UP_SECONDS} s")
        finally:
            if compose.poll() is None:
                os.killpg(compose.pid, signal.SIGKILL)
        if compose.returncode:
            written.seek(0)
            last = "\n".join(written.read().decode("utf-8", "replace").strip().splitlines()[-_SHOWN_LINES:])
            raise SandboxError(f"compose: the services cannot be started:\n{last}")


def _go_on(bounds: ServiceBounds, ended: threading.Event) -> None:
    """Wait a moment. Raises SandboxError where the session has ended, or a service took too much."""
    if ended.wait(_LOOK_SECONDS):
        raise SandboxError("the session ended")
    bounds.check()


def _wait(daemon: Daemon, project: Project, bounds: ServiceBounds, ended: threading.Event) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    labels = [f"{name}={value}" for name, value in project.labels.items()]
    waiting = daemon.client.containers.list(all=True, filters={"label": labels})
    while waiting:
        waiting = [container for container in waiting if not _is_ready(container)]
        if waiting and time.monotonic() > deadline:
            names = ", ".join(container.labels[SERVICE] for container in waiting)
            raise SandboxError(f"compose: not ready within {_READY_SECONDS:g} s: {names}")
        if waiting:
            _go_on(bounds, ended)


def _is_ready(container: Container) -> bool:
    """Return whether it runs, and is healthy where it says what that is. Raises SandboxError where it failed."""
    container.reload()
    state = container.attrs["State"]
    if state["Status"] == "exited" and state["ExitCode"] == 0:  # it had something to set up, and is done
        return True
    if state["Status"] in ("exited", "dead"):
        last = container.logs(tail=_SHOWN_LINES).decode("utf-8", "replace").strip()
        raise SandboxError(
            f"compose: the service {container.labels[SERVICE]!r} ended with exit code {state['ExitCode']}:\n{last}"
        )
    health = state.get("Health")
    return state["Status"] == "running" and (health is None or health["Status"] == "healthy")


@cache
def _program() -> tuple[str, ...] | None:
    for program in (("docker", "compose"), ("docker-compose",)):
        if shutil.which(program[0]) is None:
            continue
        try:
            done = subprocess.run([*program, "version"], capture_output=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return program
    return None
