"""Search for the folder whose configuration is the user's: one function for pytest and every command.

Every session searches before it knows of a case, so this module imports no model of a configuration file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path

from pytest_agentbench.bounded.files import MAX_TEXT, read_file
from pytest_agentbench.config.folders import is_inside
from pytest_agentbench.config.pytest_files import PYTEST_FILES, read_pytest_options
from pytest_agentbench.extensions import find_extension, installed_names

_OWN_FOLDERS = ("run_profiles", "evaluation_profiles", "suites")
_MODELS = "models.yaml"
_YAML = (".yaml", ".yml")
_PROJECT = (*PYTEST_FILES, "setup.py", ".git")
"""The names of files that mark the folder of a project."""
CONFIGS, TRUST = "agentbench_configs", "agentbench_trust"


@dataclass(frozen=True, slots=True)
class RootSearch:
    """The result of a search.

    `own` is the user's root, None if no folder around the paths holds configuration. `configured`: the option
    `agentbench_configs` names it. `tops` are the outermost folders that may be a root of the paths. `trusted` are the
    folders that the user's pytest files trust. `reason` explains to people why this root was chosen.
    """

    own: Path | None
    configured: bool
    tops: tuple[str, ...]
    trusted: tuple[Path, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class NamedRoot:
    """The user's own words of the command line (`-c`, `-o`), in place of the pytest files around the paths."""

    configs: Path | None
    trusted: tuple[Path, ...] = ()


def search_root(asked: Sequence[Path], start: Path, named: NamedRoot | None = None) -> RootSearch:
    """Return the user's root of a session that is started in `start` for some paths.

    It is the folder that `agentbench_configs` names; else, for the first path that has one, the outermost folder with
    configuration around the path, at or below `find_top`. Raises ConfigError if a pytest file cannot be read.
    """
    paths = _list_folders(asked) or [str(start)]
    tops = tuple(dict.fromkeys(find_top(path, str(start)) for path in paths))
    if named is not None and named.configs is not None:
        return RootSearch(named.configs, True, tops, named.trusted, f"named by {CONFIGS} on the command line")
    own: str | None = None
    trusted: list[Path] = []
    for path in paths:
        top = find_top(path, str(start))
        outermost = _find_outermost(path, top, str(start))
        if named is None:
            inner = outermost or find_user_folder(path, str(start), top)
            configs = _read_named_configs(path, top, inner)
            if configs is not None:
                folder, root = configs
                trusted += _read_trusted(path, top, folder)
                return RootSearch(root, True, tops, tuple(trusted), f"named by {CONFIGS} in {folder}")
            trusted += _read_trusted(path, top, inner)
        if own is None:
            own = outermost
    if named is not None:
        trusted += named.trusted
    reason = "the outermost folder with configuration around the paths"
    return RootSearch(None if own is None else Path(own), False, tops, tuple(dict.fromkeys(trusted)), reason)


@lru_cache(maxsize=100_000)
def find_top(path: str, start: str) -> str:
    """Return the outermost folder that may be the root of a path.

    That is the outermost repository that encloses the path and the start directory, else the start directory if that
    encloses the path, else the path's own project. Nothing inside the path's folder can move it inwards: a nested
    repository or project file is passed over.
    """
    start = _find_start_above(path, start) or start
    common = _common_folder(path, start)
    if common is not None:
        # The repository of the folder that both share: one that encloses the path alone may be a guest's.
        repository = _find_repository(common)
        if repository is not None:
            return repository
        if common in (start, path):
            return common  # the start directory, or the path itself if that encloses the start directory
    return _find_project_beside(path, common)


def _find_project_beside(path: str, common: str | None) -> str:
    """Return the outermost project of a path that does not share a repository with the start directory.

    Folders above the start directory do not count, but a project file there shows that all below belongs together.
    """
    folders = [folder for folder in climb(path, None) if common is None or not is_inside(common, folder)]
    folders = _own_folders(folders)
    shared = [] if common is None else _own_folders(climb(common, None))
    if not any(_is_project(folder) for folder in shared):
        folders = next((folders[: at + 1] for at in reversed(range(len(folders))) if _is_project(folders[at])), folders)
    if folders:
        return folders[-1]
    return path


