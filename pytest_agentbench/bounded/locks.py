"""Locks of open files and of single bytes in them, and the limit of open files."""

from __future__ import annotations

import contextlib
import errno
import os
import sys

NO_LOCKS_HERE = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
"""Error numbers of file systems without locks."""
LOCK_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_MACOS_FILES = 10_240
"""Maximum of open files of a process on macOS (OPEN_MAX) if its hard limit is infinite."""


def try_lock(descriptor: int) -> bool:
    """Lock an open file for this process alone; False where another holds it. Raises OSError where that cannot be.

    It is the lock of filelock's FileLock, too.
    """
    if sys.platform == "win32":
        from filelock import lock_descriptor

        return lock_descriptor(descriptor, blocking=False)
    import fcntl  # filelock, which does the same, brings asyncio and sqlite3: 40 ms of every session

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK):
            raise
        return False
    return True


def release_lock(descriptor: int) -> None:
    """Let go of the lock of an open file. Raises OSError."""
    if sys.platform == "win32":
        from filelock import unlock_descriptor

        unlock_descriptor(descriptor)
        return
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_UN)


def lock_byte(descriptor: int, at: int, length: int = 1) -> bool:
    """Lock bytes of an open file for this process; return False if another holds one of them. Raises OSError."""
    if sys.platform == "win32":
        import msvcrt

        os.lseek(descriptor, at, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, length)
        except PermissionError:
            return False
        return True
    import fcntl

    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, length, at)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EAGAIN):
            raise
        return False
    return True


def unlock_byte(descriptor: int, at: int, length: int = 1) -> None:
    """Release the lock of bytes of an open file. Raises OSError."""
    if sys.platform == "win32":
        import msvcrt

        os.lseek(descriptor, at, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, length)
        return
    import fcntl

    fcntl.lockf(descriptor, fcntl.LOCK_UN, length, at)


def check_locks(path: str) -> None:
    """Make a file that nobody has open, and raise OSError where its file system has no locks of bytes."""
    descriptor = os.open(path, LOCK_FLAGS, 0o666)
    try:
        lock_byte(descriptor, 0)
    finally:
        os.close(descriptor)


def allow_open_files(count: int) -> int:
    """Raise this process's soft limit of open files to `count`, or as far as it goes. Return how many may be open."""
    if sys.platform == "win32":
        return count
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (count, _MACOS_FILES):
        wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft == resource.RLIM_INFINITY or soft >= wanted:
            if soft == resource.RLIM_INFINITY:
                return count
            return soft
        with contextlib.suppress(ValueError, OSError):  # the kernel's maximum may be below the hard limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return wanted
    return soft
