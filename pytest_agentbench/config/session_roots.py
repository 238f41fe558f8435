"""Roots of a session: the user's root, and the roots of guests."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pytest_agentbench.config.base import Guest
from pytest_agentbench.config.folders import is_inside
from pytest_agentbench.config.grants import NO_TRUST, Trust, decide_trust, written_folders
from pytest_agentbench.config.root_search import (
    NamedRoot,
    find_base,
    find_nearest,
    find_project,
    find_top,
    holds_configuration,
    search_root,
)
from pytest_agentbench.config.roots import ConfigRoot, has_file
from pytest_agentbench.errors import ConfigError

_SKIPPED_FOLDERS = frozenset(
    {"__pycache__", "node_modules", "venv", "build", "dist", "workspace", "runs", "evaluations", "cassettes"}
)
_MAX_DEPTH = 3
"""How many folders below the paths a root is looked for: a command may be run in somebody's home."""
_UNDECIDED = "several folders may be yours"
_REMEDY = "name yours as the only path, or by agentbench_configs"
_MOST_LISTED = 5


class HasCases(Protocol):
    """Decides whether a file or folder holds a case, in addition to cases in the folder `without`."""

    def __call__(self, path: Path, without: Path | None, /) -> bool:
        """Return whether it holds one."""


class SessionRoots(NamedTuple):
    """The session's root, `own`, and the rules that make other roots guests.

    `own` is None if there is no root, or if there are several next to each other and no option names the user's. With
    `configured` configuration of other roots is ignored, and files below another root still belong to a guest. `start`
    is the folder that the session is started in, `tops` are the outermost folders that may be a root of its paths.
    `reason` explains to people why `own` was chosen.
    """

    start: Path
    own: Path | None
    configured: bool = False
    trust: Trust = NO_TRUST
    tops: tuple[str, ...] = ()
    reason: str = ""

    @property
    def main(self) -> ConfigRoot:
        """Return the user's root, or the root of the start directory if the user has none."""
        if self.own is None:
            return self.around(self.start)
        return _make_root(str(self.own), None, None)

    def describe(self) -> str:
        """Return a description of the session's root: its folder, and why it was chosen."""
        if self.own is None:
            return f"none, {self.reason}; {_REMEDY}" if self.reason else "none"
        return f"{self.own} ({self.reason})"

    def pack(self) -> tuple[Any, ...]:
        """Return the roots as xdist can send them to a worker."""
        own = None if self.own is None else str(self.own)
        return (str(self.start), own, self.configured, tuple(self.trust), self.tops, self.reason)

    @classmethod
    def unpack(cls, packed: Sequence[Any]) -> SessionRoots:
        """Return the roots that a controller packed."""
        start, own, configured, (folders, ended), tops, reason = packed
        trust = Trust(tuple(folders), tuple((folder, why) for folder, why in ended))
        return cls(Path(start), None if own is None else Path(own), configured, trust, tuple(tops), reason)

    def of(self, file: Path) -> ConfigRoot:
        """Return the root that a file belongs to; cheap to ask for every file.

        That is the nearest folder with configuration above it, up to the session's top, else the project that the file
        and the start directory share. If a root is configured it is that one, for whose guest it may be.
        """
        return _root_of(os.path.dirname(file), self)

    def top_of(self, folder: str) -> str:
        """Return the outermost folder that may be a root of a folder's files."""
        # That of a path that was asked for: the folders inside of it could show another, deeper one.
        tops = [top for top in self.tops if is_inside(folder, top)]
        if tops:
            return min(tops, key=len)
        return find_top(folder, str(self.start))

    def around(self, path: Path) -> ConfigRoot:
        """Return the root of a file or of a folder's files."""
        return self.of(path / "any" if path.is_dir() else path)

    def of_suite(self, name: str, here: Path) -> ConfigRoot:
        """Return the root with the suite `name` (id or path).

        It is the configured one, else the one around the suite's file or around `here`, else the only one with such a
        suite at most three folders below.

        :raises ConfigError: no root or several have the suite.
        """
        if self.configured and self.own is not None:
            return _make_root(str(self.own), None, None)
        if (here / name).is_file():
            return self.of(here / name)
        around = self.of(here / "any")
        below = [self.of(suites) for depth in ("", "*/", "*/*/") for suites in sorted(here.glob(f"{depth}suites"))]
        found = [root for root in dict.fromkeys([around, *below]) if has_file(root, "suites", name)]
        # A guest's suite of the same name must not make the user's ambiguous.
        found = [root for root in found if not root.is_guest] or found
        if len(found) > 1:
            places = " and ".join(str(root.path) for root in found)
            raise ConfigError(f"suite {name!r} is ambiguous: {places} have one; name a path, or set agentbench_configs")
        if not found:
            searched = below[0] if len(below) == 1 else around
            searched.find("suites", name)  # raises, with the names of all suites
        return found[0]


