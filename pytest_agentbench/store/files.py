"""Files that many processes write: their places below the output folder, whole or not at all, locks by fingerprint."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import itertools
import json
import logging
import math
import os
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from io import BufferedRandom
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from pytest_agentbench.errors import ConfigError, InfrastructureError, UnwritableError

RUNS = "runs"
EVALUATIONS = "evaluations"
JUDGEMENTS = "judgements"
"""The folder of the votes of metrics that ask a model."""
DATABASE = "store.sqlite"
"""The file of all documents but the large ones."""
LOCKS = ".locks"
"""The folder of the files that sessions lock."""
RUN_LEVELS = 4
"""Folders below `runs`: suite, run profile, model, case."""
EVALUATION_LEVELS = 5
"""Folders below `evaluations`: suite, run profile, evaluation profile, model, case."""
_FOLDER_LEVELS = {
    RUNS: RUN_LEVELS,
    EVALUATIONS: EVALUATION_LEVELS,
    JUDGEMENTS: 1,
    LOCKS: 0,
    ".journals": 0,  # of the room `reports`
    ".agentbench": 1,  # of `models`
    "mcp": 1,  # of `tools`
}
"""How deep the folders go that are made below an output folder."""
SUITE = "suit_"
"""What the folder of each suite begins with."""

PROFILE_FILE = ".fingerprint.json"
"""In a profile's folder: its full fingerprint and what that covers. No slug begins with a dot."""

FINGERPRINT_DIGITS = (8, 10, 12)
"""How many hex digits of a fingerprint a folder's name holds: more only where fewer name two fingerprints."""

_SAFE = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,98}[a-z0-9_-])?")
_UNSAFE = re.compile(r"[^a-z0-9._-]+")


def slug(name: str) -> str:
    """Return `name` as a folder name: itself where that is safe, else what is safe of it with 8 digits of its hash.

    Safe are lower-case letters, digits and `_ - .` (not first; no dot last), at most 100 characters, so that no two
    names meet on a file system that ignores case.
    """
    if _SAFE.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    readable = _UNSAFE.sub("_", name.lower())[:60].strip("._-")
    return f"{readable}-{digest}" if readable else digest


def slug_start(name: str) -> str:
    """Return what the slug of each name that begins with this one begins with, as far as that can be told."""
    return _UNSAFE.sub("_", name.lower())[:60].strip("._-")


def suite_folder(suite_id: str | None) -> str:
    """Return the folder of a suite; `suit_default` where none is named."""
    return f"{SUITE}{slug(suite_id) if suite_id is not None else 'default'}"


_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_serial = itertools.count()
_session = secrets.token_hex(4)


def write_atomically(folder: str, name: str, data: bytes) -> None:
    """Put `data` at `folder/name` through a temporary file beside it. Raises OSError; then nothing has changed.

    A link in the place of the file is replaced and not followed, as by all that writes files whole (`replace_file`).

    There is no fsync: it costs milliseconds a file, and a killed process loses nothing that was written. A power cut
    may leave an empty file, which does not load, so that its run counts as missing.
    """
    temporary = _temporary(folder)
    try:
        _write(temporary, data)
        # A rename within one folder is atomic: a reader sees the old file or the new one, never a half.
        os.replace(temporary, f"{folder}/{name}")
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


@contextlib.contextmanager
def temporary_file(folder: str) -> Iterator[BufferedRandom]:
    """Yield a file to write and read back in `folder`; gone at the end of the block unless it was moved. Raises
    OSError.
    """
    path = _temporary(folder)
    try:
        with open(path, "x+b") as file:
            yield file
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)


@contextlib.contextmanager
def replace_file(path: Path, *, sync: bool = False) -> Iterator[BufferedRandom]:
    """Yield a new file that takes the place of `path` at the end of the block, like `write_atomically`.

    With `sync` the content survives a power cut. Raises OSError, also if there is no such folder.
    """
    with temporary_file(str(path.parent)) as file:
        yield file
        file.flush()
        if sync:
            os.fsync(file.fileno())
        os.replace(file.name, path)


def _temporary(folder: str) -> str:
    return f"{folder}/.{_session}-{os.getpid()}-{next(_serial)}.tmp"


def _write(path: str, data: bytes) -> None:
    descriptor = os.open(path, _FLAGS, 0o666)
    try:
        # One write is enough on a disk; network file systems and full disks take a part of it.
        written = os.write(descriptor, data)
        while written < len(data):
            written += os.write(descriptor, data[written:])
    finally:
        os.close(descriptor)


def lies_below(folder: str, path: str) -> bool:
    """Return whether a path that others wrote names something in the folder, wherever links lead that lie there.

    Raises ValueError for what is no name of a file.
    """
    parts = path.replace("\\", "/").split("/")
    if os.path.isabs(path) or os.path.splitdrive(path)[0] or ".." in parts:
        return False
    place = folder
    for part in parts:
        place = f"{place}/{part}"
        if os.path.islink(place):  # a folder of runs has none, and resolving each path of 10,000 takes a second
            return Path(os.path.realpath(f"{folder}/{path}")).is_relative_to(os.path.realpath(folder))
    return True


