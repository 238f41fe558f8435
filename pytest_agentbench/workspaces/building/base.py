"""What building an image asks of a container engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

BUILD_SECONDS = 1800
"""The longest that a pull or a build may take."""

CHECK_SECONDS = 120
"""The longest that a program in the image may take."""


@dataclass(frozen=True, slots=True)
class LocalImage:
    """An image that the engine has, under the id that the engine gave it."""

    image_id: str
    labels: Mapping[str, str]


class ImageBuilder(Protocol):
    """Every method raises SandboxError where the engine fails."""

    def find(self, name: str) -> LocalImage | None:
        """The image of that name, None where the engine has none. Nothing is pulled."""

    def pull(self, name: str) -> None:
        """Gets the image of that name from its registry. Raises UnavailableError where it is not to be had."""

    def build(self, folder: Path, name: str, labels: Mapping[str, str]) -> None:
        """Builds the folder's Dockerfile without network, from images that the engine has."""

    def run(self, name: str, program: str, arguments: Sequence[str]) -> tuple[int, str]:
        """Exit code and output of a program in a container of the image, without network, that it cannot write to."""

    def tag(self, name: str, as_name: str) -> None:
        """Gives the image one more name, which an older image loses."""

    def remove(self, name: str) -> None:
        """Takes the name away, and the image with its last one. No such image is no error."""

    def close(self) -> None:
        """Ends connections."""