def decide_roots(
    asked: Sequence[Path],
    start: Path,
    named: NamedRoot | None = None,
    *,
    trust: Trust | None = None,
    trusted: Iterable[Path] = (),
    written: Iterable[str] | None = None,
    has_cases: HasCases = lambda folder, without: without is None,
) -> SessionRoots:
    """Return the roots of a session that is started in `start` for some paths.

    The session's root is found by `search_root`; else it is the only outermost one with cases at most three folders
    below the paths, or below the start directory's project, if it holds all cases there. All processes of a session
    get the same result. A worker gets `trust` from its controller; else `trusted` folders and the user's grants decide.
    `written` are the folders that the session writes to; None: the folders of a session whose rootdir is `start`.

    :raises ConfigError: a pytest file or the user's grants cannot be read.
    """
    # Textually, as pytest does: `..` behind a link is not resolved.
    paths = [Path(os.path.abspath(path)) for path in asked]
    search = search_root(paths, start, named)
    own, reason = search.own, search.reason
    if own is None:
        own, reason = _find_only_root(paths, start, has_cases)
        if own is None:
            own, reason = _find_only_root(
                [Path(find_base(str(paths[0]), str(start), search.tops[0]))], start, has_cases
            )
    elif not search.configured and _follows_cases(paths, own, has_cases):
        own, reason = None, _UNDECIDED
    if trust is None:
        if written is None:
            written = written_folders(start)
        trust = decide_trust(Path(os.path.commonpath(search.tops)), [*trusted, *search.trusted], written)
    return SessionRoots(start, own, search.configured, trust, search.tops, reason)


def find_root(case_file: Path, start: Path, configured: Path | None = None) -> ConfigRoot:
    """Return the root of a file that alone is asked for; cheap to ask for every file.

    A guest's is one unless the user granted it more before.

    :raises ConfigError: the user's grants cannot be read.
    """
    return _decide_for_one(case_file.parent, start, configured).of(case_file)


@lru_cache(maxsize=10_000)
def _decide_for_one(folder: Path, start: Path, configured: Path | None) -> SessionRoots:
    search = search_root([folder], start, None if configured is None else NamedRoot(configured))
    roots = SessionRoots(start, search.own, search.configured, NO_TRUST, search.tops, search.reason)
    if not roots.of(folder / "any").is_guest:
        return roots
    return roots._replace(trust=decide_trust(Path(search.tops[0]), search.trusted, written_folders(start)))


def _follows_cases(paths: Sequence[Path], own: Path, has_cases: HasCases) -> bool:
    """Return whether a path without configuration around it comes first and has cases: a guest may come second."""
    before = itertools.takewhile(lambda path: not is_inside(str(path), str(own)), paths)
    return any(path.exists() and has_cases(path, None) for path in before)


def _find_only_root(folders: Sequence[Path], start: Path, has_cases: HasCases) -> tuple[Path | None, str]:
    """Return the only root with cases below folders, and why. With cases outside of it, it may be a guest's."""
    folders = [folder for folder in folders if folder.is_dir()]
    roots = list(dict.fromkeys(root for folder in folders for root in _walk_roots(str(folder))))
    if len(roots) > 1:
        roots = [root for root in roots if has_cases(root, None)]
    if len(roots) == 1 and not any(has_cases(folder, roots[0]) for folder in folders):
        return roots[0], "the only folder with configuration below the paths, and it holds all cases"
    if len(roots) > 1:
        return None, f"{_UNDECIDED} ({_list_folders(roots, start)})"
    return None, _UNDECIDED if roots else ""


def _list_folders(folders: Sequence[Path], start: Path) -> str:
    """Return the first of the folders as paths that a command started in `start` takes, and the number of others."""
    names = [os.path.relpath(folder, start) for folder in folders[:_MOST_LISTED]]
    if len(folders) > _MOST_LISTED:
        names.append(f"{len(folders) - _MOST_LISTED:,} more")
    return ", ".join(names)


def _walk_roots(folder: str, deep: int = _MAX_DEPTH) -> Iterator[Path]:
    """Yield each outermost root; those below it are not looked for."""
    if holds_configuration(folder):
        yield Path(folder)
        return
    if deep == 0:
        return
    try:
        with os.scandir(folder) as entries:
            folders = sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return  # collection reports the error
    for each in folders:
        name = os.path.basename(each)
        if not name.startswith(".") and name not in _SKIPPED_FOLDERS:
            yield from _walk_roots(each, deep - 1)


# Cached by value for the process: a session asks for each of thousands of files, and its roots never change.
@lru_cache(maxsize=100_000)
def _root_of(folder: str, roots: SessionRoots) -> ConfigRoot:
    top = roots.top_of(folder)
    return _root_at(find_nearest(folder, top) or find_base(folder, str(roots.start), top), roots)


@cache  # for each root, not for each of thousands of folders: links are resolved here
def _root_at(place: str, roots: SessionRoots) -> ConfigRoot:
    own = None if roots.own is None else str(roots.own)
    path = own if own is not None and roots.configured else place
    if _is_guest(place, own, roots):
        ended = roots.trust.why_ended(os.path.realpath(place))
        return _make_root(path, own, Guest(Path(place), ended, unnamed=own is None))
    is_trusted = own != path and roots.trust.covers(os.path.realpath(path))
    return _make_root(path, own if is_trusted else None, None)


def _is_guest(place: str, own: str | None, roots: SessionRoots) -> bool:
    """Return whether a place is a guest's root. A folder without configuration belongs to the root around it."""
    if not holds_configuration(place):
        return False
    real = Path(os.path.realpath(place))  # a link may lead out of a trusted folder
    if own is not None:
        user = Path(os.path.realpath(own))
        # A folder around a configured root is the user's too.
        if real == user or (roots.configured and user.is_relative_to(real)):
            return False
    return not roots.trust.covers(str(real))


def naming_folder(path: Path, root: ConfigRoot) -> Path:
    """Return the folder below which a data file's path names its rows.

    It is the configuration root; without configuration the nearest project, else the file's own folder. So the names
    are the same for each start directory, and no folder above the project changes them.
    """
    if holds_configuration(str(root.path)):
        return root.path
    return Path(find_project(str(path.parent)) or path.parent)


@cache
def _make_root(path: str, host: str | None, guest: Guest | None) -> ConfigRoot:
    return ConfigRoot(Path(path), _make_root(host, None, None) if host is not None else None, guest)
