"""Connections to the one SQLite database of an output folder: how it is made, known again, and where it may lie."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sqlite3
import stat
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from pytest_agentbench.bounded.files import MAX_RECORD
from pytest_agentbench.errors import ConfigError

VERSION = 1
"""The `user_version` of the database."""
_APPLICATION = 0x41424E43
"""The `application_id`, "ABNC": another program's database is not taken for a store."""

_SCHEMA = {
    "folders": "CREATE TABLE folders (id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, place TEXT NOT NULL)",
    "folders_by_place": "CREATE INDEX folders_by_place ON folders (place)",
    "documents": (
        "CREATE TABLE documents (folder INTEGER NOT NULL, leaf TEXT NOT NULL, name TEXT NOT NULL, "
        "modified INTEGER NOT NULL, content BLOB, PRIMARY KEY (folder, leaf, name))"
    ),
    "files": (
        "CREATE VIEW files AS SELECT f.path || '/' || d.leaf || '/' || d.name AS path, d.name AS name, "
        "d.modified / 1000000000 AS modified, CAST(d.content AS TEXT) AS content "
        "FROM documents d JOIN folders f ON f.id = d.folder"
    ),
    "runs": (
        "CREATE VIEW runs AS SELECT path, json_extract(content, '$.case_id') AS case_id, "
        "json_extract(content, '$.model.model_id') AS model_id, json_extract(content, '$.repetition') AS repetition, "
        "json_extract(content, '$.status') AS status, json_extract(content, '$.run_id') AS run_id, "
        "json_extract(content, '$.fingerprint') AS fingerprint, json_extract(content, '$.started_at') AS started_at, "
        "json_extract(content, '$.duration_seconds') AS duration_seconds, "
        "json_extract(content, '$.usage.total_tokens') AS total_tokens, "
        "json_extract(content, '$.usage.cost_usd') AS cost_usd FROM files "
        "WHERE name GLOB 'run_[0-9]*.json' AND name NOT GLOB '*.fingerprint_input.json'"
    ),
    "evaluations": (
        "CREATE VIEW evaluations AS SELECT path, json_extract(content, '$.case_id') AS case_id, "
        "json_extract(content, '$.run_id') AS run_id, json_extract(content, '$.outcome') AS outcome, "
        "json_extract(content, '$.final_score') AS final_score, "
        "json_extract(content, '$.evaluation_profile_id') AS evaluation_profile_id, "
        "json_extract(content, '$.fingerprint') AS fingerprint FROM files "
        "WHERE name GLOB 'final_result_[0-9]*.json'"
    ),
}
"""Everything that is in a database, by name, as SQLite keeps its text. One with anything else, a trigger for example,
is none of ours."""

_BUSY_SECONDS = 60.0
"""How long a write waits for those of other processes, which take a fraction of a millisecond each."""
_PAGE = 8192
"""Bytes of a page of a new database: of SQLite's 4096 a sixth stays empty, as a run's documents are so long."""
_LOG_PAGES = 2000
"""After how many pages (16 MB) the log is moved into the database: that waits for the disk."""

_NETWORK = ("9p", "afs", "beegfs", "ceph", "cifs", "fuse.sshfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "smb")
"""What the types of file systems begin with that several machines write to: SQLite's log needs shared memory."""

_ESCAPED = re.compile(r"\\([0-7]{3})")

_ADVICE = "Move it away, or name another folder with --agentbench-output"
_DAMAGED = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
_ERRNO = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_BUSY: errno.EBUSY,
    sqlite3.SQLITE_PERM: errno.EACCES,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_PROTOCOL: errno.ENOLCK,
}


