"""Images on this machine: the capability of sandbox providers to find and build them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pytest_agentbench.errors import UnavailableError
from pytest_agentbench.extensions import CONTAINERS, load_extensions

_LOCAL = "localhost/"
"""Prefix of image names that are built on this machine and are in no registry."""


@dataclass(frozen=True, slots=True)
class LocalImage:
    """An image on this machine. `image_id` changes with its content."""

    image_id: str
    labels: Mapping[str, str]


class LocalImages(Protocol):
    """The images of one kind of sandbox, or of one container engine, on this machine.

    The first call connects. Every method but `close` raises UnavailableError if no engine is available, and
    SandboxError if the engine fails. Names are `NAME:TAG`.
    """

    def find(self, name: str) -> LocalImage | None:
        """Return the image of that name, or None. Nothing is pulled."""
        ...

    def pull(self, name: str) -> LocalImage:
        """Pull the image of that name from its registry, and return it. Raises UnavailableError if that fails."""
        ...

    def build(
        self, name: str, dockerfile: str, context: Path, labels: Mapping[str, str], *, network: bool = False
    ) -> None:
        """Build an image from the text of a Dockerfile, files of the folder `context`, and local images."""
        ...

    def run(self, name: str, program: str, arguments: Sequence[str]) -> tuple[int, str]:
        """Return exit code and output of a program in the image, read-only and without network."""
        ...

    def tag(self, name: str, as_name: str) -> None:
        """Give the image one more name, which an older image loses."""
        ...

    def remove(self, name: str) -> None:
        """Remove the name, and the image with its last name. A missing image is no error."""
        ...

    def close(self) -> None:
        """End connections. May be called without any other call."""
        ...


def engine_option(engine: str) -> str:
    """Return the option with which commands build images for an engine or a kind of sandbox, or an empty text."""
    return "" if engine == CONTAINERS else f" --engine {engine}"


def is_local(name: str) -> bool:
    """Return whether images of that name are built on this machine and never pulled."""
    return name.startswith(_LOCAL)


def not_built(name: str, engine: str = CONTAINERS) -> UnavailableError:
    """Return the error for a missing local image of an engine or a kind of sandbox."""
    builders: Iterable[Callable[[str], str]] = load_extensions("image").values()
    ways = "".join(f"{tell(engine)}, or " for tell in builders)
    return UnavailableError(f"{engine} has no image {name!r}, and `{_LOCAL}` ones are never pulled: {ways}name another")
