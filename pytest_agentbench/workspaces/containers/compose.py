"""Services of a run: a validated compose file, started for one run and removed after it."""

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

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.terminal_text import last_lines
from pytest_agentbench.workspaces.containers.bounds import SERVICE, ServiceBounds
from pytest_agentbench.workspaces.containers.commands import KEEP_ALIVE_SECONDS
from pytest_agentbench.workspaces.containers.compose_file import ComposeBuild, ComposeFile, ComposeService, load_compose
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
"""Option that gives this machine no address in the network. Otherwise services could reach its listening programs."""
# Fields that are passed on unchanged. All others are set here, or are unknown to ComposeService and refused.
_UNCHANGED = {
    *("command", "entrypoint", "environment", "working_dir", "user", "hostname", "depends_on", "healthcheck"),
    *("tmpfs", "read_only", "init"),
}
_KEEPER_BYTES = 64 * 2**20


def compose_problem() -> str | None:
    """Return why services cannot run here and the remedy, or None. Checked once."""
    if _program() is None:
        return "neither `docker compose` nor `docker-compose` works here; install the compose plugin of docker"
    return None


def compose_digest(path: Path, *, network: bool) -> str:
    """Return the SHA-256 of the services and the build folders of their images. Raises ConfigError."""
    file = load_compose(path)
    builds = {name: build_digest(dockerfile, network=network) for name, dockerfile in _dockerfiles(path, file).items()}
    return hashlib.sha256(json.dumps([file.model_dump(), builds], sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Project:
    """The services of one run. All their objects at the daemon have these `labels`, and no others have them."""

    name: str
    labels: Mapping[str, str]

    @property
    def network(self) -> str:
        """Return the name of the services' network."""
        return f"{self.name}_default"


def service_images(images: Images, spec: SandboxSpec) -> dict[str, Image]:
    """Pull or build the image of each service of `spec.compose`. For threads: it may take minutes.

    Raises ConfigError for a file that exceeds limits, UnavailableError, SandboxError.
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
    """Start the services of `spec.compose`, and return when they are ready. For threads: it may take minutes.

    Raises ConfigError for a file that exceeds limits, UnavailableError and SandboxError if a service cannot be started,
    and SandboxError if `ended` is set in the meantime. Containers that were started have the project's labels.
    """
    assert spec.compose is not None
    program = _program()
    if program is None:
        raise SandboxError(f"compose: {compose_problem()}")
    file = load_compose(spec.compose)
    of_services = service_images(images, spec)
    volumes = _volumes(file, of_services, project)
    if volumes:
        # The keeper is a container of the run's own image, which is local already
        own = images.get(spec.image, spec.dockerfile, build_network=spec.build_network, limits=spec.limits)
        _make_volumes(
            daemon, own, spec.limits, project, {name for by_path in volumes.values() for name in by_path.values()}
        )
    with tempfile.TemporaryDirectory(prefix="agentbench-compose-") as folder:
        profile = write_seccomp_profile(Path(folder))
        content = _document(file, of_services, volumes, spec, project, daemon.info["NCPU"], profile)
        document = Path(folder, "compose.json")
        document.write_text(json.dumps(content), encoding="utf-8")
        options = ["--project-name", project.name, "--project-directory", folder, "--file", str(document)]
        command = [*program, *options, "up", "--detach", "--no-color"]
        try:
            _up(command, _environment(daemon, Path(folder)), bounds, ended)
            _wait(daemon, project, bounds, ended)
        except SandboxError:
            bounds.check()  # a broken limit has precedence over the exit of the service that was killed for it
            raise


def _volumes(file: ComposeFile, images: Mapping[str, Image], project: Project) -> dict[str, dict[str, str]]:
    """Return the volumes of each service by path: the file's volumes and the volumes of the service's image."""
    volumes: dict[str, dict[str, str]] = {}
    for name, service in file.services.items():
        places = {path: f"{project.name}_{volume}" for volume, path, _ in _named(service)}
        in_memory = (service.tmpfs,) if isinstance(service.tmpfs, str) else service.tmpfs
        taken = {*places, *(normpath(entry.partition(":")[0]) for entry in in_memory)}
        of_image = sorted({normpath(path) for path in images[name].volumes} - taken)
        places |= {path: f"{project.name}_{name}.{number}" for number, path in enumerate(of_image)}
        if places:
            volumes[name] = places
    return volumes


def _named(service: ComposeService) -> Iterator[tuple[str, str, bool]]:
    """Yield name and path of each volume of the service's file, and whether it is read-only."""
    for volume in service.volumes:
        name, path, *mode = volume.replace("$$", "$").split(":")
        yield name, normpath(path), mode == ["ro"]


def _make_volumes(daemon: Daemon, image: Image, limits: ResourceLimits, project: Project, names: set[str]) -> None:
    """Create volumes in memory, each as large as a workspace may be, and a container that keeps them until the run's
    end.

    A volume in memory is emptied when no container uses it. It would lose the files of the image and of earlier
    services.
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
                **service.model_dump(include=_UNCHANGED, exclude_none=True, exclude_defaults=True, mode="json"),
                **_bounds(spec.limits, cpus, profile),
                **alone,
                "image": images[name].name,  # never `build`, because only this package bounds builds
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
            volume: {"external": True, "name": volume} for by_path in volumes.values() for volume in by_path.values()
        },
        "networks": {"default": {**network, "labels": labels}},
    }


def _literal(text: str) -> str:
    """Return the text with `$` escaped, so that Compose inserts no variables."""
    return text.replace("$", "$$")


def _bounds(limits: ResourceLimits, cpus: int, profile: Path | None) -> dict[str, Any]:
    return {
        "restart": "no",
        "security_opt": ["no-new-privileges:true", *([] if profile is None else [f"seccomp={profile}"])],
        # Not all capabilities: images of databases start as root, give their files away and switch the user
        "cap_drop": ["NET_RAW", "MKNOD", "SYS_CHROOT", "SETFCAP", "AUDIT_WRITE"],
        "cpus": min(limits.cpus, cpus),  # docker refuses more than there are
        "mem_limit": limits.memory_bytes,
        "memswap_limit": limits.memory_bytes,  # the sum of both, so no swap
        "pids_limit": limits.processes,
        "ulimits": {"core": 0, "fsize": limits.file_bytes},
        "logging": {"driver": "json-file", "options": {"max-size": "1m"}},
    }


def _dockerfiles(path: Path, file: ComposeFile) -> dict[str, Path]:
    """Return the Dockerfiles of the services that are built, by their names."""
    builds = {name: service.build for name, service in file.services.items() if service.build is not None}
    folder, dockerfiles = path.resolve().parent, {}
    for name, build in builds.items():
        full = build if isinstance(build, ComposeBuild) else ComposeBuild(context=build)
        dockerfiles[name] = (folder / full.context).resolve() / full.dockerfile
    return dockerfiles


def _environment(daemon: Daemon, folder: Path) -> dict[str, str]:
    """Return the environment of compose: PATH, HOME, the daemon, and an empty configuration.

    Compose inserts its environment into the file, and the user's configuration may contain proxies with passwords.
    """
    own = {name: value for name in ("PATH", "HOME") if (value := os.environ.get(name)) is not None}
    configured = Path(os.environ.get("DOCKER_CONFIG") or Path("~/.docker").expanduser())
    (folder / "docker").mkdir()
    (folder / "docker/cli-plugins").symlink_to(configured.absolute() / "cli-plugins")
    return own | {"DOCKER_HOST": f"unix://{daemon.socket_path}", "DOCKER_CONFIG": str(folder / "docker")}


def _up(command: list[str], environment: Mapping[str, str], bounds: ServiceBounds, ended: threading.Event) -> None:
    deadline = time.monotonic() + _UP_SECONDS
    with (
        # No pipe, because nobody reads while compose runs, and compose would block on a full pipe
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
            last = last_lines(written.read().decode("utf-8", "replace"), _SHOWN_LINES)
            raise SandboxError(f"compose: the services cannot be started:\n{last}")


def _go_on(bounds: ServiceBounds, ended: threading.Event) -> None:
    """Wait a moment. Raises SandboxError if the session has ended, or a service has exceeded a limit."""
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
    """Return whether a service is running, and healthy if it has a health check. Raises SandboxError if it failed."""
    container.reload()
    state = container.attrs["State"]
    if state["Status"] == "exited" and state["ExitCode"] == 0:  # a service that only sets something up
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
