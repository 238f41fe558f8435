"""Create a folder for each run, each with its own user id, and remove the folders of dead sessions."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import count, pairwise
from pathlib import Path

from pytest_agentbench.bounded.locks import try_lock
from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.workspace import Workspace

_FIRST, _EACH = 2**30, 2**16
"""First user id, and number of ids of each session. No system assigns ids from 2^30 to 2^31."""

_SMALL_FIRST, _SMALL_END = 10_000, 60_000
"""User ids in a user namespace with only 2^16 mapped ids, as in a rootless container."""


class Owners:
    """User ids of one session's workspaces. Concurrent sessions almost certainly have other ids."""

    def __init__(self) -> None:
        first, end = _owner_ids()
        self._first, self._size = first, min(_EACH, end - first)
        if end - first > _EACH:
            self._first += _EACH * secrets.randbelow((end - first) // _EACH)

    def of(self, number: int) -> int | None:
        """Return the user and group id for the session's workspace of that number, or None for this process's."""
        if self._size:
            return self._first + number % self._size
        return None


def _owner_ids() -> tuple[int, int]:
    """Return the range of usable ids, empty if this process cannot give files to other users."""
    if os.getuid() != 0:
        return 0, 0
    for first, end in ((_FIRST, 2**31), (_SMALL_FIRST, _SMALL_END)):
        if all(_are_ids_mapped(name, first, end) for name in ("uid_map", "gid_map")):
            return first, end
    return 0, 0


def _are_ids_mapped(name: str, first: int, end: int) -> bool:
    """Return whether this process's user namespace maps all of these ids."""
    try:
        lines = Path(f"/proc/self/{name}").read_text(encoding="ascii").splitlines()
    except OSError:  # not Linux
        return False
    return any(int(start) <= first and end <= int(start) + int(size) for start, _, size in map(str.split, lines))


# Layout: one folder a run, below one folder a session. A session's folder is `agentbench-XXXXXXXX` in the
# temporary folder. It contains a file that is locked while the session is alive. A later session finds the
# folders of killed sessions by their free locks. Process ids would not do, because they are reused.


_PREFIX = "agentbench-"
_LOCK = ".lock"
_KEPT = ".kept"
_DEAD = ".dead"
_TAKING = threading.Lock()  # a thread that tests a lock holds it for a moment, and must not pass for a session
_logger = logging.getLogger(__name__)


class Workspaces:
    """The workspaces of one session, below one folder (mode 0700) that `close` removes. Safe to use from any thread."""

    def __init__(self, base: Path | None = None) -> None:
        """Create no folder yet. The first workspace creates it in `base`, by default the system's temporary folder."""
        self._base = base
        self._parent: str | None = None
        self._held: int | None = None
        self._sweep: threading.Thread | None = None
        self._unremoved: list[str] = []
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._owners = Owners()

    def session_folder(self) -> str:
        """Return the session's folder. The first call creates it and removes dead sessions' folders. Raises OSError."""
        with self._lock:
            if self._parent is None:
                base = os.path.realpath(self._base or tempfile.gettempdir())
                self._parent, self._held = _make_session(base)
                self._sweep = threading.Thread(target=self._remove_others, args=(base, self._parent), daemon=True)
                self._sweep.start()
            return self._parent

    def create(self, case_id: str) -> Workspace:
        """Create an empty folder (mode 0700) for one run. Raises SandboxError if that fails."""
        name = re.sub(r"[^a-z0-9_-]+", "-", case_id.lower())[:40]
        number = next(self._numbers)
        owner = self._owners.of(number)
        try:
            path = f"{self._parent or self.session_folder()}/{number}-{name}"
            os.mkdir(path, 0o700)
            if owner is not None:
                os.chown(path, owner, owner)
        except OSError as error:
            raise SandboxError(
                f"no workspace for {case_id!r}: {error}; free space in the temporary folder or set TMPDIR to another"
            ) from error
        return Workspace(Path(path), owner)

    def remove(self, workspace: Workspace) -> None:
        """Delete a workspace with its content."""
        try:
            os.rmdir(workspace.path)  # most runs leave no files
        except OSError:
            _warn_of(_remove_tree(str(workspace.path)))

    def keep(self, workspace: Workspace) -> None:
        """Keep a workspace when the session closes, and in the clean-ups of later sessions. Raises OSError."""
        with self._lock, open(f"{workspace.path.parent}/{_KEPT}", "a", encoding="utf-8") as file:
            file.write(f"{workspace.path.name}\n")

    def close(self) -> None:
        """Delete all remaining workspaces, except the kept ones."""
        with self._lock:
            parent, self._parent = self._parent, None
            held, self._held = self._held, None
            sweep, self._sweep = self._sweep, None
        if sweep is not None:
            sweep.join()
        # A session with containers has removed those of dead sessions meanwhile
        _warn_of(_remove_dead_sessions(self._unremoved))
        if parent is not None:
            _warn_of(_remove_session(parent))
        if held is not None:
            os.close(held)

    def _remove_others(self, base: str, own: str) -> None:
        self._unremoved = _remove_dead_sessions(folder for folder in _list_sessions(base) if folder != own)


def session_is_dead(folder: str) -> bool:
    """Return whether the session of the folder has ended: the folder is gone, or its lock is free.

    Return False if that is unknown: the folder is another user's, or its file system has no locks.
    """
    if os.path.lexists(f"{folder}/{_DEAD}"):  # another session holds its lock to remove it
        return True
    with _TAKING:
        try:
            held = _take_session(folder)
        except FileNotFoundError:
            return not os.path.lexists(folder)
        except OSError:
            return False
        if held is None:
            return False
        os.close(held)
        return True


def host_mark() -> str:
    """Return 16 hex digits, equal for this user's sessions with the same temporary folder on the same machine.

    Sessions in other containers and on other machines have another mark. They may use the same docker daemon, but their
    folders are unknown here.
    """
    base = os.path.realpath(tempfile.gettempdir())
    status = os.stat(base)
    try:
        machine = Path("/etc/machine-id").read_text(encoding="ascii")
    except (OSError, ValueError):  # not every system has one
        machine = ""
    parts = [platform.node(), machine, base, status.st_dev, status.st_ino, os.getuid()]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _make_session(base: str) -> tuple[str, int]:
    """Create a session's folder. Return it with the descriptor that holds its lock."""
    folder = tempfile.mkdtemp(prefix=_PREFIX, dir=base)
    held = os.open(f"{folder}/{_LOCK}.new", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        try_lock(held)
    except OSError as error:
        _logger.warning("%s: has no locks (%s): remove the folders of killed sessions by hand", base, error)
    # The lock gets its name only when it is held, so that no other session finds it free while this one is alive
    os.rename(f"{folder}/{_LOCK}.new", f"{folder}/{_LOCK}")
    return folder, held


def _take_session(folder: str) -> int | None:
    """Take a dead session's lock and return its descriptor, or None for a session that is alive.

    Raises OSError if there is no lock. While the lock is held, a file in the folder marks the session as dead.
    """
    held = os.open(f"{folder}/{_LOCK}", os.O_RDWR | os.O_NOFOLLOW)
    try:
        if os.fstat(held).st_uid == os.getuid() and try_lock(held):
            os.close(os.open(f"{folder}/{_DEAD}", os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))
            return held
    except BaseException:
        os.close(held)
        raise
    os.close(held)
    return None


def _remove_dead_sessions(folders: Iterable[str]) -> list[str]:
    """Remove those folders of sessions that are this user's and dead.

    Return the folders that could not be removed: a container of the session may still write there. Containers are
    removed later than folders, because a session without containers has no connection to their daemon.
    """
    unremoved = []
    for folder in folders:
        try:
            with _TAKING:
                held = _take_session(folder)
        except OSError:  # it is another user's, not a session's, or gone
            continue
        if held is not None:
            _end_leftover_programs(folder)
            if _remove_session(folder):
                unremoved.append(folder)
            os.close(held)
    return unremoved


def _end_leftover_programs(folder: str) -> None:
    """Kill a dead session's bwrap processes. Bwrap ends with its parent, except for a moment during its start."""
    with suppress(OSError):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):  # it has ended, or is another user's
                # By a descriptor: between the check and the signal the pid may have passed to another process
                held = os.pidfd_open(int(pid))
                try:
                    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                    mounts = {word for option, word in pairwise(words) if option == b"--bind"}
                    if words[0].endswith(b"/bwrap") and any(word.startswith(f"{folder}/".encode()) for word in mounts):
                        signal.pidfd_send_signal(held, signal.SIGKILL)
                finally:
                    os.close(held)


def _list_sessions(base: str) -> Iterator[str]:
    user = os.getuid()
    with os.scandir(base) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False):
                with suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_uid == user:
                        yield entry.path


