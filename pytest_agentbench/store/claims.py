"""Claims on fingerprints of an output folder, so that of all sessions one makes each run, and the lock of writers."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

from pytest_agentbench.bounded.folders import make_folder
from pytest_agentbench.bounded.locks import LOCK_FLAGS, NO_LOCKS_HERE, lock_byte, release_lock, try_lock, unlock_byte
from pytest_agentbench.errors import InfrastructureError, UnwritableError
from pytest_agentbench.store.output_folder import LOCKS, explain_unwritable

_FIRST_WAIT, _LONGEST_WAIT = 0.02, 0.5
_WRITES = "writes"
"""The file whose lock is held while a run or verdict is written. It stays: making it each time takes longer."""
_CLAIMS = "claims"
"""The file of the claims, a byte for each fingerprint; it is empty, and stays."""
_BYTES = 2**31 - 1 if sys.platform == "win32" else 2**62
"""How many bytes there are to claim: the most that the system locks."""
_LEAST_ROOM = 2**16
"""Free bytes on the disk that a run needs to begin."""
_LONGEST_WRITE = 10.0
_log = logging.getLogger(__name__)
_lockless: set[str] = set()
"""Folders on file systems without locks. Each is reported once."""


class Claims:
    """The claims of this process on fingerprints of an output folder: locks of single bytes in one file.

    A process that dies lets go of its locks. They are the process's (POSIX), so the tasks of one exclude each other
    here, and closing any other descriptor of the file would let go of all.
    """

    def __init__(self, output: str) -> None:
        """Open the file. Raises OSError."""
        self.output, self.held = output, set[str]()
        self._descriptor = _open_lock_file(f"{output}/{LOCKS}", f"{output}/{LOCKS}/{_CLAIMS}")
        self._file, self._pid = os.fstat(self._descriptor), os.getpid()
        self._found_at = self._roomy_at = -math.inf

    def are_of(self, output: str) -> bool:
        """Return whether the file is the one in a folder, and this the process that has opened it."""
        try:
            return os.path.samestat(os.stat(f"{output}/{LOCKS}/{_CLAIMS}"), self._file) and self._pid == os.getpid()
        except OSError:
            return False

    def are_still_of(self, output: str) -> bool:
        """Return whether the file is still in the folder, by a check that is at most 50 ms old."""
        now = time.monotonic()
        if now - self._found_at < _MOMENT and self._pid == os.getpid():
            return True
        if found := self.are_of(output):
            self._found_at = now
        return found

    def take(self, fingerprint: str) -> bool:
        """Claim a fingerprint (64 hex digits); False if any process holds it. Raises OSError, also on a full disk."""
        with _claiming:
            if fingerprint in self.held:
                return False
            if (now := time.monotonic()) - self._roomy_at >= _MOMENT:
                place = os.statvfs(self.output) if hasattr(os, "statvfs") else None
                if place is not None and place.f_bavail * place.f_frsize < _LEAST_ROOM:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.output)
                self._roomy_at = now
            if not _lock(partial(lock_byte, self._descriptor, _byte_of(fingerprint)), self.output):
                return False
            self.held.add(fingerprint)
        return True

    def release(self, fingerprint: str) -> None:
        """Let go of a claim."""
        with _claiming:
            self.held.discard(fingerprint)
            with contextlib.suppress(OSError):
                unlock_byte(self._descriptor, _byte_of(fingerprint))

    def close(self) -> None:
        """Close the file, which lets go of all claims."""
        os.close(self._descriptor)


_claiming = threading.RLock()
_claims: dict[str, Claims] = {}
_MOMENT = 0.05
"""Seconds for which a look at the disk holds good: where agents answer at once, one for each claim would take 2 % of a
session's CPU."""
_MOST_CLAIMS = 8
"""Output folders whose file stays open: a process mostly has one."""


def open_claims(output: str) -> Claims:
    """Return this process's claims on an output folder. Raises OSError if no file can be created there."""
    with _claiming:
        claims = _claims.get(output)
        if claims is None or not claims.are_still_of(output):
            # One open file per folder, even if its path has two spellings: closing a second descriptor drops all locks
            claims = next((each for each in _claims.values() if each.are_of(output)), None) or Claims(output)
            _claims[output] = claims
        for name in [name for name, each in _claims.items() if not each.held and each is not claims][:-_MOST_CLAIMS]:
            if (idle := _claims.pop(name)) not in _claims.values():
                idle.close()
        return claims


