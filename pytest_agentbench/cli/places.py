"""The paths that commands are given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from pytest_agentbench.config import ConfigRoot, SessionRoots, decide_roots
from pytest_agentbench.errors import ConfigError

_PROJECT = ("pyproject.toml", "pytest.ini", "tox.ini", "setup.cfg", ".git")


def existing(paths: Iterable[Path]) -> list[Path]:
    """The paths, absolute.

    :raises ConfigError: one does not exist, or lies where this user may not look.
    """
    found = [path.absolute() for path in paths]
    for path in found:
        try:
            is_there = path.exists()
        except OSError as error:
            raise ConfigError(f"{path}: cannot be looked into: {error.strerror}") from error
        if not is_there:
            raise ConfigError(f"{path}: there is no such file or folder")
    return found


def project_of(path: Path) -> Path:
    """How far up a config root is looked for: the project's folder, else the path's own."""
    start = path if path.is_dir() else path.parent
    for folder in (start, *start.parents):
        if any((folder / name).exists() for name in _PROJECT):
            return folder
    return start


def session_roots(paths: Sequence[Path]) -> SessionRoots:
    """Return whose the config roots are where a command is given these paths: as in a pytest session of the first
    one's project.
    """
    from pytest_agentbench.sources import has_cases

    return decide_roots(paths, project_of(paths[0]), here=Path.cwd(), has_cases=has_cases)


def root_around(path: Path) -> ConfigRoot:
    """Return the config root of a file, or of what lies in a folder, that alone is given."""
    path = path.absolute()
    return session_roots([path]).around(path)
