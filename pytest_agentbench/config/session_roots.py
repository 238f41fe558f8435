"""Roots of a session: the user's, the guests beside and below it, and what the user granted them."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from pytest_agentbench.bounded.files import open_file
from pytest_agentbench.config.base import Guest
from pytest_agentbench.config.roots import ConfigRoot, has_file, root_markers
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.user_folder import TRUST_FILE, user_folder

_VERSION = 1
_WRITTEN = {".git": ("",), ".pytest_cache": ("",), "__pycache__": (".pyc",), "cassettes": (".yaml",)}
"""What git, Python and sessions themselves write: in a folder of this name files that end so."""
_MAX_FILES = 100_000


class Grant(NamedTuple):
    """A grant: a folder that may act, and the digest of each file in it, by its path there."""

    folder: str
    files: dict[str, str]

    @classmethod
    def of(cls, folder: Path) -> Grant:
        """Return the grant of a folder as it is now. Raises ConfigError."""
        real = os.path.realpath(folder)
        return cls(real, digest_files(Path(real)))

    def find_change(self) -> str | None:
        """Return why the grant holds no longer; None where every file is as it was."""
        try:
            now = digest_files(Path(self.folder))
        except (ConfigError, OSError) as error:
            return str(error)
        for name in sorted({*now, *self.files}):
            if now.get(name) != self.files.get(name):
                word = "is new" if name not in self.files else "has changed" if name in now else "is gone"
                return f"{name} {word}"
        return None


def find_trust_file() -> Path:
    """Return the file of the grants, in the folder that the platform has for a user's configuration."""
    return user_folder() / TRUST_FILE


def read_grants() -> list[Grant]:
    """Return all grants, broken ones too.

    :raises ConfigError: their file cannot be read, or others may write it.
    """
    path = find_trust_file()
    try:
        with open_file(path) as file:
            status = os.fstat(file.fileno())
            text = file.read()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    # Asked of the open file: whoever can write it can grant themselves to run programs on this machine.
    if sys.platform != "win32" and (status.st_uid not in (0, os.geteuid()) or stat.S_IMODE(status.st_mode) & 0o022):
        raise ConfigError(f"{path}: found a file that others may write, expected your own, with mode 600: chmod 600")
    try:
        data: Any = json.loads(text)
        if data["version"] != _VERSION:
            raise ValueError(f"found version {data['version']!r}, expected {_VERSION}")
        return [Grant(str(each["folder"]), dict(each["files"])) for each in data["grants"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: is no list of grants ({error}); remove it, and grant again") from error


def save_grant(grant: Grant) -> None:
    """Store a grant: a folder may act as it asks for as long as its files stay as they are. Raises ConfigError."""
    _write_grants([*(each for each in read_grants() if each.folder != grant.folder), grant])


def remove_grant(folder: Path) -> bool:
    """Remove a grant; return False where there is none. Raises ConfigError."""
    real, grants = os.path.realpath(folder), read_grants()
    kept = [each for each in grants if each.folder != real]
    if len(kept) < len(grants):
        _write_grants(kept)
    return len(kept) < len(grants)


def _write_grants(grants: list[Grant]) -> None:
    """Put a file of mode 600 in the place of the old one."""
    path = find_trust_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".trust-")  # which makes it with mode 600
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({"version": _VERSION, "grants": [grant._asdict() for grant in grants]}, file, indent=1)
        os.replace(temporary, path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error


def digest_files(folder: Path) -> dict[str, str]:
    """Return the digest of each file below a folder, links with what they lead to; no link is walked into.

    :raises ConfigError: there are too many, or one cannot be read.
    """
    found: dict[str, str] = {}
    for path in _walk_files(str(folder), ()):
        found[os.path.relpath(path, folder)] = _digest_file(path)
        if len(found) > _MAX_FILES:
            raise ConfigError(f"{folder}: found more than {_MAX_FILES:,} files, expected a folder of cases")
    return found


def _walk_files(folder: str, written: tuple[str, ...]) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            ordered = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be read: {error.strerror or error}") from error
    for entry in ordered:
        # A link counts by its target's text below: walking into one could leave the folder, or never end.
        if entry.is_dir(follow_symlinks=False):
            if (below := _WRITTEN.get(entry.name, written)) != ("",):
                yield from _walk_files(entry.path, below)
        elif not entry.name.endswith(written):
            yield entry.path


def _digest_file(path: str) -> str:
    try:
        link = f"{os.readlink(path)} " if os.path.islink(path) else ""
        if not os.path.isfile(path):  # a folder's link, a link to nothing, a FIFO: reading it may never end
            return f"{link}{stat.filemode(os.lstat(path).st_mode)}"
        with open_file(path, None) as file:
            return link + hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error


class Trust(NamedTuple):
    """The trust of a session: the folders that the user trusts, links resolved, and why some are so no longer."""

    folders: tuple[str, ...] = ()
    ended: tuple[tuple[str, str], ...] = ()

    def covers(self, real: str) -> bool:
        """Return whether a folder is one of them, or lies below one."""
        return any(Path(real).is_relative_to(folder) for folder in self.folders)

    def why_ended(self, real: str) -> str | None:
        """Return what ended the grant of a folder; None where there was none."""
        return next((reason for folder, reason in self.ended if Path(real).is_relative_to(folder)), None)


NO_TRUST = Trust()


def decide_trust(rootdir: Path, named: Iterable[Path] = ()) -> Trust:
    """Return what a session at `rootdir` may trust.

    That is the folders that it names, and those granted before in or around it, which are read to see whether they are
    as they were.

    :raises ConfigError: the user's grants cannot be read.
    """
    folders, ended = [os.path.realpath(path) for path in named], []
    top = Path(os.path.realpath(rootdir))
    for grant in read_grants():
        folder = Path(grant.folder)
        if not (folder.is_relative_to(top) or top.is_relative_to(folder)):
            continue
        reason = grant.find_change()
        if reason is None:
            folders.append(grant.folder)
        else:
            ended.append((grant.folder, reason))
    return Trust(tuple(folders), tuple(ended))


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