def connect(path: str, options: str) -> sqlite3.Connection:
    """Open a database, or make it. Raises OSError, and ConfigError for one that is not this package's."""
    for suffix in ("", "-wal", "-shm"):  # SQLite would follow a link, and wait for ever at a pipe
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(os.lstat(path + suffix).st_mode):
                raise OSError(errno.EINVAL, "Is no file", path + suffix)
    try:
        database = sqlite3.connect(
            Path(path).absolute().as_uri() + options,
            uri=True,
            timeout=_BUSY_SECONDS,
            isolation_level=None,  # transactions begin where the code says so
            check_same_thread=False,
        )
    except sqlite3.Error as error:
        raise _as_os_error(error, path) from error
    try:
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_RECORD)
        execute(database, "PRAGMA trusted_schema = OFF")
        is_new = _check_schema(database, path)  # before anything is changed in a database that may be another program's
        if is_new:
            execute(database, f"PRAGMA page_size = {_PAGE}")
        if not options:
            _log_ahead(database, path)
            # NORMAL loses nothing when a process is killed, and what was written last when the power fails
            execute(database, "PRAGMA synchronous = NORMAL")
            # kB: what a session stores or finds lies side by side, and SQLite's 2 MB count in memory a run
            execute(database, "PRAGMA cache_size = -512")
            execute(database, f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
        if is_new:
            _make_tables(database)
            _check_schema(database, path)
    except BaseException:
        database.close()
        raise
    return database


def check_open_files() -> None:
    """Raise OSError where a limit of open files keeps SQLite, which says only that it cannot open one."""
    with contextlib.ExitStack() as opened:
        for _ in ("", "-wal", "-shm"):
            opened.enter_context(open(os.devnull, "rb"))


def _log_ahead(database: sqlite3.Connection, path: str) -> None:
    """Have a database write to its log first. Raises OSError where it cannot."""
    until = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            if execute(database, "PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
                raise OSError(errno.ENOLCK, "No locks available", path)
            return
        except OSError as error:
            # Of two that do so to a new database one is refused at once, whatever the time that it would wait
            if error.errno != errno.EBUSY or time.monotonic() > until:
                raise
        time.sleep(0.005)


def _check_schema(database: sqlite3.Connection, path: str) -> bool:
    """Return whether a database is new. Raises ConfigError for one that is not this package's."""
    try:
        execute(database, "BEGIN")  # else another session may make the tables between these
        found = _read_schema(database)
        version = execute(database, "PRAGMA user_version").fetchone()[0]
        application = execute(database, "PRAGMA application_id").fetchone()[0]
        execute(database, "COMMIT")
    except OSError as error:
        if isinstance(error.__cause__, sqlite3.DatabaseError) and _code(error.__cause__) in _DAMAGED:
            raise ConfigError(f"{path}: {error.__cause__}. {_ADVICE}") from error
        raise
    if application == _APPLICATION and version > VERSION:
        raise ConfigError(
            f"{path}: found user_version {version}, expected at most {VERSION}: read it with the version of "
            "pytest-agentbench that wrote it, or name another folder with --agentbench-output"
        )
    if not found and application == version == 0:
        return True
    if found != _SCHEMA or application != _APPLICATION:
        strange = sorted({name for name, _ in {*found.items()} ^ {*_SCHEMA.items()}} or {"application_id"})[0]
        raise ConfigError(f"{path}: found {strange!r} other than expected: it is no store of results. {_ADVICE}")
    return False


def _make_tables(database: sqlite3.Connection) -> None:
    execute(database, "BEGIN IMMEDIATE")
    if not _read_schema(database):  # else another session has made them meanwhile
        for statement in _SCHEMA.values():
            execute(database, statement)
        execute(database, f"PRAGMA application_id = {_APPLICATION}")
        execute(database, f"PRAGMA user_version = {VERSION}")
    execute(database, "COMMIT")


def _read_schema(database: sqlite3.Connection) -> dict[str, str]:
    rows = execute(database, "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    return dict(rows.fetchall())


def execute(database: sqlite3.Connection, statement: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
    """Run a statement. Raises OSError."""
    try:
        return database.execute(statement, values)
    except sqlite3.Error as error:
        raise _as_os_error(error) from error


def _as_os_error(error: sqlite3.Error, path: str | None = None) -> OSError:
    """Return what other files would have raised: whoever writes here handles a full disk already."""
    code = _ERRNO.get(_code(error), errno.EIO)
    said = os.strerror(code) if code in (errno.ENOSPC, errno.EROFS, errno.EACCES) else str(error)
    return OSError(code, said, path) if path is not None else OSError(code, said)


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_shared(output: str) -> bool:
    """Return whether several machines may write to the output folder's file system."""
    if sys.platform != "linux":
        return False
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
            return find_file_system(os.path.realpath(output), mounts).startswith(_NETWORK)
    except OSError:
        return False


def find_file_system(place: str, mounts: Iterable[str]) -> str:
    """Return the type of the file system that an absolute path lies on, of the lines of `/proc/self/mountinfo`."""
    longest, kind = "", ""
    for line in mounts:
        head, _, tail = line.partition(" - ")
        fields = head.split(" ")
        point = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[4]) if len(fields) > 4 else ""
        # Of two at one point the later lies above
        if point and len(point) >= len(longest) and f"{place}/".startswith(f"{point.rstrip('/')}/"):
            longest, kind = point, tail.partition(" ")[0]
    return kind
