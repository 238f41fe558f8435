"""Workspaces: a fresh folder for each run, each with a user of its own; what dead sessions left is removed."""

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
from collections.abc import Iterator
from contextlib import suppress
from itertools import count, pairwise
from pathlib import Path

from pytest_agentbench.bounded.locks import try_lock
from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.workspace import Workspace

_FIRST, _EACH = 2**30, 2**16
"""Ids no system gives to anybody, as many sessions as fit below 2^31, and as many workspaces for each."""

_SMALL_FIRST, _SMALL_END = 10_000, 60_000
"""Where ids are mapped, as in a container of a user's own, and there are no more than 2^16 of them."""


class Owners:
    """Ids of one session's workspaces. Sessions beside it have others, but for a rare chance."""

    def __init__(self) -> None:
        first, end = _owner_ids()
        self._first, self._size = first, min(_EACH, end - first)
        if end - first > _EACH:
            self._first += _EACH * secrets.randbelow((end - first) // _EACH)

    def of(self, number: int) -> int | None:
        """Return the user and group id for the session's workspace of that number; None: this process's own."""
        return self._first + number % self._size if self._size else None


def _owner_ids() -> tuple[int, int]:
    """Return the ids to take from, empty where this process cannot give files to others."""
    if os.getuid() != 0:
        return 0, 0
    for first, end in ((_FIRST, 2**31), (_SMALL_FIRST, _SMALL_END)):
        if all(_are_ids_mapped(name, first, end) for name in ("uid_map", "gid_map")):
            return first, end
    return 0, 0


def _are_ids_mapped(name: str, first: int, end: int) -> bool:
    """Return whether this process's user namespace has all of these ids."""
    try:
        lines = Path(f"/proc/self/{name}").read_text(encoding="ascii").splitlines()
    except OSError:  # no Linux
        return False
    return any(int(start) <= first and end <= int(start) + int(size) for start, _, size in map(str.split, lines))


# Workspaces: one fresh folder a run, below one folder a session, and what dead sessions left of theirs.
#
# A session's folder is `agentbench-XXXXXXXX` in the temporary folder. It holds a file that is locked while the session
# lives, so that a later session knows the folders of those that were killed, whatever became of their process ids.


_PREFIX = "agentbench-"
_LOCK = ".lock"
_KEPT = ".kept"
_DEAD = ".dead"
_TAKING = threading.Lock()  # a look at a lock must not pass for the session that holds it
_logger = logging.getLogger(__name__)


class Workspaces:
    """Workspaces of one session, below one folder (mode 0700) that `close` removes. Safe to use from any thread."""

    def __init__(self, base: Path | None = None) -> None:
        """Begin without a folder: the first workspace makes it in `base`, None: the system's temporary folder."""
        self._base = base
        self._parent: str | None = None
        self._held: int | None = None
        self._sweep: threading.Thread | None = None
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._owners = Owners()

    def session_folder(self) -> str:
        """Return the session's folder, made at first use; then those of dead sessions are removed. Raises OSError."""
        with self._lock:
            if self._parent is None:
                base = os.path.realpath(self._base or tempfile.gettempdir())
                self._parent, self._held = _make_session(base)
                self._sweep = threading.Thread(target=_remove_dead_sessions, args=(base, self._parent), daemon=True)
                self._sweep.start()
            return self._parent

    def create(self, case_id: str) -> Workspace:
        """Make a fresh, empty folder (mode 0700) for one run. Raises SandboxError where it cannot be made."""
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
        """Delete a workspace and all it holds."""
        try:
            os.rmdir(workspace.path)  # most runs leave nothing behind
        except OSError:
            _remove_tree(str(workspace.path))

    def keep(self, workspace: Workspace) -> None:
        """Leave a workspace where it is when the session closes, and in the sweeps of later ones. Raises OSError."""
        with self._lock, open(f"{workspace.path.parent}/{_KEPT}", "a", encoding="utf-8") as file:
            file.write(f"{workspace.path.name}\n")

    def close(self) -> None:
        """Delete every workspace that is left, but for those to keep."""
        with self._lock:
            parent, self._parent = self._parent, None
            held, self._held = self._held, None
            sweep, self._sweep = self._sweep, None
        if sweep is not None:
            sweep.join()
        if parent is not None:
            _remove_session(parent)
        if held is not None:
            os.close(held)


def session_is_dead(folder: str) -> bool:
    """Return whether the session that has the folder has ended: the folder is gone, or nobody holds its lock any more.

    False where that cannot be known: it is another user's, or its file system has no locks.
    """
    if os.path.lexists(f"{folder}/{_DEAD}"):  # another session has its lock, to remove it
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
    """Return 16 hex digits, the same for this user's sessions that see the same temporary folder on the same machine.

    Sessions of other containers and machines have another one, though they may use the same docker daemon: nothing is
    known of their folders here.
    """
    base = os.path.realpath(tempfile.gettempdir())
    found = os.stat(base)
    try:
        machine = Path("/etc/machine-id").read_text(encoding="ascii")
    except (OSError, ValueError):  # not every system has one
        machine = ""
    seen = [platform.node(), machine, base, found.st_dev, found.st_ino, os.getuid()]
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:16]


