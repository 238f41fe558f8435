"""One SQLite database in the output folder holds its documents, by the paths that they have in the documented layout.

Large documents, documents of stores older than the database, and all documents on file systems that a database cannot
be shared on, are files at those very paths. Whatever a document is, it is read, moved and removed here alone.

    select case_id, status from runs;              -- sqlite3 outputs/store.sqlite
    select outcome, count(*) from evaluations group by outcome;
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import sqlite3
import stat
import sys
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pytest_agentbench.bounded.files import MAX_RECORD, read_file
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.store.files import (
    DATABASE,
    NO_LOCKS_HERE,
    check_locks,
    hold_write_lock,
    lies_below,
    make_folder,
    write_atomically,
)

LARGEST = 2**16
"""Bytes of the largest document that lies in the database: larger ones would only be copied through its log."""

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

_CONTENT = "SELECT CAST(content AS BLOB) FROM documents WHERE folder = ? AND leaf = ? AND name = ?"
_LENGTH = "SELECT length(content) FROM documents WHERE folder = ? AND leaf = ? AND name = ?"
_MODIFIED = "SELECT CAST(modified AS INTEGER) FROM documents WHERE folder = ? AND leaf = ? AND name = ?"
_INSERT = "INSERT OR IGNORE INTO documents (modified, content, folder, leaf, name) VALUES (?, ?, ?, ?, ?)"
_REPLACE = "UPDATE documents SET modified = ?, content = ? WHERE folder = ? AND leaf = ? AND name = ?"
_TOUCH = "UPDATE documents SET modified = ? WHERE folder = ? AND leaf = ? AND name = ?"
_RENAME = "UPDATE OR REPLACE documents SET name = ? WHERE folder = ? AND leaf = ? AND name = ?"
_DELETE = "DELETE FROM documents WHERE folder = ? AND leaf = ? AND name = ?"

_BUSY_SECONDS = 60.0
"""How long a write waits for those of other processes, which take a fraction of a millisecond each."""
_LOG_PAGES = 4000
"""After how many pages (16 MB) the log is moved into the database: that waits for the disk."""

_NETWORK = ("9p", "afs", "beegfs", "ceph", "cifs", "fuse.sshfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "smb")
"""What the types of file systems begin with that several machines write to: SQLite's log needs shared memory."""

_ESCAPED = re.compile(r"\\([0-7]{3})")

_log = logging.getLogger(__name__)
_opened: weakref.WeakValueDictionary[str, Documents] = weakref.WeakValueDictionary()
_opening = threading.Lock()


def open_documents(output: str | Path) -> Documents:
    """Return the documents of an output folder: the same object for all who ask in this process."""
    path = os.path.abspath(output)
    with _opening:
        documents = _opened.get(path)
        if documents is None:
            _opened[path] = documents = Documents(path)
        return documents


_inherited: list[sqlite3.Connection] = []


def _forget_connections() -> None:
    """Have a forked process open databases anew: it must neither use its parent's connections nor close them."""
    for documents in list(_opened.values()):
        if documents._database is not None:
            _inherited.append(documents._database)
            documents._database, documents._depth = None, 0
        documents._lock = threading.RLock()  # a thread that is not there may hold the parent's


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_connections)


