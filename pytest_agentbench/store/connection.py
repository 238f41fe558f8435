"""Connections to the SQLite database of an output folder: opening, checks, schema, and file systems that are unsafe."""

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
from typing import Any

from pytest_agentbench.bounded.files import MAX_RECORD
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.store.output_folder import DamagedError

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
"""Everything that is in a database, by name, in SQLite's own text. A database with any other object, for example a
trigger, is refused.
"""

_BUSY_SECONDS = 60.0
"""Seconds that a write waits for writes of other processes. Each takes less than a millisecond."""
_PAGE = 8192
"""Bytes of a page of a new database: of SQLite's 4096 a sixth stays empty, as a run's documents are so long."""
_LOG_PAGES = 2000
"""After how many pages (16 MB) the log is moved into the database: that waits for the disk."""

_NETWORK = ("9p", "afs", "beegfs", "ceph", "cifs", "fuse.sshfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "smb")
"""Prefixes of file system types that several machines may share. SQLite's log needs shared memory, so it is unsafe
there.
"""

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


def connect(path: str, options: str = "", *, write: bool = False) -> sqlite3.Connection:
    """Open an existing database, or create an empty one; read-only unless `write`.

    Every SQLite file of this package is opened here. Raises OSError, and ConfigError for a database of another program
    and for one with a foreign journal next to it.
    """
    check_files(path)
    try:
        database = sqlite3.connect(
            Path(path).absolute().as_uri() + options,
            uri=True,
            timeout=_BUSY_SECONDS,
            isolation_level=None,  # transactions begin explicitly
            check_same_thread=False,
        )
    except sqlite3.Error as error:
        raise _as_os_error(error, path) from error
    try:
        _restrict(database)
        _check_schema(database, path)
        if write:
            allow_writes(database, path)
    except BaseException:
        database.close()
        raise
    return database


def allow_writes(database: sqlite3.Connection, path: str) -> None:
    """Let a connection write; make the tables of a new database. Raises OSError and ConfigError."""
    execute(database, "PRAGMA query_only = OFF")
    is_new = not has_tables(database)
    if is_new:
        execute(database, f"PRAGMA page_size = {_PAGE}")
    _log_ahead(database, path)
    # NORMAL loses nothing when a process is killed, and the last writes in a power cut
    execute(database, "PRAGMA synchronous = NORMAL")
    # kB: a session's rows are adjacent, and SQLite's default of 2 MB shows in the memory per run
    execute(database, "PRAGMA cache_size = -512")
    execute(database, f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
    if is_new:
        _make_tables(database)
        _check_schema(database, path)


def check_files(path: str) -> None:
    """Raise ConfigError unless the files of a database are files that this package may have left.

    A rollback journal never is: this package writes to the log (`-wal`), and SQLite deletes the file that a journal
    names as its super-journal. A log can only replace pages of the database next to it. So a log counts as ours if it
    is a file with one name whose owner is this user or the database's.
    """
    owners = {os.geteuid()} if hasattr(os, "geteuid") else set()
    for suffix in ("", "-wal", "-shm", "-journal"):
        name = f"{path}{suffix}"
        try:
            status = os.lstat(name)
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(status.st_mode):  # SQLite would follow a link, and wait for ever at a pipe
            raise ConfigError(f"{name}: is not a regular file. {_ADVICE}")
        if suffix == "-journal":
            raise ConfigError(
                f"{name}: found a rollback journal, expected none: no version of pytest-agentbench leaves one, and "
                f"SQLite deletes a file that a journal names. {_ADVICE}"
            )
        if not suffix:
            owners.add(status.st_uid)
        elif status.st_nlink > 1:
            raise ConfigError(f"{name}: has {status.st_nlink} hard links, expected one name. {_ADVICE}")
        elif owners and status.st_uid not in owners:
            raise ConfigError(f"{name}: is of user {status.st_uid}, expected you or the database's owner. {_ADVICE}")


_ALLOWED = frozenset(
    (
        sqlite3.SQLITE_ATTACH,
        sqlite3.SQLITE_CREATE_INDEX,
        sqlite3.SQLITE_CREATE_TABLE,
        sqlite3.SQLITE_CREATE_VIEW,
        sqlite3.SQLITE_DELETE,
        sqlite3.SQLITE_FUNCTION,
        sqlite3.SQLITE_INSERT,
        sqlite3.SQLITE_PRAGMA,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_REINDEX,  # of a table that is made
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_TRANSACTION,
        sqlite3.SQLITE_UPDATE,
    )
)
"""Actions of this package's statements."""


def _restrict(database: sqlite3.Connection) -> None:
    """Apply the settings that SQLite recommends for untrusted files: https://sqlite.org/security.html."""
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_RECORD)
    if sys.version_info >= (3, 12):
        database.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
    execute(database, "PRAGMA query_only = ON")
    execute(database, "PRAGMA trusted_schema = OFF")
    execute(database, "PRAGMA cell_size_check = ON")
    execute(database, "PRAGMA mmap_size = 0")
    database.set_authorizer(_authorize)


def _authorize(action: int, first: str | None, second: str | None, schema: str | None, source: str | None) -> int:
    """Deny all actions of triggers and views (`source`), and all other files except VACUUM's, which has no name."""
    allowed = source is None and action in _ALLOWED and (action != sqlite3.SQLITE_ATTACH or first == "")
    if allowed:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def check_open_files() -> None:
    """Raise OSError if the limit of open files is reached: SQLite reports that only as "unable to open"."""
    with contextlib.ExitStack() as opened:
        for _ in ("", "-wal", "-shm"):
            opened.enter_context(open(os.devnull, "rb"))


def _log_ahead(database: sqlite3.Connection, path: str) -> None:
    """Switch a database to write-ahead logging. Raises OSError if that fails."""
    until = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            if query(database, "PRAGMA journal_mode") != [("wal",)]:
                # The change itself is journaled: in memory, for a process that is killed here must leave no journal
                execute(database, "PRAGMA journal_mode = MEMORY")
                if query(database, "PRAGMA journal_mode = WAL") != [("wal",)]:
                    raise OSError(errno.ENOLCK, "No locks available", path)
            return
        except OSError as error:
            # If two processes switch a new database, SQLite refuses one at once and ignores the busy timeout
            if error.errno != errno.EBUSY or time.monotonic() > until:
                raise
        time.sleep(0.005)


def _check_schema(database: sqlite3.Connection, path: str) -> None:
    """Raise ConfigError for a database that is not this package's, or too damaged to be opened (DamagedError)."""
    try:
        execute(database, "BEGIN")  # else another session may make the tables between these
        schema = _read_schema(database)
        [(version,)] = query(database, "PRAGMA user_version")
        [(application,)] = query(database, "PRAGMA application_id")
        execute(database, "COMMIT")
    except DamagedError as error:
        raise ConfigError(
            f"{path}: {error.strerror}. Save the readable documents with `agentbench store repair --output "
            f"{os.path.dirname(path)}`, move the file away, or name another folder with --agentbench-output"
        ) from error
    if application == _APPLICATION and version > VERSION:
        raise ConfigError(
            f"{path}: found user_version {version}, expected at most {VERSION}: read it with the version of "
            "pytest-agentbench that wrote it, or name another folder with --agentbench-output"
        )
    if not schema and application == version == 0:
        return
    expected = [_describe(name, statement) for name, statement in _SCHEMA.items()]
    if sorted(schema) != sorted(expected) or application != _APPLICATION:
        strange = sorted({name for _, name, _, _ in {*schema} ^ {*expected}} or {"application_id"})[0]
        raise ConfigError(
            f"{path}: found {strange!r} other than expected: the database is not a store of results. {_ADVICE}"
        )


def _describe(name: str, statement: str) -> tuple[str, str, str, str]:
    """Return the row of a statement of `_SCHEMA` in sqlite_master."""
    kind = statement.split(" ", 2)[1].lower()
    if kind == "index":
        return kind, name, statement.split(" ")[4], statement
    return kind, name, name, statement


def _make_tables(database: sqlite3.Connection) -> None:
    execute(database, "BEGIN IMMEDIATE")
    if not has_tables(database):  # else another session has made them meanwhile
        for statement in _SCHEMA.values():
            execute(database, statement)
        execute(database, f"PRAGMA application_id = {_APPLICATION}")
        execute(database, f"PRAGMA user_version = {VERSION}")
    execute(database, "COMMIT")


def has_tables(database: sqlite3.Connection) -> bool:
    """Return whether a database has its tables: another process may have made its file a moment ago."""
    return bool(_read_schema(database))


def _read_schema(database: sqlite3.Connection) -> list[tuple[str, str, str, str]]:
    # Rows, not names: a trigger may have a table's name
    return query(database, "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL")


def execute(database: sqlite3.Connection, statement: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
    """Run a statement. Raises OSError."""
    try:
        return database.execute(statement, values)
    except sqlite3.Error as error:
        raise _as_os_error(error) from error


def query(database: sqlite3.Connection, statement: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
    """Return all rows of a statement. Raises OSError, as SQLite may at any row; DamagedError with the rows before."""
    rows: list[tuple[Any, ...]] = []
    try:
        rows.extend(database.execute(statement, values))
    except sqlite3.Error as error:
        failure = _as_os_error(error)
        if isinstance(failure, DamagedError):
            failure.rows = rows
        raise failure from error
    return rows


def _as_os_error(error: sqlite3.Error, path: str | None = None) -> OSError:
    """Return the OSError for an SQLite error, so that callers handle a full disk in one way for files and database."""
    if _code(error) in _DAMAGED or str(error).startswith("Could not decode"):  # text that is no UTF-8
        return DamagedError(str(error))
    code = _ERRNO.get(_code(error), errno.EIO)
    reason = str(error)
    if code in (errno.ENOSPC, errno.EROFS, errno.EACCES):
        reason = os.strerror(code)
    if path is not None:
        return OSError(code, reason, path)
    return OSError(code, reason)


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
    """Return the type of the file system of an absolute path, from the lines of `/proc/self/mountinfo`."""
    longest, kind = "", ""
    for line in mounts:
        head, _, tail = line.partition(" - ")
        fields = head.split(" ")
        point = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[4]) if len(fields) > 4 else ""
        # Of two mounts at one point the later one is visible
        if point and len(point) >= len(longest) and f"{place}/".startswith(f"{point.rstrip('/')}/"):
            longest, kind = point, tail.partition(" ")[0]
    return kind
