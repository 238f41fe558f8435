"""One process at a time makes a run: locks by fingerprint, among all sessions on one output folder."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator

from filelock import FileLock, Timeout

from pytest_agentbench.store.files import make_folder, not_writable

LOCKS = ".locks"
"""The folder of the locks below the output folder; a lock's file is there while it is held."""

_FIRST_WAIT, _LONGEST_WAIT = 0.02, 1.0


@contextlib.asynccontextmanager
async def claim(output: str, fingerprint: str) -> AsyncIterator[bool]:
    """Holds the lock of a fingerprint; another holder, of this process or any other, is waited for.

    Yields whether there was one: then what it made may lie in the store. A process that dies lets go of its locks.
    Raises InfrastructureError where the folder takes no files: better now than when a run is paid for.
    """
    folder = f"{output}/{LOCKS}"
    lock = FileLock(f"{folder}/{fingerprint}.lock", thread_local=False, timeout=0)
    waited, pause = False, _FIRST_WAIT
    while True:
        try:
            make_folder(folder)
            lock.acquire()
            break
        except Timeout:
            waited = True
        except OSError as error:
            raise not_writable(output, error) from error
        await asyncio.sleep(pause)
        pause = min(_LONGEST_WAIT, 2 * pause)
    try:
        yield waited
    finally:
        with contextlib.suppress(OSError):
            os.unlink(lock.lock_file)  # while it is held: who waits on this file sees that it is gone, and tries anew
        lock.release()