class Documents:
    """The documents of one output folder. Nothing is made there before something is written.

    Paths are relative to the output folder and of at least three parts. Everything raises OSError for what the disk
    does not do.
    """

    def __init__(self, output: str) -> None:
        self.output = output
        self._path = f"{output}/{DATABASE}"
        self._lock = threading.RLock()
        self._database: sqlite3.Connection | None = None
        self._depth = 0
        self._replaced: list[str] = []  # whose files go once what took their place is stored
        self._folders: dict[str, int] = {}
        self._has_files: dict[str, bool] = {}
        self._as_files: bool | None = None
        self._used: set[str] | None = None

    # -- reading

    def read(self, path: str) -> bytes | None:
        """Return a document; None where there is none."""
        row = None
        with self._lock:
            if (database := self._open()) is not None:
                row = self._select(database, _CONTENT, path)
                if row is not None and row[0] is not None:
                    content: bytes = row[0]
                    return content
        return self._read_file(path, named=row is not None)

    def find(self, folder: str, names: tuple[str, str]) -> Iterator[tuple[str, bytes]]:
        """Yield the documents of two names in a folder `root/suite/...`, then those in the same folder of other suites.

        A file that cannot be read is none, unless this process lacks what it takes to read it.
        """
        root, own, rest = folder.split("/", 2)
        base, _, leaf = rest.rpartition("/")
        found: dict[str, bytes | None] = {}
        with self._lock:
            if (database := self._open()) is not None:
                rows = _run(
                    database,
                    "SELECT f.path || '/' || d.leaf || '/' || d.name, CAST(d.content AS BLOB) FROM folders f "
                    "JOIN documents d ON d.folder = f.id AND d.leaf = ? AND d.name IN (?, ?) WHERE f.place = ?",
                    (leaf, *names, f"{root}/{base}"),
                )
                found = dict(rows.fetchall())
        paths = dict(found)
        if self._look_for_files(root):
            # A suite is a name for people: the same run under another suite is the same run, and was paid for
            suites = {own, *_list_folders(f"{self.output}/{root}")}
            paths |= {
                path: None
                for suite in suites
                for name in names
                if (path := f"{root}/{suite}/{rest}/{name}") not in paths
            }
        order = {f"{folder}/{name}": at for at, name in enumerate(names, -len(names))}
        for path in sorted(paths, key=lambda path: (order.get(path, 0), path)) if len(paths) > 1 else paths:
            content = paths[path]
            if content is None:
                try:
                    if path not in found or lies_below(self.output, path):
                        content = self._read_file(path, named=path in found)
                except OSError as error:
                    if error.errno in _OUR_OWN_LIMITS:
                        raise
            if content is not None:
                self._note(path)
                yield path, content

    def modified(self, path: str) -> int | None:
        """Return when a document was written or touched, in nanoseconds; None where there is none."""
        with self._lock:
            if (database := self._open()) is not None:
                row = self._select(database, _MODIFIED, path)
                if row is not None:
                    return int(row[0])
        try:
            return os.lstat(f"{self.output}/{path}").st_mtime_ns
        except (FileNotFoundError, NotADirectoryError):
            return None

    def size(self, path: str) -> int:
        """Return how many bytes a document has; 0 for what is gone."""
        with self._lock:
            if (database := self._open()) is not None:
                row = self._select(database, _LENGTH, path)
                if row is not None and row[0] is not None:
                    return int(row[0])
        try:
            return os.lstat(f"{self.output}/{path}").st_size
        except OSError:
            return 0

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder of documents, those of its files too, in order."""
        base, _, leaf = folder.rpartition("/")
        found: set[str] = set()
        with self._lock:
            if (database := self._open()) is not None and (known := self._folder(database, base)) is not None:
                rows = _run(database, "SELECT name FROM documents WHERE folder = ? AND leaf = ?", (known, leaf))
                found.update(name for (name,) in rows if _is_name(name))
        try:
            with os.scandir(f"{self.output}/{folder}") as entries:
                # A link may lead out of the folder, where pruning would remove what is not the store's.
                found.update(each.name for each in entries if not each.is_symlink())
        except (FileNotFoundError, NotADirectoryError):
            pass
        return sorted(found)

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders in a folder, in order."""
        found = set(_list_folders(f"{self.output}/{folder}"))
        with self._lock:
            if (database := self._open()) is not None:
                begin = f"{folder}/"
                rows = _run(database, "SELECT path FROM folders WHERE path >= ? AND path < ?", (begin, f"{folder}0"))
                found.update(path[len(begin) :].partition("/")[0] for (path,) in rows)
                if (known := self._folder(database, folder)) is not None:
                    rows = _run(database, "SELECT DISTINCT leaf FROM documents WHERE folder = ?", (known,))
                    found.update(leaf for (leaf,) in rows)
        return sorted(filter(_is_name, found))

    @property
    def exist(self) -> bool:
        """Return whether there is a database."""
        return os.path.lexists(self._path)

    # -- writing

    @contextlib.contextmanager
    def writing(self, *, create: bool = True) -> Iterator[None]:
        """Make the changes of the block one step, which other processes see whole or not at all."""
        with self._lock:
            database = self._open(create=create)
            if self._depth:
                yield
                return
            if database is None:
                with hold_write_lock(self.output):
                    self._depth = 1
                    try:
                        yield
                    finally:
                        self._depth = 0
                return
            _run(database, "BEGIN IMMEDIATE")
            self._depth = 1
            try:
                yield
            except BaseException:
                self._folders.clear()  # what the block has added is none any more
                with contextlib.suppress(OSError):  # SQLite has taken all back already where the disk is full
                    _run(database, "ROLLBACK")
                raise
            else:
                try:
                    _run(database, "COMMIT")
                except OSError:
                    self._folders.clear()
                    with contextlib.suppress(OSError):
                        _run(database, "ROLLBACK")
                    raise
                for path in self._replaced:
                    self._unlink(path)
            finally:
                self._depth = 0
                self._replaced.clear()

    def put(self, path: str, content: bytes) -> None:
        """Store a document, in the place of one that lies there."""
        with self.writing():
            if self._insert(path, content):
                return
            folder, leaf, name = _split(path)
            kept = None if len(content) > LARGEST else content
            if (database := self._database) is None or kept is None:
                self._write_file(path, content)
            if database is not None:
                _run(database, _REPLACE, (time.time_ns(), kept, self._folder(database, folder), leaf, name))
                self._note(path)
            if database is not None and kept is not None:
                self._replaced.append(path)

    def add(self, path: str, content: bytes) -> bool:
        """Store a document where none is; False where one is: then nothing is done."""
        with self.writing():
            if self._look_for_files(path.partition("/")[0]) and os.path.lexists(f"{self.output}/{path}"):
                return False
            return self._insert(path, content)

    def _insert(self, path: str, content: bytes) -> bool:
        if (database := self._database) is None:
            return False
        folder, leaf, name = _split(path)
        known = self._folder(database, folder) or self._add_folder(database, folder)
        # What is large lies in a file; the row says that there is one
        row = (time.time_ns(), None if len(content) > LARGEST else content, known, leaf, name)
        if not _run(database, _INSERT, row).rowcount:
            return False
        if row[1] is None:
            self._write_file(path, content)
        self._note(path)
        return True

    def _write_file(self, path: str, content: bytes) -> None:
        folder, _, name = path.rpartition("/")
        make_folder(f"{self.output}/{folder}")
        write_atomically(f"{self.output}/{folder}", name, content)
        self._has_files[path.partition("/")[0]] = True

    def move(self, path: str, to: str) -> None:
        """Give a document of a folder another name there; nothing where there is none."""
        with self.writing():
            database, moved = self._database, False
            if database is not None:
                folder, leaf, name = _split(path)
                row = (_split(to)[2], self._folder(database, folder), leaf, name)
                moved = _run(database, _RENAME, row).rowcount > 0
            try:
                # Its file, were it one that only shows what is in the database, or something that nobody can read
                os.replace(f"{self.output}/{path}", f"{self.output}/{to}")
            except FileNotFoundError:
                if moved:
                    self._unlink(to)  # which showed what lay there
                return
            if database is not None and not moved:
                self._select(database, _DELETE, to)

    def remove(self, path: str) -> None:
        """Remove a document, and its file with the folder that this leaves empty."""
        with self.writing(create=False):
            if (database := self._database) is not None:
                self._select(database, _DELETE, path)
            self._unlink(path)

    def touch(self, path: str) -> None:
        """Say that a document is in use, unless the store cannot be written to: then it is not pruned either."""
        with contextlib.suppress(OSError), self.writing(create=False):
            if (database := self._database) is not None and self._mark(database, path, time.time_ns()):
                return
            os.utime(f"{self.output}/{path}")

    def compact(self) -> None:
        """Give back the room of what was removed."""
        with self._lock:
            if (database := self._open()) is not None:
                _run(database, "VACUUM")
                _run(database, "PRAGMA wal_checkpoint(TRUNCATE)")

    # -- the documented layout

    def lay_out(self, target: str | None = None) -> int:
        """Write all documents to their places in the layout, below `target` or the output folder; return how many."""
        return sum(self._lay_out_folder(folder, target or self.output) for folder in [*self._list_leaves()])

    def note_use(self) -> None:
        """Remember from here on in which folders this process writes or finds something."""
        self._used = set()

    def lay_out_used(self, others: Iterable[str] = ()) -> int:
        """Write what lies in the folders of `note_use` and in some others to its place in the layout.

        Returns how many documents these are.
        """
        used = {*(self._used or ()), *others}
        # Two folders above a case's lies what describes its profile, which an earlier session has stored
        folders = {*used, *(folder.rsplit("/", 2)[0] for folder in used)}
        return sum(self._lay_out_folder(folder, self.output) for folder in sorted(folders))

    def _lay_out_folder(self, folder: str, target: str) -> int:
        base, _, leaf = folder.rpartition("/")
        with self._lock:
            if (database := self._open()) is None or (known := self._folder(database, base)) is None:
                return 0
            statement = (
                "SELECT name, CAST(modified AS INTEGER), CAST(content AS BLOB) FROM documents "
                "WHERE folder = ? AND leaf = ?"
            )
            rows = _run(database, statement, (known, leaf)).fetchall()
        place = f"{target}/{folder}"
        if not lies_below(target, folder):  # the database may be anybody's
            return 0
        for name, modified, content in rows:
            if not _is_name(name):
                continue
            if content is None:  # a large one, which is a file already
                if target == self.output or (content := self._read_file(f"{folder}/{name}", named=True)) is None:
                    continue
            elif _is_written(f"{place}/{name}", modified, len(content)):
                continue
            make_folder(place)
            write_atomically(place, name, content)
            os.utime(f"{place}/{name}", ns=(modified, modified))
        return len(rows)

    def _note(self, path: str) -> None:
        if self._used is not None:
            self._used.add(path.rpartition("/")[0])

    def take_in(self, path: str) -> bool:
        """Put a file of the layout into the database, in its own place; False where one of that name is there."""
        with self.writing():
            database = self._database
            if database is None:
                return False
            new = self._select(database, _MODIFIED, path) is None
            if new and self.modified(path) is None:
                return False
            if new:
                modified, content = self.modified(path), read_file(f"{self.output}/{path}")
                self.put(path, content)
                self._mark(database, path, modified or time.time_ns())
        if self._select(database, _LENGTH, path) != (None,):  # else it is large, and stays a file
            self._unlink(path)
        return new

    def close(self) -> None:
        """Move the log into the database, where no other process has it open. What is asked next opens it again."""
        with self._lock:
            if self._database is not None:
                self._database.close()
                self._database = None

    # -- the database and the files

    def _list_leaves(self) -> Iterator[str]:
        """Yield the folders of all documents in the database, in order."""
        with self._lock:
            if (database := self._open()) is None:
                return
            rows = _run(
                database,
                "SELECT DISTINCT f.path || '/' || d.leaf FROM folders f JOIN documents d ON d.folder = f.id ORDER BY 1",
            ).fetchall()
        for (folder,) in rows:
            yield folder

    def _open(self, *, create: bool = False) -> sqlite3.Connection | None:
        """Return the connection; None where there is no database, or where documents are files."""
        if self._database is not None:
            return self._database
        if self._as_files or not (create or os.path.lexists(self._path)):
            return None
        if self._as_files is None and create and not os.path.lexists(self._path):
            if _is_shared(self.output):
                self._keep_files("several machines may write to this file system")
                return None
            self._as_files = False
        make_folder(self.output)
        self._folders.clear()
        known = os.path.lexists(self._path) and os.lstat(self._path).st_size > 0
        try:
            if not known:
                check_locks(self._path)  # SQLite takes a refusal for another process's lock, and waits for a minute
            self._database = _connect(self._path, "")
        except OSError as error:
            _check_open_files()
            if known and error.errno in (errno.EROFS, errno.EACCES) and not os.path.exists(f"{self._path}-wal"):
                self._database = _connect(self._path, "?immutable=1")  # on a disk that takes no file beside it
            elif known or error.errno not in (*NO_LOCKS_HERE, errno.EIO):
                raise
            else:
                self._keep_files("the file system has no locks, so two sessions there at once may pay for a run twice")
                for name in ("", "-wal", "-shm"):
                    with contextlib.suppress(OSError):
                        os.unlink(f"{self._path}{name}")
                return None
        weakref.finalize(self, self._database.close)  # the last to close it moves the log into the database
        return self._database

    def _keep_files(self, reason: str) -> None:
        self._as_files = True
        _log.warning("%s: %s; results are kept as files", self.output, reason)

    def _select(self, database: sqlite3.Connection, statement: str, path: str) -> tuple[Any, ...] | None:
        """Return the first row of a statement about one document; None too where its folder is not known."""
        if path.count("/") < 2:
            return None  # a file that a session left in the output folder itself, or a lock
        folder, leaf, name = _split(path)
        known = self._folder(database, folder)
        row: tuple[Any, ...] | None = None
        if known is not None:
            row = _run(database, statement, (known, leaf, name)).fetchone()
        return row

    def _mark(self, database: sqlite3.Connection, path: str, modified: int) -> bool:
        """Say when a document was written; False where it is not in the database."""
        folder, leaf, name = _split(path)
        return _run(database, _TOUCH, (modified, self._folder(database, folder), leaf, name)).rowcount > 0

    def _folder(self, database: sqlite3.Connection, path: str) -> int | None:
        known = self._folders.get(path)
        if known is None:
            row = _run(database, "SELECT id FROM folders WHERE path = ?", (path,)).fetchone()
            if row is not None:
                known = self._folders[path] = int(row[0])
        return known

    def _add_folder(self, database: sqlite3.Connection, path: str) -> int:
        root, _, rest = path.partition("/")
        place = f"{root}/{rest.partition('/')[2]}"
        added = _run(database, "INSERT INTO folders (path, place) VALUES (?, ?)", (path, place)).lastrowid
        assert added is not None
        self._folders[path] = added
        return added

    def _look_for_files(self, root: str) -> bool:
        """Return whether documents below a root may be files: then there is a folder of that name."""
        known = self._has_files.get(root)
        # Once there is a database, only this process makes files that it does not name as well
        if known is None or (not known and self._database is None):
            known = self._has_files[root] = os.path.isdir(f"{self.output}/{root}")
        return known

    def _read_file(self, path: str, *, named: bool) -> bytes | None:
        """Return what is in a file; None where there is none, or can be none unless the database names it."""
        if not named and not self._look_for_files(path.partition("/")[0]):
            return None
        try:
            return read_file(f"{self.output}/{path}")
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _unlink(self, path: str) -> None:
        if not lies_below(self.output, path):
            return
        try:
            os.unlink(f"{self.output}/{path}")
        except FileNotFoundError:
            return
        with contextlib.suppress(OSError):  # it holds more
            os.rmdir(f"{self.output}/{path.rpartition('/')[0]}")


