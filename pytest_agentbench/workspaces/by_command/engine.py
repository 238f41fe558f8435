"""A container engine that is told what to do by its command line, such as podman."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable
from os.path import isabs

from pytest_agentbench.errors import SandboxError, UnavailableError
from pytest_agentbench.workspaces.by_command.cell import ClientCell
from pytest_agentbench.workspaces.by_command.client import client, last_words
from pytest_agentbench.workspaces.by_command.options import run_arguments
from pytest_agentbench.workspaces.containers.base import Order
from pytest_agentbench.workspaces.containers.calls import Calls
from pytest_agentbench.workspaces.containers.images import Image, is_local, not_built, not_pulled
from pytest_agentbench.workspaces.containers.labels import HOST, SESSION
from pytest_agentbench.workspaces.containers.making import user_of
from pytest_agentbench.workspaces.sandboxes.base import SandboxSpec
from pytest_agentbench.workspaces.sessions import host_mark, session_is_dead

_PULL_SECONDS = 1800
_SHOWN_CHARACTERS = 200
_ID = re.compile("(sha256:)?[0-9a-f]{12,64}")
_logger = logging.getLogger(__name__)


class CommandEngine:
    """The engine of one program, for one session: each image is looked up, or pulled, once."""

    def __init__(self, program: str) -> None:
        self.calls = Calls()
        self._program = program
        self._lock = threading.Lock()
        self._images: dict[str, Image | UnavailableError] = {}

    def image(self, spec: SandboxSpec) -> Image:
        """As the protocol says."""
        if spec.image is None or spec.compose is not None:
            raise UnavailableError(f"{self._program} runs images that are named; a dockerfile or compose needs docker")
        with self._lock:
            if spec.image not in self._images:
                try:
                    self._images[spec.image] = self._found(spec.image)
                except UnavailableError as error:
                    self._images[spec.image] = error
            found = self._images[spec.image]
        if isinstance(found, Image):
            return found
        raise found.with_traceback(None)

    def make(self, order: Order, remove: Callable[[], None], ended: threading.Event) -> ClientCell:
        """As the protocol says."""
        engine = client(self._program)
        engine.call(*run_arguments(order, self.image(order.spec), is_podman=engine.is_podman))
        return ClientCell(engine, self.calls, order.name, user_of(order.workspace), remove)

    def remove(self, order: Order) -> None:
        """As the protocol says."""
        self._remove(order.name)

    def remove_orphans(self) -> None:
        """As the protocol says."""
        engine = client(self._program)
        marked = f"label={HOST}={host_mark()}"
        ids = engine.call("ps", "--all", "--quiet", "--no-trunc", "--filter", marked).split()
        for container_id in ids:
            found = engine.run("inspect", "--format", f'{{{{index .Config.Labels "{SESSION}"}}}}', container_id)
            session = found.stdout.strip()
            if found.returncode == 0 and isabs(session) and session_is_dead(session):  # where others' are listed too
                self._remove(container_id)

    def _remove(self, name: str) -> None:
        try:
            client(self._program).call("rm", "--force", "--volumes", name)
        except (SandboxError, UnavailableError) as error:
            if "no such container" not in str(error).lower():
                _logger.warning("could not remove the container %s: %s", name, error)

    def _found(self, name: str) -> Image:
        engine = client(self._program)
        asking = ("image", "inspect", "--format", "{{.Id}} {{json .Config.Volumes}}", name)
        if engine.run(*asking).returncode:
            if is_local(name):
                raise not_built(name, self._program)
            pulled = engine.run("pull", "--quiet", name, seconds=_PULL_SECONDS)
            if pulled.returncode:
                raise not_pulled(name, last_words(pulled), self._program)
        return _image(name, engine.call(*asking), self._program)


def _image(name: str, told: str, program: str) -> Image:
    """Raises SandboxError for what is not what was asked for."""
    image_id, _, volumes = told.partition(" ")
    try:
        found = json.loads(volumes)
        if isinstance(found, dict | None) and _ID.fullmatch(image_id):
            return Image(name, f"sha256:{image_id.removeprefix('sha256:')}", tuple(found or ()))
    except ValueError:
        pass
    raise SandboxError(
        f"{program} image inspect: found {told[:_SHOWN_CHARACTERS]!r}, expected the id of an image and its volumes; "
        "name podman, docker or what takes their arguments as docker_cli in the run profile"
    )
