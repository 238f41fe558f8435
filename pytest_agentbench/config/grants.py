"""Store the user's grants to folders of other authors. Any change of a folder ends its grant."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pytest_agentbench.bounded.files import open_file
from pytest_agentbench.config.folders import MAX_DEPTH, describe_depth, is_inside
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.user_folder import TRUST_FILE, user_folder

_VERSION = 1
_RECORDED = "recorded.txt"
"""The file next to the grants that names the cassettes which sessions recorded in granted folders."""
_CASSETTE = re.compile(r"(^|/)cassettes/([^/]+/)?[^/]+-r[0-9]+\.yaml$")
_MAX_FILES = 100_000


class Grant(NamedTuple):
    """A grant: a folder that may act, and the digest of each file in it, by its path there."""

    folder: str
    files: dict[str, str]

    @classmethod
    def of(cls, folder: Path) -> Grant:
        """Return the grant of a folder as it is now. Raises ConfigError, also for a link to a folder elsewhere."""
        real = os.path.realpath(folder)
        files = digest_files(Path(real))
        for name in files:
            path = os.path.join(real, name)
            if os.path.isdir(path) and not is_inside(os.path.realpath(path), real):
                raise ConfigError(
                    f"{path}: found a link to a folder elsewhere, expected a folder: a grant covers only files "
                    "below the granted folder; copy the link's target there, or remove the link"
                )
        return cls(real, files)

    def find_change(self, written: Iterable[str] = ()) -> str | None:
        """Return why the grant holds no longer; None if every file is as it was, or recorded by a session.

        `written` are the folders that the session itself writes to, links resolved: those below the granted folder are
        left out.
        """
        own = [f"{path}{os.sep}" for path in written if path != self.folder and is_inside(path, self.folder)]
        try:
            now = digest_files(Path(self.folder), own)
            recorded = _read_recorded()
        except (ConfigError, OSError) as error:
            return str(error)
        for name in sorted({*now, *self.files}):
            path, digest = os.path.join(self.folder, name), now.get(name)
            if digest == self.files.get(name) or path.startswith(tuple(own)):
                continue
            if _CASSETTE.search(name) and digest is not None and _recorded_line(path, digest) in recorded:
                continue
            if name not in self.files:
                return f"{name} is new"
            if digest is None:
                return f"{name} is gone"
            return f"{name} has changed"
        return None


def find_trust_file() -> Path:
    """Return the file of the grants, in the folder that the platform has for a user's configuration."""
    return user_folder() / TRUST_FILE