@lru_cache(maxsize=100_000)
def find_base(path: str, start: str, top: str) -> str:
    """Return the folder that a path without configuration around it belongs to.

    It is the nearest project of the folder that the path shares with the start directory, at or below `top`.
    """
    common = _common_folder(path, _find_start_above(path, start) or start)
    if common is None or not is_inside(common, top):
        return top
    return next((folder for folder in climb(common, top) if _is_project(folder)), top)


def find_user_folder(path: str, start: str, top: str) -> str:
    """Return the user's folder for a path without configuration around it: pytest files below that folder do not count.

    It is the project that the path and the start directory share, else the path itself.
    """
    base = find_base(path, start, top)
    if _is_project(base):
        return base
    return path


def find_nearest(folder: str, top: str | None) -> str | None:
    """Return the nearest folder with configuration, from `folder` up to `top` (None: `/`), or None."""
    return next((each for each in climb(folder, top) if holds_configuration(each)), None)


def climb(folder: str, top: str | None) -> Iterator[str]:
    """Yield a folder and those above it, up to and including `top`."""
    while True:
        yield folder
        parent = os.path.dirname(folder)
        if folder == top or parent == folder:
            return
        folder = parent


def shows_configuration(asked: Sequence[Path], start: Path) -> bool:
    """Return whether a folder around a path, or a folder in it, holds configuration."""
    for path in _list_folders(asked):
        if _find_outermost(path, find_top(path, str(start)), str(start)) is not None:
            return True
        if os.path.isdir(path) and any(map(holds_configuration, _list_entries(path, folders=True))):
            return True
    return False


def _list_folders(paths: Sequence[Path]) -> list[str]:
    """Return the paths, files by their folders, each once: a command line may name thousands of files."""
    places = map(os.path.abspath, paths)
    return list(dict.fromkeys(os.path.dirname(path) if os.path.isfile(path) else path for path in places))


def _find_outermost(path: str, top: str, start: str) -> str | None:
    folders = [folder for folder in climb(path, top) if folder == start or not _is_shared(folder)]
    return next((folder for folder in reversed(folders) if holds_configuration(folder)), None)


def _common_folder(path: str, start: str) -> str | None:
    try:
        return os.path.commonpath([path, start])
    except ValueError:  # two drives of Windows
        return None


@lru_cache(maxsize=100_000)
def _find_start_above(path: str, start: str) -> str | None:
    """Return the folder above a path that is the start directory by another name: one of them leads through a link."""
    if is_inside(path, start):
        return start
    real = os.path.realpath(start)
    return next((folder for folder in climb(path, None) if os.path.realpath(folder) == real), None)


@lru_cache(maxsize=100_000)
def _find_repository(folder: str) -> str | None:
    """Return the outermost repository that encloses a folder. `.git` is a file in worktrees and submodules."""
    repositories = [each for each in _own_folders(climb(folder, None)) if os.path.exists(f"{each}/.git")]
    if repositories:
        return repositories[-1]
    return None


def _own_folders(folders: Iterator[str] | Sequence[str]) -> list[str]:
    """Return the folders, innermost first, below the user's home and below any folder that all users share.

    A repository at home (of dotfiles) or at `/` encloses downloads and `/tmp` too, so it does not show whose they are.
    """
    home = os.path.expanduser("~")
    homes = {home, os.path.realpath(home)} if os.path.isabs(home) else set()
    found: list[str] = []
    for folder in folders:
        if _is_shared(folder) or any(is_inside(each, folder) for each in homes):
            break
        found.append(folder)
    return found