def _connect(path: str, options: str) -> sqlite3.Connection:
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
        _run(database, "PRAGMA trusted_schema = OFF")
        is_new = _check_schema(database, path)  # before anything is changed in a database that may be another program's
        if not options:
            _log_ahead(database, path)
            # NORMAL loses nothing when a process is killed, and what was written last when the power fails
            _run(database, "PRAGMA synchronous = NORMAL")
            _run(database, f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
        if is_new:
            _make_tables(database)
            _check_schema(database, path)
    except BaseException:
        database.close()
        raise
    return database


def _check_open_files() -> None:
    """Raise OSError where a limit of open files keeps SQLite, which says only that it cannot open one."""
    with contextlib.ExitStack() as opened:
        for _ in ("", "-wal", "-shm"):
            opened.enter_context(open(os.devnull, "rb"))


def _log_ahead(database: sqlite3.Connection, path: str) -> None:
    """Have a database write to its log first. Raises OSError where it cannot."""
    until = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            if _run(database, "PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
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
        _run(database, "BEGIN")  # else another session may make the tables between these
        found = _read_schema(database)
        version = _run(database, "PRAGMA user_version").fetchone()[0]
        application = _run(database, "PRAGMA application_id").fetchone()[0]
        _run(database, "COMMIT")
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
    _run(database, "BEGIN IMMEDIATE")
    if not _read_schema(database):  # else another session has made them meanwhile
        for statement in _SCHEMA.values():
            _run(database, statement)
        _run(database, f"PRAGMA application_id = {_APPLICATION}")
        _run(database, f"PRAGMA user_version = {VERSION}")
    _run(database, "COMMIT")


def _read_schema(database: sqlite3.Connection) -> dict[str, str]:
    rows = _run(database, "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    return dict(rows.fetchall())


def _run(database: sqlite3.Connection, statement: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
    try:
        return database.execute(statement, values)
    except sqlite3.Error as error:
        raise _as_os_error(error) from error


_ADVICE = "Move it away, or name another folder with --agentbench-output"
_DAMAGED = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
_OUR_OWN_LIMITS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_ERRNO = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_BUSY: errno.EBUSY,
    sqlite3.SQLITE_PERM: errno.EACCES,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_PROTOCOL: errno.ENOLCK,
}


def _as_os_error(error: sqlite3.Error, path: str | None = None) -> OSError:
    """Return what other files would have raised: whoever writes here handles a full disk already."""
    code = _ERRNO.get(_code(error), errno.EIO)
    said = os.strerror(code) if code in (errno.ENOSPC, errno.EROFS, errno.EACCES) else str(error)
    return OSError(code, said, path) if path is not None else OSError(code, said)


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _split(path: str) -> tuple[str, str, str]:
    folder, leaf, name = path.rsplit("/", 2)
    return folder, leaf, name


def _is_name(text: str) -> bool:
    """Return whether a text is the name of a file or folder: who wrote a database may have written anything."""
    return "/" not in text and "\\" not in text and "\0" not in text and text not in ("", ".", "..")


def _is_written(path: str, modified: int, size: int) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return (found.st_mtime_ns, found.st_size) == (modified, size)


def _list_folders(path: str) -> list[str]:
    try:
        with os.scandir(path) as found:
            return [each.name for each in found if each.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_shared(output: str) -> bool:
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
