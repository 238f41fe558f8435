"""Images made by the docker SDK, for later sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.building.base import BUILD_SECONDS, CHECK_SECONDS, LocalImage
from pytest_agentbench.workspaces.containers.images import not_pulled
from pytest_agentbench.workspaces.containers.labels import MADE_HERE
from pytest_agentbench.workspaces.docker.daemon import Daemon
from pytest_agentbench.workspaces.docker.images import followed

T = TypeVar("T")


class DockerBuilder:
    """The daemon of this machine."""

    def __init__(self) -> None:
        self._daemon = Daemon()

    def find(self, name: str) -> LocalImage | None:
        """See ImageBuilder."""
        return self._call(self._find, name)

    def pull(self, name: str) -> None:
        """See ImageBuilder."""
        try:
            self._call(self._pull, name)
        except SandboxError as error:
            raise not_pulled(name, str(error), "docker") from error

    def build(self, folder: Path, name: str, labels: Mapping[str, str]) -> None:
        """See ImageBuilder."""
        self._call(self._build, folder, name, labels)

    def run(self, name: str, program: str, arguments: Sequence[str]) -> tuple[int, str]:
        """See ImageBuilder."""
        return self._call(self._run, name, program, arguments)

    def tag(self, name: str, as_name: str) -> None:
        """See ImageBuilder."""
        self._call(self._tag, name, as_name)

    def remove(self, name: str) -> None:
        """See ImageBuilder."""
        self._call(self._remove, name)

    def close(self) -> None:
        """See ImageBuilder."""
        self._daemon.close()

    def _call(self, function: Callable[..., T], *arguments: object) -> T:
        return self._daemon.submit(function, *arguments).result()

    def _find(self, name: str) -> LocalImage | None:
        from docker.errors import ImageNotFound

        try:
            found = self._daemon.client.images.get(name)
        except ImageNotFound:
            return None
        return LocalImage(str(found.id), found.labels)

    def _pull(self, name: str) -> None:
        self._daemon.client.images.pull(name)

    def _build(self, folder: Path, name: str, labels: Mapping[str, str]) -> None:
        lines = self._daemon.client.api.build(
            path=str(folder),
            tag=name,
            network_mode="none",
            labels=dict(labels),
            rm=True,
            forcerm=True,
            timeout=BUILD_SECONDS,
            use_config_proxy=False,
            decode=True,
        )
        problem, last = followed(lines)
        if problem is not None:
            raise SandboxError("\n".join([f"{name}: the image cannot be built: {problem}", *last.splitlines()]))

    def _run(self, name: str, program: str, arguments: Sequence[str]) -> tuple[int, str]:
        api = self._daemon.client.api
        made = api.create_container(
            name,
            list(arguments),
            entrypoint=[program],
            labels=dict(MADE_HERE),
            use_config_proxy=False,
            host_config=api.create_host_config(network_mode="none", read_only=True),
        )["Id"]
        try:
            api.start(made)
            ended = api.wait(made, timeout=CHECK_SECONDS)
            return int(ended["StatusCode"]), api.logs(made).decode("utf-8", "replace")
        finally:
            api.remove_container(made, force=True)

    def _tag(self, name: str, as_name: str) -> None:
        repository, _, tag = as_name.rpartition(":")
        self._daemon.client.api.tag(name, repository, tag)

    def _remove(self, name: str) -> None:
        from docker.errors import ImageNotFound

        try:
            self._daemon.client.api.remove_image(name)
        except ImageNotFound:
            return
