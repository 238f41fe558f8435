"""Build images for later sessions, with any container engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from docker.errors import NotFound  # podman's message is not one that the SDK maps to ImageNotFound

from pytest_agentbench.errors import SandboxError, UnavailableError
from pytest_agentbench.workspaces.containers import podman
from pytest_agentbench.workspaces.containers.daemon import Daemon, docker_problem
from pytest_agentbench.workspaces.containers.engines import find_engine
from pytest_agentbench.workspaces.containers.images import BUILD_SECONDS, MADE_HERE, follow_build, pull_image

CHECK_SECONDS = 120
"""Maximum seconds of a program in the image."""


@dataclass(frozen=True, slots=True)
class LocalImage:
    """An image of the engine, with the engine's id."""

    image_id: str
    labels: Mapping[str, str]


def image_builder(engine: str = "docker") -> ImageBuilder:
    """Return the builder of an engine: `docker` with its daemon, or another one (podman, a path) as in `docker_cli`.

    Raises UnavailableError if no daemon answers, or the program is unsuitable.
    """
    if engine != "docker":
        find_engine(engine)
        return ImageBuilder(Daemon(engine))
    if (problem := docker_problem()) is not None:
        raise UnavailableError(problem)
    return ImageBuilder(Daemon())


class ImageBuilder:
    """Images of one daemon. Every method raises SandboxError if the daemon fails."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def find(self, name: str) -> LocalImage | None:
        """Return the local image of that name, or None. Nothing is pulled."""
        with self._daemon.errors():
            try:
                image = self._daemon.client.images.get(name)
            except NotFound:
                return None
            # podman's program shows ids without this prefix, and labels of images name their bases by such ids
            image_id = str(image.id).removeprefix("sha256:") if self._daemon.is_podman else str(image.id)
            return LocalImage(image_id, image.labels)

    def pull(self, name: str) -> None:
        """Pull the image of that name from its registry. Raises UnavailableError if that fails."""
        with self._daemon.errors():
            pull_image(self._daemon, name)

    def build(self, folder: Path, name: str, labels: Mapping[str, str], *, network: bool = False) -> None:
        """Build the folder's Dockerfile from local images, with the engine's network or without."""
        with self._daemon.errors():
            lines = self._daemon.client.api.build(
                path=str(folder),
                tag=name,
                network_mode=None if network else "none",
                labels=dict(labels),
                rm=True,
                forcerm=True,
                timeout=BUILD_SECONDS,
                use_config_proxy=False,
                decode=True,
            )
            problem, last = follow_build(lines)
        if problem is not None:
            raise SandboxError("\n".join([f"{name}: the image cannot be built: {problem}", *last.splitlines()]))

    def run(self, name: str, program: str, arguments: Sequence[str]) -> tuple[int, str]:
        """Return exit code and output of a program in a container of the image, read-only and without network."""
        with self._daemon.errors():
            api = self._daemon.client.api
            host = api.create_host_config(network_mode="none", read_only=True)
            if self._daemon.is_podman:
                host["Ulimits"] = podman.own_limits()
            made = api.create_container(
                name,
                list(arguments),
                entrypoint=[program],
                labels=dict(MADE_HERE),
                use_config_proxy=False,
                host_config=host,
            )["Id"]
            try:
                api.start(made)
                ended = api.wait(made, timeout=CHECK_SECONDS)
                return int(ended["StatusCode"]), api.logs(made).decode("utf-8", "replace")
            finally:
                api.remove_container(made, force=True)

    def tag(self, name: str, as_name: str) -> None:
        """Give the image one more name, which an older image loses."""
        repository, _, tag = as_name.rpartition(":")
        with self._daemon.errors():
            self._daemon.client.api.tag(name, repository, tag)

    def remove(self, name: str) -> None:
        """Take the name away, and the image with its last one. No such image is no error."""
        with self._daemon.errors(), suppress(NotFound):
            self._daemon.client.api.remove_image(name)

    def close(self) -> None:
        """End connections."""
        self._daemon.close()