@lru_cache(maxsize=100_000)
def _is_shared(folder: str) -> bool:
    """Return whether all users of the machine may add files to a folder, as to `/tmp`."""
    try:
        mode = os.stat(folder).st_mode
    except OSError:
        return False
    return bool(mode & stat.S_ISVTX and mode & stat.S_IWOTH)


# The caches here live as long as the process: a command or session reads a folder's state once, so a file that it
# writes itself cannot move its root.
@lru_cache(maxsize=100_000)
def _is_project(folder: str) -> bool:
    return any(os.path.exists(f"{folder}/{name}") for name in _PROJECT)


@lru_cache(maxsize=100_000)
def find_project(folder: str) -> str | None:
    """Return the nearest folder, this one or one above, that holds a file that marks a project; None if none does."""
    return next((each for each in climb(folder, None) if _is_project(each)), None)


@lru_cache(maxsize=100_000)
def holds_configuration(folder: str) -> bool:
    """Return whether a folder is a configuration root.

    Other tools and Python packages use names such as `agents`, `suites` and `models.yaml` too, so these count only if
    they hold configuration of this package.
    """
    if _is_ours(f"{folder}/{_MODELS}"):
        return True
    # Not the folders that a session's plugins add: a guest's conftest.py could make a root of a folder of the user's.
    for name in (*_OWN_FOLDERS, *installed_names("file")):
        path = f"{folder}/{name}"
        if os.path.isdir(path) and (_lists_ours(path) if name in _OWN_FOLDERS else _holds_added(path, name)):
            return True
    return False


def _holds_added(folder: str, name: str) -> bool:
    """Return whether a folder holds files of the kind that a pack adds. A pack is imported only if some may be."""
    below = _list_entries(folder, folders=True)
    if not _list_yaml(folder) and not any(_list_yaml(each) for each in below):
        return False
    kind = find_extension("file", name)
    if kind is None or kind.stem is None:
        return _lists_ours(folder)
    return any(_is_ours(f"{each}/{kind.stem}{suffix}") for each in below for suffix in _YAML)


def _lists_ours(folder: str) -> bool:
    return any(map(_is_ours, _list_yaml(folder)))


def _list_yaml(folder: str) -> list[str]:
    return [path for path in _list_entries(folder, folders=False) if path.endswith(_YAML)]


def _list_entries(folder: str, *, folders: bool) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.path for entry in entries if entry.is_dir() == folders)
    except OSError:
        return []


def _is_ours(path: str) -> bool:
    """Return whether a file contains `schema_version`, as all files of this package do."""
    if not os.path.lexists(path) or os.path.isdir(path):
        return False
    try:
        return b"schema_version" in read_file(Path(path), MAX_TEXT).replace(b"\0", b"")  # YAML may be UTF-16
    except (OSError, ValueError):
        return True  # loading the file reports the error


def _read_named_configs(path: str, top: str, inner: str) -> tuple[str, Path] | None:
    """Return the folder of the pytest file that names the root of a path, and the root; None if none names one.

    The outermost file of the folders that enclose `inner` counts, because a deeper one may be a guest's. Above `top`
    only the file that pytest itself would read counts.
    """
    for folder in _list_pytest_folders(path, top, inner):
        names = read_pytest_options(folder).get(CONFIGS)
        if names:
            return folder, Path(folder, names[0]).resolve()
    return None


def _read_trusted(path: str, top: str, inner: str) -> list[Path]:
    folders = _list_pytest_folders(path, top, inner)
    return [Path(folder, text).resolve() for folder in folders for text in read_pytest_options(folder).get(TRUST, ())]


def _list_pytest_folders(path: str, top: str, inner: str) -> list[str]:
    at_or_below = [folder for folder in climb(path, top) if is_inside(inner, folder)][::-1]
    above = _own_folders(climb(os.path.dirname(top), None))
    nearest = (folder for folder in above if any(os.path.isfile(f"{folder}/{name}") for name in PYTEST_FILES))
    return [*at_or_below, *islice(nearest, 1)]
