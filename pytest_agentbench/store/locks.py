"""One process at a time pays for a thing: locks by fingerprint, among all sessions on one output folder."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator

from pytest_agentbench.errors import InfrastructureError
from pytest_agentbench.store.files import explain_unwritable, make_folder

LOCKS = ".locks"
"""The folder of the locks below the output folder; a lock's file is there while it is held, and names its process."""

_FIRST_WAIT, _LONGEST_WAIT = 0.02, 0.5
_WRITES = "writes"
"""The file whose lock is held while a run or verdict is written. It stays: making it each time takes longer."""
_LONGEST_WRITE = 10.0
_MACOS_FILES = 10_240
"""What a process of macOS may have open (OPEN_MAX) where its hard limit says that there is none."""
_NO_LOCKS_HERE = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_log = logging.getLogger(__name__)
_lockless: set[str] = set()
"""Folders whose file system has no locks: said once."""


@contextlib.asynccontextmanager
async def claim(output: str, fingerprint: str) -> AsyncIterator[None]:
    """Hold the lock of a fingerprint; another holder, of this process or any other, is waited for.

    What that one made may lie in the store by then. A process that dies lets go of its locks. Raises
    InfrastructureError where the folder takes no files, were it for want of room: better now than when a run is paid.
    """
    folder = f"{output}/{LOCKS}"
    path, pause = f"{folder}/{fingerprint}.lock", _FIRST_WAIT
    try:
        # Polled and not blocking: a blocking lock would hold a thread per waiting run, and could not be cancelled.
        while (held := _acquire(folder, path)) is None:
            await asyncio.sleep(pause)
            pause = min(_LONGEST_WAIT, 2 * pause)
    except OSError as error:
        raise InfrastructureError(explain_unwritable(output, error)) from error
    try:
        yield
    finally:
        _release(held, path)


@contextlib.contextmanager
def hold_write_lock(output: str) -> Iterator[None]:
    """Keep other processes from the names in the output folder, for the milliseconds that a write takes.

    Sessions of other settings, under locks of their own, write to the same names: what lies there is read, moved and
    replaced as one step. A process that is stopped in the middle of it is waited for 10 s. Raises OSError.
    """
    folder = f"{output}/{LOCKS}"
    descriptor = _open_lock_file(folder, f"{folder}/{_WRITES}")
    try:
        until = time.monotonic() + _LONGEST_WRITE
        # After 10 s the holder is stopped (SIGSTOP, a debugger), not writing: going on risks a name, waiting risks the
        # session.
        while not _lock(descriptor, folder) and time.monotonic() < until:
            time.sleep(0.001)
        yield
    finally:
        _unlock(descriptor)


def allow_open_files(count: int) -> int:
    """Raise this process's soft limit of open files to `count`, or as far as it goes. Return how many may be open."""
    if sys.platform == "win32":
        return count
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (count, _MACOS_FILES):
        wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft == resource.RLIM_INFINITY or soft >= wanted:
            return count if soft == resource.RLIM_INFINITY else soft
        with contextlib.suppress(ValueError, OSError):  # more than the kernel has, whatever the hard limit says
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return wanted
    return soft


def _acquire(folder: str, path: str) -> int | None:
    """Return the descriptor that holds the lock; None where another holds it. Raises OSError."""
    descriptor = _open_lock_file(folder, path)
    try:
        # Opening and locking are two steps: between them the last holder may have unlinked the file, and a lock on a
        # file without a name excludes nobody.
        locked = _lock(descriptor, folder) and os.fstat(descriptor).st_nlink  # else its last holder has removed it
    except BaseException:
        os.close(descriptor)
        raise
    if not locked:
        os.close(descriptor)
        return None
    try:
        os.ftruncate(descriptor, 0)  # what a dead session left in it
        os.write(descriptor, b"%d\n" % os.getpid())  # a disk without room for this has none for a run
    except BaseException:
        _release(descriptor, path)
        raise
    return descriptor


def _open_lock_file(folder: str, path: str) -> int:
    try:
        return os.open(path, _FLAGS, 0o666)
    except FileNotFoundError:
        make_folder(folder)
        return os.open(path, _FLAGS, 0o666)


def _lock(descriptor: int, folder: str) -> bool:
    from filelock import lock_descriptor  # 30 ms that a session with nothing to make does not pay

    try:
        return lock_descriptor(descriptor, blocking=False)
    except OSError as error:
        if error.errno not in _NO_LOCKS_HERE:
            raise
    # NFS without lockd, and some FUSE mounts: go on without locks, as an error would keep people from their only disk.
    if folder not in _lockless:
        _lockless.add(folder)
        _log.warning("%s: the file system has no locks, so two sessions there at once may pay for a run twice", folder)
    return True


def _release(descriptor: int, path: str) -> None:
    try:
        with contextlib.suppress(OSError):
            os.unlink(path)  # while it is held: who waits for this file sees that it is gone, and tries anew
    finally:
        _unlock(descriptor)


def _unlock(descriptor: int) -> None:
    from filelock import unlock_descriptor

    try:
        with contextlib.suppress(OSError):
            unlock_descriptor(descriptor)  # closing does it too, but for a copy in a forked process
    finally:
        os.close(descriptor)