def _remove_session(folder: str) -> list[str]:
    """Remove a session's folder with all workspaces except the kept ones. Return what could not be removed.

    The lock is removed last, so that a later session continues an interrupted or failed removal.
    """
    if os.path.islink(folder) or not os.path.isdir(folder):
        return _remove_tree(folder)
    kept_names = _kept_names(folder)
    names = [name for name in os.listdir(folder) if name not in kept_names and name not in (_LOCK, _KEPT, _DEAD)]
    unremoved = [path for name in names for path in _remove_tree(f"{folder}/{name}")]
    if unremoved or kept_names:
        return unremoved
    return _remove_tree(folder)


def _kept_names(folder: str) -> set[str]:
    """Return the names of the kept workspaces that still exist."""
    try:
        with open(f"{folder}/{_KEPT}", encoding="utf-8") as file:
            names = set(file.read().splitlines())
    except FileNotFoundError:
        return set()
    return {name for name in names if os.path.lexists(f"{folder}/{name}")}


def _remove_tree(path: str) -> list[str]:
    """Remove a folder, even if an agent made it inaccessible, nested it too deeply, or replaced it by a link.

    Return its path if it is still there.
    """
    if os.path.islink(path) or not os.path.isdir(path):  # `chmod -R` would follow a link
        with suppress(OSError):
            os.unlink(path)
    else:
        try:
            shutil.rmtree(path)
        except (OSError, RecursionError):
            for command in (["chmod", "-R", "u+rwX", "--", path], ["rm", "-rf", "--", path]):
                subprocess.run(command, check=False, stderr=subprocess.DEVNULL)
    return [path] if os.path.lexists(path) else []


def _warn_of(unremoved: Iterable[str]) -> None:
    for path in unremoved:
        _logger.warning("could not remove the folder %s: remove it by hand", path)
