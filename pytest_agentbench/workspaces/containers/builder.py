"""Build images for later sessions, with any container engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from docker.errors import NotFound  # podman's message is not one that the SDK maps to ImageNotFound

from pytest_agentbench.errors import SandboxError, UnavailableError
from pytest_agentbench.workspaces.containers import podman
from pytest_agentbench.workspaces.containers.daemon import Daemon, docker_problem
from pytest_agentbench.workspaces.containers.images import BUILD_SECONDS, MADE_HERE, follow_build, pull_image
from pytest_agentbench.workspaces.sandboxes.images import LocalImage

if TYPE_CHECKING:
    from docker import DockerClient

CHECK_SECONDS = 120
"""Maximum seconds of a program in the image."""


class ImageBuilder:
    """Images of one daemon, as LocalImages. `program` is the engine's command, as for Daemon."""

    def __init__(self, program: str | None = None) -> None:
        self._daemon, self._is_stock = Daemon(program), program is None

    @contextmanager
    def _connected(self) -> Iterator[DockerClient]:
        if self._is_stock and (problem := docker_problem()) is not None:
            raise UnavailableError(problem)
        with self._daemon.errors():
            yield self._daemon.client

    def find(self, name: str) -> LocalImage | None:
        """Return the local image of that name, or None. Nothing is pulled."""
        with self._connected() as client:
            try:
                image = client.images.get(name)
            except NotFound:
                return None
            # podman's program shows ids without this prefix, and labels of images name their bases by such ids
            image_id = str(image.id).removeprefix("sha256:") if self._daemon.is_podman else str(image.id)
            return LocalImage(image_id, image.labels)

    def pull(self, name: str) -> LocalImage:
        """Pull the image of that name from its registry, and return it. Raises UnavailableError if that fails."""
        with self._connected():
            pull_image(self._daemon, name)
        if (image := self.find(name)) is None:
            raise SandboxError(f"{name}: was pulled, but is not found; use the name in the engine's list of images")
        return image

    def build(
        self, name: str, dockerfile: str, context: Path, labels: Mapping[str, str], *, network: bool = False
    ) -> None:
        """Build an image from local images, with the engine's network or without. Writes the Dockerfile."""
        (context / "Dockerfile").write_text(dockerfile, encoding="utf-8")
        with self._connected() as client:
            lines = client.api.build(
                path=str(context),
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
        with self._connected() as client:
            api = client.api
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
        with self._connected() as client:
            client.api.tag(name, repository, tag)

    def remove(self, name: str) -> None:
        """Take the name away, and the image with its last one. No such image is no error."""
        with self._connected() as client, suppress(NotFound):
            client.api.remove_image(name)

    def close(self) -> None:
        """End connections."""
        self._daemon.close()
