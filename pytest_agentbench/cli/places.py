"""The paths that commands are given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pytest_agentbench.config.profiles import RunProfile
from pytest_agentbench.config.root_search import find_project
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.session_roots import SessionRoots, decide_roots
from pytest_agentbench.errors import ConfigError


def require_existing(paths: Iterable[Path]) -> list[Path]:
    """Return the paths, absolute.

    :raises ConfigError: one does not exist, or this user may not enter its folder.
    """
    found = [path.absolute() for path in paths]
    for path in found:
        try:
            # It raises if this user may not enter a folder above.
            is_there = path.exists()
        except OSError as error:
            raise ConfigError(f"{path}: cannot be looked into: {error.strerror}") from error
        if not is_there:
            raise ConfigError(f"{path}: there is no such file or folder")
    return found


def list_case_files(path: Path) -> Iterator[Path]:
    """Yield the files with cases below a folder, or the file itself. Raises ConfigError."""
    from pytest_agentbench.sources.discovery import find_cases

    if path.is_dir():
        yield from find_cases(path)
    else:
        yield path


def find_run_profile(root: ConfigRoot, name: str | None) -> RunProfile:
    """Return the run profile of that name, for None the default one. Raises ConfigError."""
    if name is None:
        return RunProfile.default()
    return root.run_profile(name)


def project_folder(path: Path) -> Path:
    """Return the folder up to which a config root is searched: the nearest project's, else the current folder.

    If the path is outside of both, it is the path's own folder. pytest chooses its rootdir the same way.
    """
    start = path if path.is_dir() else path.parent
    if (project := find_project(str(start.absolute()))) is not None:
        return Path(project)
    here = Path.cwd()
    if start.is_relative_to(here):
        return here
    return start


def session_roots(paths: Sequence[Path]) -> SessionRoots:
    """Return the configuration roots that a pytest session of these paths would have."""
    from pytest_agentbench.sources.discovery import has_cases

    roots = decide_roots(paths, Path.cwd(), has_cases=has_cases)
    if roots.trust.folders:
        from pytest_agentbench.config.source_imports import import_sources_below

        import_sources_below(roots.trust.folders)
    return roots


def enclosing_root(path: Path) -> ConfigRoot:
    """Return the config root of a file or folder, as if it was the only path of a command."""
    path = path.absolute()
    return session_roots([path]).around(path)
