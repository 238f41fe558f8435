"""Images of containers, and what to say of those that are missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pytest_agentbench.errors import UnavailableError
from pytest_agentbench.extensions import load_extensions

_LOCAL = "localhost/"
"""What names of images begin with that are made on this machine, and are in no registry."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image that the daemon has. `volumes` are the paths at which it wants volumes."""

    name: str
    image_id: str
    volumes: tuple[str, ...]


def is_local(name: str) -> bool:
    """Whether an image of that name is made on this machine, and never pulled."""
    return name.startswith(_LOCAL)


def not_built(name: str, program: str = "docker") -> UnavailableError:
    """What to say of a local image that is missing."""
    builders: Iterable[Callable[[str], str]] = load_extensions("image").values()
    ways = ", ".join(tell(program) for tell in builders)
    return UnavailableError(
        f"{program} has no image {name!r}, and `{_LOCAL}` ones are never pulled: {ways}{', or ' if ways else ''}name another"
    )


def not_pulled(name: str, why: str, program: str) -> UnavailableError:
    """What to say of an image that cannot be had."""
    return UnavailableError(
        f"the image {name!r} is not on this machine and cannot be pulled ({why}): `{program} pull` or "
        f"`{program} load` it, or name another"
    )