def make_folder(path: str) -> bool:
    """Make the folder `path`, with its parents where they are missing; False where it exists already."""
    try:
        os.mkdir(path)
    except FileExistsError:
        return False
    except FileNotFoundError:
        os.makedirs(path, exist_ok=True)
    return True


class DamagedError(OSError):
    """The database holds what SQLite did not write there. `strerror` says what, `rows` are those before it."""

    def __init__(self, reason: str) -> None:
        super().__init__(errno.EIO, reason)
        self.rows: list[tuple[Any, ...]] = []


def explain_unwritable(folder: str, error: OSError) -> str:
    """Return the message for an output folder that takes no more files."""
    if isinstance(error, DamagedError):
        advice = f"save what can be read with `agentbench store repair --output {folder}`"
    elif error.errno in (errno.EMFILE, errno.ENFILE):
        advice = "allow more open files (ulimit -n), or ask for less at once with --agentbench-concurrency"
    else:
        advice = "make room or give write permission there, or name another folder with --agentbench-output"
    return f"cannot write to {folder}: {error.strerror or error}. What was written before is kept; {advice}"


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write rows as JSONL and return the path. Raises UnwritableError."""
    return write_lines(path, map(encode_row, rows))


def encode_row(row: Mapping[str, Any]) -> bytes:
    """Return a row as a line of JSONL. Half a surrogate pair, which UTF-8 cannot carry, becomes its JSON escape."""
    return f"{json.dumps(row, ensure_ascii=False, allow_nan=False)}\n".encode("utf-8", "backslashreplace")


def write_lines(path: Path, lines: Iterable[bytes]) -> Path:
    """Write lines one by one, like `write_rows`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as file:
            file.writelines(lines)
    except OSError as error:
        raise UnwritableError(f"{path}: cannot be written: {error.strerror or error}") from error
    return path


def format_rows(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the rows as JSONL."""
    return "".join(f"{json.dumps(row, ensure_ascii=False, allow_nan=False)}\n" for row in rows)


def write_document(path: Path, document: Any) -> Path:
    """Write a JSON document, like `write_rows`."""
    return write_text(path, format_document(document))


def format_document(document: Any) -> str:
    """Return a document as indented JSON."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=2) + "\n"


def require_writable(*paths: Path) -> None:
    """Raise UnwritableError unless files can be made there, so that this is known before anything is paid for."""
    for path in paths:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=path.parent):
                pass
        except OSError as error:
            raise UnwritableError(f"{path}: cannot be written: {error.strerror or error}") from error
        if path.is_dir():
            raise UnwritableError(f"{path}: cannot be written: found a folder, expected a file")


def write_text(path: Path, text: str, *, encoding: str = "utf-8") -> Path:
    """Write a text, like `write_rows`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Half a surrogate pair, which UTF-8 cannot carry, becomes its JSON escape.
        write_atomically(str(path.parent), path.name, text.encode(encoding, "backslashreplace"))
    except OSError as error:
        raise UnwritableError(f"{path}: cannot be written: {error.strerror or error}") from error
    return path


_FIRST_WAIT, _LONGEST_WAIT = 0.02, 0.5
_WRITES = "writes"
"""The file whose lock is held while a run or verdict is written. It stays: making it each time takes longer."""
_CLAIMS = "claims"
"""The file of the claims, a byte for each fingerprint; it is empty, and stays."""
_BYTES = 2**31 - 1 if sys.platform == "win32" else 2**62
"""How many bytes there are to claim: the most that the system locks."""
_LEAST_ROOM = 2**16
"""Bytes that a disk has free where a run may begin."""
_LONGEST_WRITE = 10.0
_MACOS_FILES = 10_240
"""What a process of macOS may have open (OPEN_MAX) where its hard limit says that there is none."""
NO_LOCKS_HERE = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
"""What a file system says that has no locks."""
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_log = logging.getLogger(__name__)
_lockless: set[str] = set()
"""Folders whose file system has no locks: said once."""


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
        """Return the same for the folder of the last call, where a look of a moment ago will do."""
        now = time.monotonic()
        if now - self._found_at < _MOMENT and self._pid == os.getpid():
            return True
        if found := self.are_of(output):
            self._found_at = now
        return found

    def take(self, fingerprint: str) -> bool:
        """Claim a fingerprint (64 hex digits); False where anybody holds it. Raises OSError, without room too."""
        with _claiming:
            if fingerprint in self.held:
                return False
            if (now := time.monotonic()) - self._roomy_at >= _MOMENT:
                place = os.statvfs(self.output) if hasattr(os, "statvfs") else None
                if place is not None and place.f_bavail * place.f_frsize < _LEAST_ROOM:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.output)
                self._roomy_at = now
            if not _lock(partial(_lock_byte, self._descriptor, _byte_of(fingerprint)), self.output):
                return False
            self.held.add(fingerprint)
        return True

    def release(self, fingerprint: str) -> None:
        """Let go of a claim."""
        with _claiming:
            self.held.discard(fingerprint)
            with contextlib.suppress(OSError):
                _unlock_byte(self._descriptor, _byte_of(fingerprint))

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
    """Return this process's claims on an output folder. Raises OSError where it takes no files."""
    with _claiming:
        claims = _claims.get(output)
        if claims is None or not claims.are_still_of(output):
            # However the folder is spelled, it is one open file: a second one would lock what the first has locked
            claims = next((each for each in _claims.values() if each.are_of(output)), None) or Claims(output)
            _claims[output] = claims
        for name in [name for name, each in _claims.items() if not each.held and each is not claims][:-_MOST_CLAIMS]:
            if (idle := _claims.pop(name)) not in _claims.values():
                idle.close()
        return claims