def close_claims(output: str) -> None:
    """Close this process's file of claims on an output folder, unless it holds any. The next claim reopens it."""
    with _claiming:
        if (claims := _claims.get(output)) is not None and not claims.held:
            for name in [name for name, each in _claims.items() if each is claims]:
                del _claims[name]
            claims.close()


def claim(output: str, fingerprint: str) -> contextlib.AbstractAsyncContextManager[None]:
    """Hold the claim on a fingerprint. Waits for other holders, in this process or another.

    The other holder may have stored the run meanwhile, so look again once the claim is held. The claims of a process
    end with it. Raises InfrastructureError if no file can be created, and if the disk is full: a run that cannot be
    stored is not paid for.
    """
    return _Claim(output, fingerprint)


class _Claim:
    """Holds a claim for the time of a block: each run does, and a generator for it would take longer than the claim."""

    __slots__ = ("_claims", "_fingerprint", "_output")

    def __init__(self, output: str, fingerprint: str) -> None:
        self._output, self._fingerprint = output, fingerprint
        self._claims: Claims

    async def __aenter__(self) -> None:
        pause = _FIRST_WAIT
        try:
            self._claims = open_claims(self._output)
            # Polled and not blocking: a blocking lock would hold a thread per waiting run, and could not be cancelled.
            while not self._claims.take(self._fingerprint):
                await asyncio.sleep(pause)
                pause = min(_LONGEST_WAIT, 2 * pause)
        except OSError as error:
            # Without room nothing of the session can be stored any more; other causes may pass, or be of one run alone
            kind = UnwritableError if error.errno == errno.ENOSPC else InfrastructureError
            raise kind(explain_unwritable(self._output, error)) from error

    async def __aexit__(self, *_: object) -> None:
        self._claims.release(self._fingerprint)


def is_claimed(output: str) -> bool:
    """Return whether a session is making runs in the output folder. Raises OSError."""
    with _claiming:
        if not os.path.exists(f"{output}/{LOCKS}/{_CLAIMS}"):
            return False
        claims = open_claims(output)
        if claims.held or not _lock(partial(lock_byte, claims._descriptor, 0, _BYTES), output):
            return True
        unlock_byte(claims._descriptor, 0, _BYTES)
        return False


def _byte_of(fingerprint: str) -> int:
    return int(fingerprint[:15], 16) % _BYTES


@contextlib.contextmanager
def hold_write_lock(output: str) -> Iterator[None]:
    """Exclude other processes from the names in the output folder for the milliseconds of a write.

    Sessions with other settings claim other fingerprints but write to the same names, so reading, moving and replacing
    a document must be one step. Waits at most 10 s for a process that is stopped while it holds the lock. Raises
    OSError.
    """
    folder = f"{output}/{LOCKS}"
    descriptor = _open_lock_file(folder, f"{folder}/{_WRITES}")
    try:
        until = time.monotonic() + _LONGEST_WRITE
        # After 10 s the holder is stopped (SIGSTOP, a debugger), not writing: going on risks a name, waiting risks the
        # session.
        while not _lock(partial(try_lock, descriptor), output) and time.monotonic() < until:
            time.sleep(0.001)
        yield
    finally:
        _unlock(descriptor)


def _open_lock_file(folder: str, path: str) -> int:
    try:
        return os.open(path, LOCK_FLAGS, 0o666)
    except FileNotFoundError:
        make_folder(folder)
        return os.open(path, LOCK_FLAGS, 0o666)


def _lock(lock: Callable[[], bool], folder: str) -> bool:
    try:
        return lock()
    except OSError as error:
        if error.errno not in NO_LOCKS_HERE:
            raise
    # NFS without lockd, and some FUSE mounts: go on without locks, as an error would keep people from their only disk.
    if folder not in _lockless:
        _lockless.add(folder)
        _log.warning("%s: the file system has no locks, so two concurrent sessions may pay for the same run", folder)
    return True


def _unlock(descriptor: int) -> None:
    try:
        with contextlib.suppress(OSError):
            release_lock(descriptor)  # closing does it too, but for a copy in a forked process
    finally:
        os.close(descriptor)
