"""Roots of a session: the user's, and the guests beside and below it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from pytest_agentbench.config.base import Guest
from pytest_agentbench.config.grants import NO_TRUST, Trust, decide_trust
from pytest_agentbench.config.roots import ConfigRoot, has_file, root_markers
from pytest_agentbench.errors import ConfigError

_SKIPPED_FOLDERS = frozenset(
    {"__pycache__", "node_modules", "venv", "build", "dist", "workspace", "runs", "evaluations", "cassettes"}
)
_MAX_DEPTH = 3
"""How many folders below the paths a root is looked for: a command may be run in somebody's home."""


class SessionRoots(NamedTuple):
    """The session's root, `own`, and what makes every other root a guest.

    `own` is None where there is no root, or several stand beside each other and nobody said which is the user's.
    With `configured` no other root's configuration is read, and what lies below another root is still a guest's.
    """

    rootdir: Path
    own: Path | None
    configured: bool = False
    trust: Trust = NO_TRUST

    def of(self, file: Path) -> ConfigRoot:
        """Return the root that a file belongs to; cheap to ask for every file.

        That is the nearest folder above it, up to rootdir, that holds one of `root_markers`, else rootdir; for a file
        outside rootdir else its own folder. Where a root is configured it is that one, for whose guest it may be.
        """
        return _root_of(os.path.dirname(file), self)

    def around(self, path: Path) -> ConfigRoot:
        """Return the root of a file, or of what lies in a folder."""
        return self.of(path / "any" if path.is_dir() else path)

    def of_suite(self, name: str, here: Path) -> ConfigRoot:
        """Return the root whose suite `name` (id or path) names.

        That is the configured one, else the one around the suite's file or around `here`, else the only one
        with such a suite at most three folders below.

        :raises ConfigError: there is none, or more than one.
        """
        if self.configured and self.own is not None:
            return _make_root(str(self.own), None, None)
        if (here / name).is_file():
            return self.of(here / name)
        around = self.of(here / "any")
        below = [self.of(suites) for depth in ("", "*/", "*/*/") for suites in sorted(here.glob(f"{depth}suites"))]
        found = [root for root in dict.fromkeys([around, *below]) if has_file(root, "suites", name)]
        found = [root for root in found if not root.is_guest] or found
        if len(found) > 1:
            places = " and ".join(str(root.path) for root in found)
            raise ConfigError(f"suite {name!r} is ambiguous: {places} have one; name a path, or set agentbench_configs")
        if not found:
            (below[0] if len(below) == 1 else around).find("suites", name)  # raises, and lists what there is
        return found[0]


def decide_roots(
    asked: Sequence[Path],
    rootdir: Path,
    configured: Path | None = None,
    *,
    trust: Trust = NO_TRUST,
    here: Path | None = None,
    has_cases: Callable[[Path], bool] = lambda _: True,
) -> SessionRoots:
    """Return the roots of a session that was asked for the cases of some paths, from the folder `here`.

    The session's root is the configured one; else the outermost folder with configuration at or below rootdir (of a
    path outside of it: `here`) on the way to the first path that has one; else the only outermost one with cases at
    most three folders below the paths, or below rootdir. All processes of a session come to the same answer.
    """
    if configured is not None:
        return SessionRoots(rootdir, configured, configured=True, trust=trust)
    asked = [Path(os.path.abspath(path)) for path in asked]  # pytest takes `..` for what it says, too
    own = next((found for path in asked if (found := _find_outermost(path, rootdir, here))), None)
    if own is None:
        own = _find_only_root(asked, has_cases) or _find_only_root([rootdir], has_cases)
    return SessionRoots(rootdir, own, trust=trust)


def find_root(case_file: Path, rootdir: Path, configured: Path | None) -> ConfigRoot:
    """Return the root of a file that alone is asked for; cheap to ask for every file.

    A guest's is one unless the user granted it more before.

    :raises ConfigError: the user's grants cannot be read.
    """
    folder = case_file.parent
    if not folder.is_relative_to(rootdir):
        rootdir = Path(_find_above(str(folder), str(rootdir)) or folder)
    return _decide_for_one(folder, rootdir, configured).of(case_file)


@lru_cache(maxsize=10_000)
def _decide_for_one(folder: Path, rootdir: Path, configured: Path | None) -> SessionRoots:
    own = configured or _find_outermost(folder, rootdir, None)
    roots = SessionRoots(rootdir, own, configured is not None)
    return roots._replace(trust=decide_trust(rootdir)) if roots.of(folder / "any").is_guest else roots