def close_claims(output: str) -> None:
    """Close this process's file of claims on an output folder, unless it holds some. The next claim opens it again."""
    with _claiming:
        if (claims := _claims.get(output)) is not None and not claims.held:
            for name in [name for name, each in _claims.items() if each is claims]:
                del _claims[name]
            claims.close()


def claim(output: str, fingerprint: str) -> contextlib.AbstractAsyncContextManager[None]:
    """Hold the claim on a fingerprint; another holder, of this process or any other, is waited for.

    What that one made may lie in the store by then. A process that dies lets go of its claims. Raises
    InfrastructureError where the folder takes no files, were it for want of room: better now than when a run is paid.
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
        if claims.held or not _lock(partial(_lock_byte, claims._descriptor, 0, _BYTES), output):
            return True
        _unlock_byte(claims._descriptor, 0, _BYTES)
        return False


def check_locks(path: str) -> None:
    """Make a file that nobody has open, and raise OSError where its file system has no locks of bytes."""
    descriptor = os.open(path, _LOCK_FLAGS, 0o666)
    try:
        _lock_byte(descriptor, 0)
    finally:
        os.close(descriptor)


def _byte_of(fingerprint: str) -> int:
    return int(fingerprint[:15], 16) % _BYTES


def _lock_byte(descriptor: int, at: int, length: int = 1) -> bool:
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


def _unlock_byte(descriptor: int, at: int, length: int = 1) -> None:
    if sys.platform == "win32":
        import msvcrt

        os.lseek(descriptor, at, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, length)
        return
    import fcntl

    fcntl.lockf(descriptor, fcntl.LOCK_UN, length, at)


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
        while not _lock(partial(try_lock, descriptor), output) and time.monotonic() < until:
            time.sleep(0.001)
        yield
    finally:
        _unlock(descriptor)


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


def _open_lock_file(folder: str, path: str) -> int:
    try:
        return os.open(path, _LOCK_FLAGS, 0o666)
    except FileNotFoundError:
        make_folder(folder)
        return os.open(path, _LOCK_FLAGS, 0o666)


def _lock(lock: Callable[[], bool], folder: str) -> bool:
    try:
        return lock()
    except OSError as error:
        if error.errno not in NO_LOCKS_HERE:
            raise
    # NFS without lockd, and some FUSE mounts: go on without locks, as an error would keep people from their only disk.
    if folder not in _lockless:
        _lockless.add(folder)
        _log.warning("%s: the file system has no locks, so two sessions there at once may pay for a run twice", folder)
    return True


def _unlock(descriptor: int) -> None:
    try:
        with contextlib.suppress(OSError):
            release_lock(descriptor)  # closing does it too, but for a copy in a forked process
    finally:
        os.close(descriptor)


def refuse_links(output: Path) -> None:
    """Raise ConfigError where a folder that the store keeps below an output folder is a link: it may lead anywhere.

    The output folder itself may be one. Links deeper than a case's folder are refused where they are met.
    """
    for name, levels in _FOLDER_LEVELS.items():
        if (link := _first_link(str(output), name, levels)) is not None:
            raise ConfigError(
                f"{link}: is a link to another folder, expected a folder: nothing below an output folder is read, "
                f"written or removed through links. Remove it; to keep results elsewhere, name that folder "
                f"(--agentbench-output DIR), or make {output} itself the link"
            )


def _first_link(folder: str, name: str, levels: int) -> str | None:
    path = f"{folder}/{name}"
    if os.path.islink(path):
        return path
    if levels == 0:
        return None
    try:
        with os.scandir(path) as found:
            below = [each for each in found if each.is_dir()]
    except OSError:
        return None  # who needs it will say so
    links = (
        each.path if each.is_symlink() else _first_link(path, each.name, levels - 1) if levels > 1 else None
        for each in below
    )
    return next(filter(None, links), None)
