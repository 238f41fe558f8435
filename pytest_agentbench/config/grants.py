"""What the user granted to folders of others: kept in a file of the user's, ended by any change of a folder."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pytest_agentbench.bounded.files import open_file
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
