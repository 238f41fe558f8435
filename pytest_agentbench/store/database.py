"""The documents of an output folder: one SQLite database, addressed by the paths of the documented layout.

Large documents are files at those paths, and so are all documents on file systems where a database cannot be shared.
Only this module reads, moves and removes documents.

    select case_id, status from runs;              -- sqlite3 outputs/store.sqlite
    select outcome, count(*) from evaluations group by outcome;

Threads: every access to the connection and to the state of `Documents` holds `_lock`. Processes: SQLite's write lock
(`BEGIN IMMEDIATE`) orders the steps of all processes; without a database, the file lock of `hold_write_lock` does.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pytest_agentbench.bounded.files import read_file
from pytest_agentbench.bounded.folders import lies_below, make_folder
from pytest_agentbench.bounded.locks import NO_LOCKS_HERE, check_locks
from pytest_agentbench.bounded.writing import write_atomically
from pytest_agentbench.store.claims import hold_write_lock
from pytest_agentbench.store.connection import (
    allow_writes,
    check_files,
    check_open_files,
    connect,
    execute,
    has_tables,
    is_shared,
    query,
)
from pytest_agentbench.store.output_folder import DATABASE, DamagedError

LARGEST = 2**16
"""Bytes of the largest document in the database. Larger ones are files, because SQLite would copy them through its
log.
"""

_CONTENT = "SELECT CAST(content AS BLOB) FROM documents WHERE folder = ? AND leaf = ? AND name = ?"
_LENGTH = "SELECT length(content) FROM documents WHERE folder = ? AND leaf = ? AND name = ?"
_MODIFIED = "SELECT CAST(modified AS INTEGER) FROM documents WHERE folder = ? AND leaf = ? AND name = ?"
_SAME_PLACE = (
    "SELECT f.path || '/' || d.leaf || '/' || d.name, CAST(d.content AS BLOB), f.id, d.rowid FROM folders f "
    "JOIN documents d ON d.folder = f.id AND d.leaf = ? AND d.name IN (?, ?) WHERE f.place = ?"
)
_NEXT = (  # NOT INDEXED: by their place in the table, where they lie side by side
    "SELECT leaf, CAST(content AS BLOB) FROM documents NOT INDEXED WHERE rowid > ? AND rowid <= ? AND folder = ? "
    "AND name = ? AND length(content) <= 8192"
)
_VIEW = "SELECT name, CAST(modified AS INTEGER), CAST(content AS BLOB) FROM documents WHERE folder = ? AND leaf = ?"
_INSERT = "INSERT OR IGNORE INTO documents (modified, content, folder, leaf, name) VALUES (?, ?, ?, ?, ?)"
_REPLACE = "UPDATE documents SET modified = ?, content = ? WHERE folder = ? AND leaf = ? AND name = ?"
_TOUCH = "UPDATE documents SET modified = ? WHERE folder = ? AND leaf = ? AND name = ?"
_RENAME = "UPDATE OR REPLACE documents SET name = ? WHERE folder = ? AND leaf = ? AND name = ?"
_DELETE = "DELETE FROM documents WHERE folder = ? AND leaf = ? AND name = ?"

_AHEAD = 192
"""Number of rows that are read ahead if documents are read in the order in which they were stored."""
_MOST_AHEAD = 1024

_OUR_OWN_LIMITS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)

T = TypeVar("T")
_log = logging.getLogger(__name__)
_opened: weakref.WeakValueDictionary[str, Documents] = weakref.WeakValueDictionary()
_opening = threading.Lock()


def open_documents(output: str | Path) -> Documents:
    """Return the documents of an output folder: one object per folder and process."""
    path = os.path.abspath(output)
    with _opening:
        documents = _opened.get(path)
        if documents is None:
            _opened[path] = documents = Documents(path)
        return documents


_inherited: list[sqlite3.Connection | contextlib.ExitStack] = []


def _forget_connections() -> None:
    """Have a forked process open databases anew: it must neither use its parent's connections nor close them."""
    for documents in list(_opened.values()):
        if documents._database is not None:
            _inherited.append(documents._database)
            documents._database, documents._may_write, documents._depth = None, False, 0
        if documents._held is not None:
            _inherited.append(documents._held)
            documents._held, documents._depth = None, 0
        documents._lock = threading.RLock()  # a thread that is not there may hold the parent's


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_connections)