def _make_session(base: str) -> tuple[str, int]:
    """Make a session's folder and return it with the descriptor that holds its lock.

    Under its name the lock is never seen free.
    """
    folder = tempfile.mkdtemp(prefix=_PREFIX, dir=base)
    held = os.open(f"{folder}/{_LOCK}.new", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        try_lock(held)
    except OSError as error:
        _logger.warning("%s: has no locks (%s): what a killed session leaves there is yours to remove", base, error)
    # Only now has the lock its name: another session that sweeps never finds it unheld while this one lives.
    os.rename(f"{folder}/{_LOCK}.new", f"{folder}/{_LOCK}")
    return folder, held


def _take_session(folder: str) -> int | None:
    """Take a dead session's lock and return its descriptor; None for one that lives.

    Raises OSError where there is none.

    While it is held the folder says that its session is dead.
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


def _remove_dead_sessions(base: str, own: str) -> None:
    """Remove what this user's dead sessions left in a temporary folder."""
    for folder in _list_sessions(base):
        if folder == own:
            continue
        try:
            with _TAKING:
                held = _take_session(folder)
        except OSError:  # it is another user's, no session's, or gone
            continue
        if held is not None:
            _end_leftover_programs(folder)
            _remove_session(folder)
            os.close(held)


def _end_leftover_programs(folder: str) -> None:
    """End what a dead session was about to start: bwrap ends with its parent, but for a moment while it sets up."""
    with suppress(OSError):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):  # it ended meanwhile, or is another user's
                # By a descriptor: between the look and the signal the number may have gone to another process.
                held = os.pidfd_open(int(pid))
                try:
                    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                    shown = {word for option, word in pairwise(words) if option == b"--bind"}
                    if words[0].endswith(b"/bwrap") and any(word.startswith(f"{folder}/".encode()) for word in shown):
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


def _remove_session(folder: str) -> None:
    """Remove a session's folder with all workspaces but those to keep. The lock goes last: a stop here is made up."""
    if os.path.islink(folder) or not os.path.isdir(folder):
        _remove_tree(folder)
        return
    kept = _kept_names(folder)
    for name in os.listdir(folder):
        if name not in kept and name not in (_LOCK, _KEPT, _DEAD):
            _remove_tree(f"{folder}/{name}")
    if not kept:
        _remove_tree(folder)


def _kept_names(folder: str) -> set[str]:
    """Return the names of the workspaces to keep that are still there."""
    try:
        with open(f"{folder}/{_KEPT}", encoding="utf-8") as file:
            names = set(file.read().splitlines())
    except FileNotFoundError:
        return set()
    return {name for name in names if os.path.lexists(f"{folder}/{name}")}


def _remove_tree(path: str) -> None:
    """Remove a folder, even one that its agent locked, nested deeper than Python recurses, or replaced by a link."""
    if os.path.islink(path) or not os.path.isdir(path):  # `chmod -R` would follow a link
        with suppress(OSError):
            os.unlink(path)
        return
    try:
        shutil.rmtree(path)
    except (OSError, RecursionError):
        for command in (["chmod", "-R", "u+rwX", "--", path], ["rm", "-rf", "--", path]):
            subprocess.run(command, check=False, stderr=subprocess.DEVNULL)
    if os.path.lexists(path):
        _logger.warning("could not remove the workspace %s: remove it by hand", path)
