"""The kinds of configuration files that packs add: where such a file lies, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from pytest_agentbench.config.base import ConfigFile
from pytest_agentbench.config.documents import Loc
from pytest_agentbench.extensions import extension_names, find_extension, load_extensions

SEAM = "file"
"""The seam: an entry point `file FOLDER`."""


@dataclass(frozen=True)
class FileKind:
    """A kind of configuration file. `name` is that of its schema, `folder` where such files lie in a config root.

    Its file has its id as its stem; with a `stem` each has a folder of its own instead, named by the id. `id_field` is
    the model's field for the id. `problems(path)` is what `agentbench validate` finds beside the model's own.
    """

    name: str
    folder: str
    id_field: str
    model: type[ConfigFile]
    stem: str | None = None
    problems: Callable[[Path], Iterable[tuple[Loc, str]]] = lambda path: ()

    @property
    def pattern(self) -> str:
        """Return where its files lie below the folder."""
        return "*.*" if self.stem is None else f"*/{self.stem}.*"

    def id_of(self, path: Path) -> str:
        """Return the id that the file's place gives it."""
        return path.stem if self.stem is None else path.parent.name


def added_folders() -> frozenset[str]:
    """Return the folders of the kinds that packs add; imports none."""
    return extension_names(SEAM)


def added_kind(folder: str) -> FileKind | None:
    """Return the kind of file that a pack adds for a folder of config roots, None where none does."""
    kind: FileKind | None = find_extension(SEAM, folder)
    return kind


def added_kinds() -> list[FileKind]:
    """Return the kinds of all packs."""
    return list(load_extensions(SEAM).values())