def read_grants() -> list[Grant]:
    """Return all grants, broken ones too.

    :raises ConfigError: their file cannot be read, or others may write it.
    """
    path = find_trust_file()
    text = _read_own(path)
    if text is None:
        return []
    try:
        data: Any = json.loads(text)
        if data["version"] != _VERSION:
            raise ValueError(f"found version {data['version']!r}, expected {_VERSION}")
        return [Grant(str(each["folder"]), dict(each["files"])) for each in data["grants"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: is no list of grants ({error}); remove it, and grant again") from error


def _read_own(path: Path) -> bytes | None:
    """Return the content of a user's file, or None if it is missing. Raises ConfigError if others may write it."""
    try:
        with open_file(path) as file:
            status = os.fstat(file.fileno())
            text: bytes = file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    # Checked on the open file: another user who can write it could grant programs of theirs to run here.
    if sys.platform != "win32" and (status.st_uid not in (0, os.geteuid()) or stat.S_IMODE(status.st_mode) & 0o022):
        raise ConfigError(f"{path}: found a file that others may write, expected your own, with mode 600: chmod 600")
    return text


def note_recording(path: Path, content: bytes) -> None:
    """Note a cassette that the session is about to write, so that it does not end the grant of its folder.

    The file that it replaces must be known too: `auto` writes replayed cassettes again, and would make a planted one
    look recorded. If the user's folder cannot be written, nothing is noted, and the cassette ends the grant.
    """
    if not find_trust_file().exists():
        return
    real = os.path.realpath(path)
    with suppress(ConfigError, OSError):
        grants = [grant for grant in read_grants() if is_inside(real, grant.folder)]
        now = _digest_file(real) if os.path.lexists(real) else None
        known = _read_recorded() if grants else frozenset()
        granted = (grant.files.get(os.path.relpath(real, grant.folder)) for grant in grants)
        if not grants or (now is not None and now not in granted and _recorded_line(real, now) not in known):
            return
        line = _recorded_line(real, hashlib.sha256(content).hexdigest())
        # One write to the end of the file: sessions and workers record at the same time.
        descriptor = os.open(user_folder() / _RECORDED, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, f"{line}\n".encode("ascii"))
        finally:
            os.close(descriptor)


def _recorded_line(path: str, digest: str) -> str:
    return f"{digest} {hashlib.sha256(os.fsencode(path)).hexdigest()}"


def _read_recorded() -> frozenset[str]:
    """Return the lines of all cassettes that sessions recorded in granted folders. Raises ConfigError."""
    return frozenset((_read_own(user_folder() / _RECORDED) or b"").decode("ascii", "replace").splitlines())


def has_grant_near(folder: Path) -> bool:
    """Return whether the user granted a folder in or around this one, if the grants can be read."""
    if not find_trust_file().exists():
        return False
    real = os.path.realpath(folder)
    with suppress(ConfigError):
        return any(is_inside(grant.folder, real) or is_inside(real, grant.folder) for grant in read_grants())
    return False


def save_grant(grant: Grant) -> None:
    """Store a grant: a folder may act as it asks for as long as its files stay as they are. Raises ConfigError."""
    _write_grants([*(each for each in read_grants() if each.folder != grant.folder), grant])


def remove_grant(folder: Path) -> bool:
    """Remove a grant. Return False if the folder has no grant. Raises ConfigError."""
    real, grants = os.path.realpath(folder), read_grants()
    others = [each for each in grants if each.folder != real]
    if len(others) < len(grants):
        _write_grants(others)
    return len(others) < len(grants)


def _write_grants(grants: list[Grant]) -> None:
    """Put a file of mode 600 in the place of the old one."""
    path = find_trust_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".trust-")  # which makes it with mode 600
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({"version": _VERSION, "grants": [grant._asdict() for grant in grants]}, file, indent=1)
        os.replace(temporary, path)  # atomic: a session that reads meanwhile sees the old file or the new one
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error


def digest_files(folder: Path, left_out: Iterable[str] = ()) -> dict[str, str]:
    """Return the digest of each file below a folder. A link's digest covers its target; links to folders are not
    entered.

    `left_out` are paths of folders, with a slash at the end.

    :raises ConfigError: there are too many, they are nested too deep, or one cannot be read.
    """
    digests: dict[str, str] = {}
    for path in _walk_files(str(folder), frozenset(left_out), 0):
        digests[os.path.relpath(path, folder)] = _digest_file(path)
        if len(digests) > _MAX_FILES:
            raise ConfigError(f"{folder}: found more than {_MAX_FILES:,} files, expected a folder of cases")
    return digests


def _walk_files(folder: str, left_out: frozenset[str], depth: int) -> Iterator[str]:
    if depth > MAX_DEPTH:
        raise ConfigError(describe_depth(folder))
    try:
        with os.scandir(folder) as entries:
            ordered = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be read: {error.strerror or error}") from error
    for entry in ordered:
        # A link counts by its target's text below: walking into one could leave the folder, or never end.
        if not entry.is_dir(follow_symlinks=False):
            yield entry.path
        elif f"{entry.path}{os.sep}" not in left_out:
            yield from _walk_files(entry.path, left_out, depth + 1)


def _digest_file(path: str) -> str:
    """Return the SHA-256 of a file; of a link its text too, of other things their kind."""
    try:
        # With the link's text: a link that leads to an equal file elsewhere has changed too.
        link = f"{os.readlink(path)} " if os.path.islink(path) else ""
        if not os.path.exists(path):
            return f"{link}nothing"
        if not os.path.isfile(path):  # a folder's link, a FIFO: reading it may never end
            return f"{link}{stat.filemode(os.stat(path).st_mode)}"
        with open_file(path, None) as file:
            mark = " executable" if os.fstat(file.fileno()).st_mode & 0o111 else ""
            return f"{link}{hashlib.file_digest(file, 'sha256').hexdigest()}{mark}"
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error


class Trust(NamedTuple):
    """The trust of a session: the folders that the user trusts, links resolved, and why some are so no longer."""

    folders: tuple[str, ...] = ()
    ended: tuple[tuple[str, str], ...] = ()

    def covers(self, real: str) -> bool:
        """Return whether a folder is trusted, or is below a trusted one."""
        return any(Path(real).is_relative_to(folder) for folder in self.folders)

    def why_ended(self, real: str) -> str | None:
        """Return why the grant of a folder ended, or None if it had none."""
        return next((reason for folder, reason in self.ended if Path(real).is_relative_to(folder)), None)


NO_TRUST = Trust()


def written_folders(rootdir: Path, output: Path | None = None) -> tuple[str, ...]:
    """Return the folders that a session at `rootdir` itself writes to, and the folder of its Python.

    They may be in a granted folder. The session collects nothing from them.
    """
    places = (output or rootdir / "outputs", rootdir / ".pytest_cache", sys.prefix)
    return tuple(os.path.realpath(place) for place in places)


def decide_trust(rootdir: Path, named: Iterable[Path] = (), written: Iterable[str] = ()) -> Trust:
    """Return the folders that a session at `rootdir` may trust.

    These are the `named` folders, and granted folders in or around `rootdir` if their files are unchanged. Folders in
    `written`, which the session itself writes to, are ignored.

    :raises ConfigError: the user's grants cannot be read.
    """
    written = tuple(written)
    folders, ended = [os.path.realpath(path) for path in named], []
    top = Path(os.path.realpath(rootdir))
    for grant in read_grants():
        folder = Path(grant.folder)
        # `find_change` reads every file of a grant, so grants elsewhere are left out.
        if not (folder.is_relative_to(top) or top.is_relative_to(folder)):
            continue
        reason = grant.find_change(written)
        if reason is None:
            folders.append(grant.folder)
        else:
            ended.append((grant.folder, reason))
    return Trust(tuple(folders), tuple(ended))
