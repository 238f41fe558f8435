"""The paths that commands are given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.session_roots import SessionRoots, decide_roots
from pytest_agentbench.errors import ConfigError

_PROJECT = ("pyproject.toml", "pytest.ini", "tox.ini", "setup.cfg", ".git")


def require_existing(paths: Iterable[Path]) -> list[Path]:
    """Return the paths, absolute.

    :raises ConfigError: one does not exist, or lies where this user may not look.
    """
    found = [path.absolute() for path in paths]
    for path in found:
        try:
            # It raises where a folder above may not be entered.
            is_there = path.exists()
        except OSError as error:
            raise ConfigError(f"{path}: cannot be looked into: {error.strerror}") from error
        if not is_there:
            raise ConfigError(f"{path}: there is no such file or folder")
    return found


def project_folder(path: Path) -> Path:
    """Return the folder up to which a config root is looked for: the project's, else where the command is run.

    Of a path that does not lie below that, its own. So pytest chooses its rootdir where no file names one.
    """
    start = path if path.is_dir() else path.parent
    for folder in (start, *start.parents):
        if any((folder / name).exists() for name in _PROJECT):
            return folder
    here = Path.cwd()
    return here if start.is_relative_to(here) else start


def session_roots(paths: Sequence[Path]) -> SessionRoots:
    """Return the configuration roots of a command that is given these paths: those of a pytest session of them."""
    from pytest_agentbench.sources.discovery import has_cases

    roots = decide_roots(paths, Path.cwd(), has_cases=has_cases)
    if roots.trust.folders:
        from pytest_agentbench.config.source_imports import import_sources_below

        import_sources_below(roots.trust.folders)
    return roots


def enclosing_root(path: Path) -> ConfigRoot:
    """Return the config root of a file, or of what lies in a folder, that alone is given."""
    path = path.absolute()
    return session_roots([path]).around(path)