def _find_outermost(path: Path, rootdir: Path, here: Path | None) -> Path | None:
    top = next((top for top in (rootdir, here) if top is not None and path.is_relative_to(top)), None)
    found = None if top is None else _find_outermost_below(str(path), str(top))
    return None if found is None else Path(found)


@lru_cache(maxsize=100_000)
def _find_outermost_below(folder: str, top: str) -> str | None:
    above = None if folder == top else _find_outermost_below(os.path.dirname(folder), top)
    return above or (folder if _is_marked(folder) else None)


def _find_only_root(folders: Sequence[Path], has_cases: Callable[[Path], bool]) -> Path | None:
    found = list(dict.fromkeys(root for folder in folders if folder.is_dir() for root in _walk_roots(str(folder))))
    if len(found) > 1:
        found = [root for root in found if has_cases(root)]
    return found[0] if len(found) == 1 else None


def _walk_roots(folder: str, deep: int = _MAX_DEPTH) -> Iterator[Path]:
    """Yield each outermost root; those below it are not looked for."""
    if _is_marked(folder):
        yield Path(folder)
        return
    if deep == 0:
        return
    try:
        with os.scandir(folder) as entries:
            folders = sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return  # collecting it says why
    for each in folders:
        name = os.path.basename(each)
        if not name.startswith(".") and name not in _SKIPPED_FOLDERS:
            yield from _walk_roots(each, deep - 1)


@lru_cache(maxsize=100_000)
def _root_of(folder: str, roots: SessionRoots) -> ConfigRoot:
    return _root_at(_find_above(folder, str(roots.rootdir)) or folder, roots)


@cache  # for each root, not for each of thousands of folders: links are resolved here
def _root_at(place: str, roots: SessionRoots) -> ConfigRoot:
    own = None if roots.own is None else str(roots.own)
    path = own if own is not None and roots.configured else place
    if not _is_guest(place, own, roots):
        return _make_root(path, own if own != path and roots.trust.covers(os.path.realpath(path)) else None, None)
    return _make_root(
        path, own, Guest(Path(place), roots.trust.why_ended(os.path.realpath(place)), unnamed=own is None)
    )


def _is_guest(place: str, own: str | None, roots: SessionRoots) -> bool:
    """Return whether a place is a guest's root. A folder without configuration is none: it belongs to what lies around
    it.
    """
    if not _is_marked(place):
        return False
    real = Path(os.path.realpath(place))  # a link may lead out of a trusted folder
    if own is not None:
        user = Path(os.path.realpath(own))
        if real == user or (roots.configured and user.is_relative_to(real)):
            return False
    return not roots.trust.covers(str(real))


@lru_cache(maxsize=100_000)
def _find_above(folder: str, rootdir: str) -> str | None:
    if folder == rootdir or _is_marked(folder):
        return folder
    parent = os.path.dirname(folder)
    return _find_above(parent, rootdir) if parent != folder else None


_PROJECT = ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg", "setup.py", ".git")


def naming_folder(path: Path, root: ConfigRoot) -> Path:
    """Return the folder below which a data file's path names its rows, the same wherever a session is started.

    The config root. A session that sees none (pytest's rootdir moves with its arguments and where it is started) takes
    the nearest folder above the file with configuration, inside of its repository, else the project, else its own.
    """
    if _is_marked(str(root.path)):
        return root.path
    folder = str(path.parent)
    return Path(_find_marked(folder) or find_project(folder) or folder)


@lru_cache(maxsize=100_000)
def _find_marked(folder: str) -> str | None:
    if _is_marked(folder):
        return folder
    parent = os.path.dirname(folder)
    return None if parent == folder or os.path.exists(f"{folder}/.git") else _find_marked(parent)


@lru_cache(maxsize=100_000)
def find_project(folder: str) -> str | None:
    """Return the nearest folder, this one or one above, that holds what marks a project; None where none does."""
    if any(os.path.exists(f"{folder}/{name}") for name in _PROJECT):
        return folder
    parent = os.path.dirname(folder)
    return None if parent == folder else find_project(parent)


@lru_cache(maxsize=100_000)
def _is_marked(folder: str) -> bool:
    return any(os.path.exists(f"{folder}/{marker}") for marker in root_markers())


@cache
def _make_root(path: str, host: str | None, guest: Guest | None) -> ConfigRoot:
    return ConfigRoot(Path(path), _make_root(host, None, None) if host is not None else None, guest)