class Documents:
    """The documents of one output folder. Nothing is created there before the first write.

    Paths are relative to the output folder and have at least three parts. All methods raise OSError for failures of the
    disk. `warn` receives warnings for people; it may be set at any time.
    """

    def __init__(self, output: str) -> None:
        self.output = output
        self.warn: Callable[[str], None] = _log.warning
        self._path = f"{output}/{DATABASE}"
        self._lock = threading.RLock()
        self._database: sqlite3.Connection | None = None
        self._may_write = False
        self.is_damaged = False
        self._passes_by = False  # True while `store` writes files because the database is damaged
        self._file: os.stat_result | None = None
        self._held: contextlib.ExitStack | None = None  # the lock of a step, where documents are files
        self._depth = 0
        self._removed: dict[str, None] = {}  # paths whose files are removed after the step is committed
        self._once_stored: list[Callable[[], None]] = []
        self._folders: dict[str, int] = {}
        self._ahead: dict[str, bytes] = {}
        self._last_read: dict[tuple[int, str], int] = {}
        self._has_files: dict[str, bool] = {}
        self._as_files: bool | None = None
        self.used: set[str] | None = None  # folders, see note_use

    # -- reading

    def read(self, path: str) -> bytes | None:
        """Return a document, or None."""
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

        Unreadable files are ignored, unless this process has reached a limit of its own.
        """
        root, own, rest = folder.split("/", 2)
        base, _, leaf = rest.rpartition("/")
        first = f"{folder}/{names[0]}"
        stored: dict[str, bytes | None] = {}
        with self._lock:
            read_ahead = self._ahead.pop(first, None)
        if read_ahead is not None:
            self._note(first)
            yield first, read_ahead
        with self._lock:
            if (database := self._open()) is not None:
                rows = self._select_all(database, _SAME_PLACE, (leaf, *names, f"{root}/{base}"))
                stored = {path: content for path, content, _, _ in rows}
                if self.is_damaged:
                    stored |= self._find_one_by_one(database, f"{root}/{base}", leaf, names)
                place = next((where for path, _, *where in rows if path == first), None)
                if place is not None:
                    self._read_ahead(database, f"{root}/{own}/{base}", names[0], *place)
        has_files = self._look_for_files(root)
        if not stored and not has_files:
            return
        paths = dict(stored)
        if has_files:
            # A suite is a name for people: the same run under another suite is the same run, and was paid for
            suites = {own, *_list_folders(f"{self.output}/{root}")}
            paths |= {
                path: None
                for suite in suites
                for name in names
                if (path := f"{root}/{suite}/{rest}/{name}") not in paths
            }
        order = {f"{folder}/{name}": at for at, name in enumerate(names, -len(names))}
        for path in sorted(paths, key=lambda path: (order.get(path, 0), path)):
            content = paths[path]
            if content is None:
                try:
                    if path not in stored or lies_below(self.output, path):
                        content = self._read_file(path, named=path in stored)
                except OSError as error:
                    if error.errno in _OUR_OWN_LIMITS:
                        raise
            if content is not None and not (path == first and content == read_ahead):
                self._note(path)
                yield path, content

    def _find_one_by_one(
        self, database: sqlite3.Connection, place: str, leaf: str, names: tuple[str, str]
    ) -> dict[str, bytes | None]:
        """Return the documents that one query finds at once unless it meets damage."""
        folders = self._select_all(database, "SELECT path FROM folders WHERE path IS NOT NULL AND place = ?", (place,))
        paths = [f"{folder}/{leaf}/{name}" for (folder,) in folders for name in names]
        rows = ((path, self._select(database, _CONTENT, path)) for path in paths)
        return {path: row[0] for path, row in rows if row is not None}

    def _read_ahead(self, database: sqlite3.Connection, base: str, name: str, folder: int, row: int) -> None:
        """Keep the documents of a name that were stored after the one that was just read, if reads follow that order.

        A session asks for its cases in the order in which an earlier session stored them. Without reading ahead,
        sessions whose runs are all reused take 1.25 times the CPU. Each kept document is returned once: a second look,
        with the claim held, reads the database.
        """
        last = self._last_read.get((folder, name), row)
        self._last_read[folder, name] = row
        if last < row <= last + _AHEAD:
            if len(self._ahead) > _MOST_AHEAD:
                self._ahead.clear()
            rows = self._select_all(database, _NEXT, (row, row + _AHEAD, folder, name))
            self._ahead |= {f"{base}/{leaf}/{name}": content for leaf, content in rows}
            self._last_read[folder, name] = row + _AHEAD

    def modified(self, path: str) -> int | None:
        """Return the time at which a document was written or touched, in nanoseconds, or None."""
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
        """Return the bytes of a document, 0 if it is gone."""
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
        """Return the names of the documents in a folder, including files, in order."""
        base, _, leaf = folder.rpartition("/")
        names: set[str] = set()
        with self._lock:
            if (database := self._open()) is not None and (known := self._folder(database, base)) is not None:
                statement = "SELECT name FROM documents WHERE folder = ? AND leaf = ?"
                rows = self._select_all(database, statement, (known, leaf))
                names.update(name for (name,) in rows if is_name(name))
        try:
            with os.scandir(f"{self.output}/{folder}") as entries:
                # A link may lead out of the folder, and pruning would remove files of others there
                names.update(entry.name for entry in entries if not entry.is_symlink())
        except (FileNotFoundError, NotADirectoryError):
            pass
        return sorted(names)

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders in a folder, in order."""
        names = set(_list_folders(f"{self.output}/{folder}"))
        with self._lock:
            if (database := self._open()) is not None:
                begin = f"{folder}/"
                statement = "SELECT path FROM folders WHERE path >= ? AND path < ?"
                rows = self._select_all(database, statement, (begin, f"{folder}0"))
                names.update(path[len(begin) :].partition("/")[0] for (path,) in rows)
                if (known := self._folder(database, folder)) is not None:
                    statement = "SELECT DISTINCT leaf FROM documents WHERE folder = ?"
                    rows = self._select_all(database, statement, (known,))
                    names.update(leaf for (leaf,) in rows)
        return sorted(filter(is_name, names))

    def list_leaves(self) -> list[str]:
        """Return the folders of all documents in the database, in order."""
        with self._lock:
            if (database := self._open()) is None:
                return []
            rows = self._select_all(
                database,
                "SELECT DISTINCT f.path || '/' || d.leaf FROM folders f JOIN documents d ON d.folder = f.id ORDER BY 1",
            )
        return [folder for (folder,) in rows]

    def read_folder(self, folder: str) -> list[tuple[str, int, bytes | None]]:
        """Return name, time of modification (ns) and content of a folder's documents in the database.

        The content of a large document is None: it is a file.
        """
        base, _, leaf = folder.rpartition("/")
        with self._lock:
            if (database := self._open()) is None or (known := self._folder(database, base)) is None:
                return []
            rows = self._select_all(database, _VIEW, (known, leaf))
            if self.is_damaged:
                one = f"{_VIEW} AND name = ?"
                readable = (self._select(database, one, f"{folder}/{name}") for name in self.names(folder))
                rows = [row for row in readable if row is not None]
        return rows

    @property
    def exist(self) -> bool:
        """Return whether there is a database."""
        return os.path.lexists(self._path)

    # -- writing

    def writing(self, *, create: bool = True) -> contextlib.AbstractContextManager[None]:
        """Return a context that makes its changes one step, which other processes see whole or not at all."""
        return _Step(self, create=create)

    def _begin(self, *, create: bool) -> None:
        self._leave_removed()
        if not self._passes_by and (database := self._open(write=True, create=create)) is not None:
            execute(database, "BEGIN IMMEDIATE")
        else:
            held = contextlib.ExitStack()
            held.enter_context(hold_write_lock(self.output))
            self._held = held

    def _end(self, *, failed: bool) -> None:
        removed, self._removed = self._removed, {}
        once_stored, self._once_stored = self._once_stored, []
        held, self._held = self._held, None
        with held or contextlib.nullcontext():
            try:
                if not failed and self._written is not None:
                    execute(self._written, "COMMIT")
            except OSError:
                failed = True
                raise
            finally:
                if failed and self._written is not None:
                    self._folders.clear()  # folders that the block added are rolled back
                    with contextlib.suppress(OSError):  # on a full disk SQLite has rolled back already
                        execute(self._written, "ROLLBACK")
            if not failed:
                for path in removed:
                    self._unlink(path)
                for act in once_stored:
                    act()

    def once_stored(self, act: Callable[[], None]) -> None:
        """Call `act` after the current step of this thread is stored, unless the step fails.

        Used to remove files that the step replaces: if the process is killed before, the old documents still have their
        files.
        """
        self._once_stored.append(act)

    def store(self, act: Callable[[], T]) -> T:
        """Call `act` in one step and return its result.

        SQLite commits no step that met damage. If this is the outermost step, `act` is called again with documents as
        files: these are found where no row can be read. Raises DamagedError if a row that can be read hides one.
        """
        with self._lock:
            try:
                with self.writing():
                    return act()
            except OSError as error:
                # A damaged page may name pages that the file has not: SQLite takes that for a full disk
                if self._depth or not (
                    isinstance(error, DamagedError) or (self.is_damaged and error.errno == errno.ENOSPC)
                ):
                    raise
                self._meet_damage(error)
            self._passes_by = True
            try:
                with self.writing():
                    return act()
            finally:
                self._passes_by = False

    def put(self, path: str, content: bytes) -> None:
        """Store a document, replacing any existing one."""
        self.store(partial(self._put, path, content))

    def _put(self, path: str, content: bytes) -> None:
        self._ahead.pop(path, None)
        if self._insert(path, content):
            return
        folder, leaf, name = _split(path)
        row_content = None if len(content) > LARGEST else content
        database = self._written
        if database is None or row_content is None:
            self._write_file(path, content)
        if database is not None:
            row = (time.time_ns(), row_content, self._folder(database, folder), leaf, name)
            if not execute(database, _REPLACE, row).rowcount:
                raise DamagedError("an index names a missing row")
            self._note(path)
        if database is not None and row_content is not None:
            self._removed[path] = None
        if self._passes_by and self.read(path) != content:
            raise DamagedError("a stored document cannot be replaced")

    def add(self, path: str, content: bytes) -> bool:
        """Store a document and return True, or return False if one exists."""
        with self.writing():
            if self._look_for_files(path.partition("/")[0]) and os.path.lexists(f"{self.output}/{path}"):
                return False
            return self._insert(path, content)

    @property
    def _written(self) -> sqlite3.Connection | None:
        """Return the connection that the step writes to; None if documents are files."""
        if self._passes_by:
            return None
        return self._database

    def _insert(self, path: str, content: bytes) -> bool:
        if (database := self._written) is None:
            return False
        folder, leaf, name = _split(path)
        known = self._folder(database, folder) or self._add_folder(database, folder)
        # A large document is a file. Its row without content records that it exists.
        row = (time.time_ns(), None if len(content) > LARGEST else content, known, leaf, name)
        if not execute(database, _INSERT, row).rowcount:
            return False
        if row[1] is None:
            self._write_file(path, content)
        self._note(path)
        return True

    def _write_file(self, path: str, content: bytes) -> None:
        folder, _, name = path.rpartition("/")
        make_folder(f"{self.output}/{folder}")
        write_atomically(f"{self.output}/{folder}", name, content)
        self._removed.pop(path, None)
        self._has_files[path.partition("/")[0]] = True

    def move(self, path: str, to: str) -> None:
        """Rename a document within its folder. Does nothing if it does not exist."""
        with self.writing():
            self._ahead.pop(path, None)
            database, moved = self._written, False
            if database is not None:
                folder, leaf, name = _split(path)
                row = (_split(to)[2], self._folder(database, folder), leaf, name)
                moved = execute(database, _RENAME, row).rowcount > 0
            try:
                # A file in its place moves too: a copy made by `lay_out`, or something unreadable
                os.replace(f"{self.output}/{path}", f"{self.output}/{to}")
                self._removed.pop(to, None)
            except FileNotFoundError:
                if moved:
                    self._removed[to] = None  # a copy of the document that was there
                return
            if database is not None and not moved:
                self._select(database, _DELETE, to)

    def remove(self, path: str) -> None:
        """Remove a document, and its file with the folder that this leaves empty."""
        with self.writing(create=False):
            self._ahead.pop(path, None)
            if (database := self._written) is not None:
                self._select(database, _DELETE, path)
            self._removed[path] = None

    def touch(self, path: str) -> None:
        """Mark a document as in use. Ignored if the store is read-only: then nothing can be pruned either."""
        with contextlib.suppress(OSError), self.writing(create=False):
            if (database := self._database) is not None:
                folder, leaf, name = _split(path)
                if execute(database, _TOUCH, (time.time_ns(), self._folder(database, folder), leaf, name)).rowcount:
                    return
            os.utime(f"{self.output}/{path}")

    def compact(self) -> None:
        """Return the space of removed documents to the file system."""
        with self._lock:
            if (database := self._open(write=True)) is not None:
                execute(database, "VACUUM")
                execute(database, "PRAGMA wal_checkpoint(TRUNCATE)")

    def find_damage(self) -> str | None:
        """Return the first problem of SQLite's integrity check over the whole database, or None. Raises OSError."""
        with self._lock:
            if (database := self._open()) is None:
                return None
            try:
                [(report,)] = query(database, "PRAGMA integrity_check(1)")
            except DamagedError as error:
                return error.strerror
            if report == "ok":
                return None
            return str(report).splitlines()[-1]

    def note_use(self) -> None:
        """Remember in `used` the folders in which this process writes or finds a document from now on."""
        self.used = set()

    def _note(self, path: str) -> None:
        if self.used is not None:
            self.used.add(path.rpartition("/")[0])

    def close(self) -> None:
        """Close the connection; the last process to close it moves the log into the database. An access reopens it."""
        with self._lock:
            self._ahead.clear()
            self._last_read.clear()
            if self._database is not None:
                self._database.close()
                self._database, self._may_write, self.is_damaged = None, False, False

    # -- the database and the files

    def _open(self, *, write: bool = False, create: bool = False) -> sqlite3.Connection | None:
        """Return the connection; None if there is no database or documents are files.

        Without `write` it is read-only: a command that inspects another person's folder changes nothing there.
        """
        if self._database is not None:
            if write and not self._may_write:
                allow_writes(self._database, self._path)
                self._may_write = True
            return self._database
        if self._as_files or not (create or os.path.lexists(self._path)):
            return None
        if self._as_files is None:
            shared = is_shared(self.output)
            if shared and not os.path.lexists(self._path):
                self._keep_files("several machines may write to this file system")
                return None
            if shared:  # it was copied here, or is of a version that knew no better
                self.warn(
                    f"{self._path}: several machines may write to this file system, but a database is safe "
                    "for only one: let no other machine write to it, or copy it with `agentbench store export "
                    "--files DIR` and continue with --agentbench-output=DIR"
                )
            self._as_files = False
        known = os.path.lexists(self._path) and os.lstat(self._path).st_size > 0
        make_folder(self.output)
        self._folders.clear()
        try:
            if not known:
                check_files(self._path)
                check_locks(self._path)  # SQLite takes a refusal for another process's lock, and waits for a minute
            database = connect(self._path, write=write)
        except OSError as error:
            check_open_files()
            if known and error.errno in (errno.EROFS, errno.EACCES) and not os.path.exists(f"{self._path}-wal"):
                database = connect(self._path, "?immutable=1")  # on a disk that does not accept SQLite's other files
                write = True  # SQLite refuses it
            elif known or error.errno not in (*NO_LOCKS_HERE, errno.EIO):
                raise
            else:
                self._keep_files("the file system has no locks, so two concurrent sessions may pay for the same run")
                for name in ("", "-wal", "-shm"):
                    with contextlib.suppress(OSError):
                        os.unlink(f"{self._path}{name}")
                return None
        if not (write or has_tables(database)):
            database.close()  # the first write makes it a store
            return None
        self._database, self._may_write = database, write
        self._file = os.stat(self._path)
        weakref.finalize(self, self._database.close)  # the last process to close it moves the log into the database
        return self._database

    def _keep_files(self, reason: str) -> None:
        self._as_files = True
        self.warn(f"{self.output}: {reason}; results are kept as files")

    def _leave_removed(self) -> None:
        """Close a database that was removed or moved: writes to it would be lost."""
        if self._database is None or self._file is None:
            return
        try:
            if os.path.samestat(os.stat(self._path), self._file):
                return
        except FileNotFoundError:
            pass
        self.warn(
            f"{self._path}: was removed or moved while it was in use: its results are not in {self.output} any more; "
            "new results are stored in a new database"
        )
        self.close()
        self._has_files.clear()

    def _select(self, database: sqlite3.Connection, statement: str, path: str) -> tuple[Any, ...] | None:
        """Return the first row of a statement about one document.

        Return None too if its folder is not known, or the row is on a damaged page.
        """
        if path.count("/") < 2:
            return None  # a file that a session left in the output folder itself
        folder, leaf, name = _split(path)
        try:
            if (number := self._folder(database, folder)) is None:
                return None
            rows = query(database, statement, (number, leaf, name))
        except DamagedError as error:
            self._meet_damage(error)
            return None
        if rows:
            return rows[0]
        return None

    def _select_all(
        self, database: sqlite3.Connection, statement: str, values: tuple[object, ...] = ()
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a statement; if the database is damaged, the rows before the damage."""
        try:
            return query(database, statement, values)
        except DamagedError as error:
            self._meet_damage(error)
            return error.rows

    def _meet_damage(self, error: OSError) -> None:
        """Continue without the unreadable documents, and warn once."""
        if not self.is_damaged:
            self.is_damaged = True
            self._has_files.clear()  # other processes may have stored files in place of damaged rows
            self.warn(
                f"{self._path}: is damaged ({error.strerror}): unreadable documents count as not stored. "
                f"Save the rest with `agentbench store repair --output {self.output}`"
            )

    def _folder(self, database: sqlite3.Connection, path: str) -> int | None:
        known = self._folders.get(path)
        if known is None:
            try:
                rows = query(database, "SELECT id FROM folders WHERE path = ?", (path,))
            except DamagedError as error:  # in the index, perhaps: the rows have all that it has
                self._meet_damage(error)
                rows = query(database, "SELECT id FROM folders NOT INDEXED WHERE path = ?", (path,))
            for (known,) in rows:
                self._folders[path] = known
        return known

    def _add_folder(self, database: sqlite3.Connection, path: str) -> int:
        row = (path, find_place(path))
        added = execute(database, "INSERT INTO folders (path, place) VALUES (?, ?)", row).lastrowid
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
        """Return the content of a file, or None. Unless the database names it, the root's folder must exist."""
        if not named and not self._look_for_files(path.partition("/")[0]):
            return None
        if path in self._removed:
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


class _Step:
    """A transaction of one thread. Nested steps are part of the outermost one. Entered for each stored document."""

    __slots__ = ("_create", "_documents")

    def __init__(self, documents: Documents, *, create: bool) -> None:
        self._documents, self._create = documents, create

    def __enter__(self) -> None:
        documents = self._documents
        documents._lock.acquire()
        try:
            if not documents._depth:
                documents._begin(create=self._create)
            documents._depth += 1
        except BaseException:
            documents._lock.release()
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        documents = self._documents
        try:
            documents._depth -= 1
            if not documents._depth:
                documents._end(failed=kind is not None)
        finally:
            documents._lock.release()


def _split(path: str) -> tuple[str, str, str]:
    folder, leaf, name = path.rsplit("/", 2)
    return folder, leaf, name


def find_place(path: str) -> str:
    """Return the path of a folder without its suite: runs are looked for in all suites."""
    root, _, rest = path.partition("/")
    return f"{root}/{rest.partition('/')[2]}"


def is_name(text: str) -> bool:
    """Return whether a text is the name of a file or folder: who wrote a database may have written anything."""
    return "/" not in text and "\\" not in text and "\0" not in text and text not in ("", ".", "..")


def _list_folders(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []
