"""Images made by the command line that podman, nerdctl and others share with docker."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.building.base import BUILD_SECONDS, CHECK_SECONDS, LocalImage
from pytest_agentbench.workspaces.by_command.client import Client, last_words
from pytest_agentbench.workspaces.containers.images import not_pulled

_SHOWN_CHARACTERS = 200


class CommandBuilder:
    """The engine of one program."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def find(self, name: str) -> LocalImage | None:
        """See ImageBuilder."""
        done = self._client.run("image", "inspect", "--format", "{{.Id}} {{json .Config.Labels}}", name)
        if done.returncode:
            return None
        image_id, _, labels = done.stdout.strip().partition(" ")
        try:
            return LocalImage(image_id, json.loads(labels) or {})
        except ValueError as error:
            told = f"found {done.stdout[:_SHOWN_CHARACTERS]!r}, expected the id of an image and its labels"
            raise SandboxError(f"{self._client.program} image inspect: {told}") from error

    def pull(self, name: str) -> None:
        """See ImageBuilder."""
        done = self._client.run("pull", "--quiet", name, seconds=BUILD_SECONDS)
        if done.returncode:
            raise not_pulled(name, last_words(done), self._client.program)

    def build(self, folder: Path, name: str, labels: Mapping[str, str]) -> None:
        """See ImageBuilder."""
        given = [part for key, value in labels.items() for part in ("--label", f"{key}={value}")]
        self._client.call("build", "--network", "none", *given, "--tag", name, str(folder), seconds=BUILD_SECONDS)

    def run(self, name: str, program: str, arguments: Sequence[str]) -> tuple[int, str]:
        """See ImageBuilder."""
        container = f"agentbench-check-{secrets.token_hex(8)}"
        options = ("--rm", "--name", container, "--network", "none", "--read-only", "--entrypoint", program)
        try:
            done = self._client.run("run", *options, name, *arguments, seconds=CHECK_SECONDS)
        except BaseException:  # the program has ended, not its container
            self._client.run("rm", "--force", container)
            raise
        return done.returncode, done.stdout + done.stderr

    def tag(self, name: str, as_name: str) -> None:
        """See ImageBuilder."""
        self._client.call("tag", name, as_name)

    def remove(self, name: str) -> None:
        """See ImageBuilder."""
        if self.find(name) is not None:
            self._client.call("rmi", name)

    def close(self) -> None:
        """There is nothing to end."""
