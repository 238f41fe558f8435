"""The journal of a session: JSON lines below its output folder, written while the session runs.

The journal holds the session's rows, from which report.json is made. `agentbench watch` follows it during the session.
`agentbench report` reads it if the session was killed before it wrote report.json. Every line is an object with
`event` and `seconds` (since the session began):

- `begin`: `journal` (1), `session` (as in report.json, as far as known)
- `planned`: `runs`, the number of runs that the session will report
- `progress`: `ended`, the number of runs that have ended, reported or not; `in_flight`, the number of runs in
  progress; `running`, the names of the first of these
- `run`: `at`, the position in the session's order; `row` as in report.json's `runs[]`; `spent_usd` of the session so
  far. A later line with the same node id replaces the earlier one
- `end`: `report`, the parts of report.json that do not follow from its runs (`session`, a comparison), and
  `spent_usd`. With `rows` "report.json" the lines of the runs have been removed, because that file contains them

The session holds a lock on its journal while it lives. A reader that gets the lock knows that the session has ended
or was killed.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import re
import secrets
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from pytest_agentbench.bounded.files import MAX_DOCUMENT, open_file
from pytest_agentbench.bounded.locks import NO_LOCKS_HERE, release_lock, try_lock
from pytest_agentbench.bounded.writing import write_atomically
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.reports.kept_rows import KeptRow, RowKeeper, encode_json, encode_row
from pytest_agentbench.reports.rows import Row

FOLDER = ".journals"
"""Folder of journals below the output folder. A session removes the journals of sessions that are over."""
REPORT = "report.json"
"""The name of the session's report in the output folder."""
VERSION = 1
PROGRESS_SECONDS = 1.0
"""Minimum seconds between two `progress` lines."""
_FOLLOWS = ("schema_version", "totals", "models", "judges", "datasets", "cases", "runs")
"""Members of report.json that follow from its runs."""
_SIGNATURE_BYTES = 16
"""Bytes of the HMAC of a row that are kept in memory."""
MOST_RUNNING = 20
"""How many of the runs under way are named."""

_NAME = re.compile(r"[0-9]{8}T[0-9]{12}Z-[0-9a-f]{8}\.journal")
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


# Who writes what. pytest's thread calls all methods of the writer, one at a time; with pytest-xdist it is the
# controller's, and workers have no journal. Lists of places and rows belong to these calls. The descriptor, the file's
# size and `_is_over` may also be used while another thread reads rows back for figures, so they are guarded by `_lock`.
#
# Who else touches the file. Readers (`agentbench watch`, `agentbench report`) open it by path and never write. A later
# session removes journals whose lock it can take. An agent with this user's rights may write to it: the HMAC of each
# row, whose key exists only in this process, reveals that.


class Journal:
    """Writer of a session's journal. Safe to use from any thread.

    A journal cannot fail a session: if a line cannot be written, `warn` is called once and writing stops. Further rows
    are kept in memory.
    """

    def __init__(self, output: Path, session: Mapping[str, Any], warn: Callable[[str], None]) -> None:
        """Begin the journal of a session that writes to `output`; `session` are facts as in report.json."""
        self._warn, self._began, self._next = warn, time.perf_counter(), 0.0
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self.path: Path | None = None
        self._planned = 0
        self._progress: tuple[int, int, list[str]] | None = None
        self._spent: tuple[dict[str, Any], bytes] = {}, b""
        # Keeps of each row what figures need; its text is read back from this journal by `row_text`
        self._rows = RowKeeper(self)
        self._size = 0
        self._begin = b""
        # Of each row the place of its text, its length, and its HMAC. No other process knows the key, and hash() is no
        # HMAC: PYTHONHASHSEED can fix its key.
        self._places, self._lengths, self._signatures = array("Q"), array("L"), bytearray()
        self._key = secrets.token_bytes(32)
        # Texts of rows that could not be written (a full disk): the session still reports them
        self._unwritten: dict[int, bytes] = {}
        self._is_over = False
        folder = output / FOLDER
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _remove_old(folder)
            self.path, self._descriptor = _create(folder)
        except OSError as error:
            self._give_up(folder, error)
        self._begin = self._line("begin", journal=VERSION, session=dict(session))
        self._append(self._begin)

    def plan(self, runs: int) -> None:
        """Note how many runs the session is to report."""
        if runs != self._planned:
            self._planned = runs
            self._write("planned", runs=runs)

    def progress(self, ended: int, in_flight: int, running: Iterable[str]) -> None:
        """Write a `progress` line if the state has changed and the last line is `PROGRESS_SECONDS` old.

        `running` yields the names of the `in_flight` runs; only as many as needed are taken from it.
        """
        now = time.perf_counter()
        if now < self._next:
            return
        self._next = now + PROGRESS_SECONDS
        progress = ended, in_flight, [*islice(running, MOST_RUNNING)]
        if progress != self._progress:
            self._progress = progress
            self._write("progress", ended=ended, in_flight=in_flight, running=progress[2])

    def change(self, change: Mapping[str, Any]) -> None:
        """Note a request that changed the session while it ran."""
        self._write("change", **change)

    def row(self, row: Mapping[str, Any], at: int, spent_usd: Mapping[str, Any]) -> KeptRow:
        """Append the row of a reported run, or its replacement. Return the row, whose text is now in the journal."""
        text = encode_row(row)
        # `spent_usd` changes with paid runs only; its text is encoded again only then
        if spent_usd != self._spent[0]:
            self._spent = {**spent_usd}, encode_json(spent_usd).encode()
        head, tail = self._head("run") + b',"at":%d,"row":' % at, b',"spent_usd":%b}' % self._spent[1]
        number, place = len(self._places), self._append(head + text + tail)
        self._places.append(0 if place is None else place + len(head))
        self._lengths.append(len(text))
        self._signatures += self._sign(text)
        if place is None:
            self._unwritten[number] = text
        return self._rows.keep(row, number, at)

    def row_text(self, number: int) -> bytes | None:
        """Return the text of an appended row, or None if the file no longer contains the text that was written."""
        if (unwritten := self._unwritten.get(number)) is not None:
            return unwritten
        with self._lock:
            if self._descriptor is None:
                return None
            try:
                os.lseek(self._descriptor, self._places[number], os.SEEK_SET)  # lines are appended wherever this is
                text = os.read(self._descriptor, self._lengths[number])
            except OSError:
                return None
        # An agent may write wherever its user may
        expected = self._signatures[number * _SIGNATURE_BYTES : (number + 1) * _SIGNATURE_BYTES]
        if hmac.compare_digest(self._sign(text), expected):
            return text
        return None

    def _sign(self, text: bytes) -> bytes:
        return hmac.digest(self._key, text, "sha256")[:_SIGNATURE_BYTES]

    def end(self, report: Mapping[str, Any], *, written: bool = False) -> None:
        """Append the end of the session, with the parts of the report that do not follow from rows. Rows stay readable.

        If the report was `written` to report.json of the output folder, the rows are removed from the journal's file.
        """
        from pytest_agentbench.reports.report import spent_of

        # Rows are in the journal already: a second copy of 10,000 would double it
        rest = {name: value for name, value in report.items() if name not in _FOLLOWS}
        end = {"report": rest, "spent_usd": spent_of(report["totals"])}
        if not (written and self._replace(self._begin, self._line("end", **end, rows=REPORT))):
            self._write("end", **end)
        self._stop()

    def discard(self) -> None:
        """Remove the journal of a session that has nothing to report."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Write and read no more, and let go of the lock."""
        with self._lock:
            self._is_over = True
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _head(self, event: str) -> bytes:
        return b'{"event":"%b","seconds":%.3f' % (event.encode(), time.perf_counter() - self._began)

    def _line(self, event: str, **fields: Any) -> bytes:
        return self._head(event) + b"," + encode_json(fields).encode()[1:]

    def _write(self, event: str, **fields: Any) -> None:
        self._append(self._line(event, **fields))

    def _replace(self, *lines: bytes) -> bool:
        """Replace the journal by these lines and return whether that worked. Rows are still read from the old file."""
        if self.path is None or self._descriptor is None or self._is_over or self.path.parent.is_symlink():
            return False
        try:
            if not os.path.samestat(os.lstat(self.path), os.fstat(self._descriptor)):
                return False
            write_atomically(str(self.path.parent), self.path.name, b"".join(line + b"\n" for line in lines))
        except OSError:  # the disk is full or the file is gone: the lines read so far count
            return False
        return True

    def _append(self, line: bytes) -> int | None:
        """Return the offset of the line in the file, or None if it could not be written whole."""
        line += b"\n"
        with self._lock:
            if self._descriptor is None or self._is_over:
                return None
            place = self._size
            try:
                while line:  # a line that a full disk cut short is the last one, and readers leave it out
                    written = os.write(self._descriptor, line)
                    line = line[written:]
                    self._size += written
                return place
            except OSError as error:
                failure = error
        self._give_up(self.path, failure)
        return None

    def _give_up(self, place: Path | None, error: OSError) -> None:
        self._stop()
        self._warn(
            f"{place}: the session's journal cannot be written ({error.strerror or error}), so agentbench watch does "
            "not see it; the results themselves are not touched by this"
        )

    def _stop(self) -> None:
        """Stop writing and release the lock. Written rows stay readable."""
        with self._lock:
            self._is_over = True
            if self._descriptor is not None:
                with contextlib.suppress(OSError):  # there are no locks here
                    release_lock(self._descriptor)


class JournalReader:
    """Reader that follows a journal: `read` reads the lines added since the last call; the attributes are the state so
    far.

    `rows` maps node ids to their position in the session's order and their row. `ended` and `in_flight` are None if the
    session does not report them (with pytest-xdist, workers make the runs). `broken` counts unreadable lines. `taken`
    is the number of bytes read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.session: dict[str, Any] = {}
        self.planned: int | None = None
        self.rows: dict[str, tuple[int, Row]] = {}
        self.ended: int | None = None
        self.in_flight: int | None = None
        self.running: list[str] = []
        self.spent_usd: dict[str, Any] | None = None
        self.seconds = 0.0
        self.rest: dict[str, Any] = {}
        self.is_over = False
        self.broken = 0
        self.taken = 0
        self._file: os.stat_result | None = None

    def read(self) -> int:
        """Return the number of new bytes.

        Raises ConfigError for a journal of another version, RowsGoneError if its rows cannot be found, OSError if the
        file is gone.
        """
        new = 0
        with open_file(self.path, MAX_DOCUMENT) as file:
            status = os.fstat(file.fileno())
            if self._file is not None and not os.path.samestat(self._file, status):
                self.taken = 0  # the session has ended, and left another in its place
            self._file = status
            file.seek(self.taken)
            for line in file:
                if not line.endswith(b"\n"):  # it is being written
                    break
                self._take(line[:-1])
                new += len(line)
        self.taken += new
        return new

    def report(self) -> dict[str, Any]:
        """Return report.json; for a session that is not over, with the rows so far."""
        from pytest_agentbench.reports.report import build_report

        rows = [row for _, row in sorted(self.rows.values(), key=lambda placed: placed[0])]
        session = dict(self.session)
        if not self.is_over:
            session["duration_seconds"] = self.seconds
        if self.broken:
            session["warnings"] = [*session.get("warnings", ()), f"Broken lines of the journal: {self.broken}."]
        return {**build_report(rows, session, self.spent_usd), **self.rest}

    def is_live(self) -> bool:
        """Return whether the session still runs: neither over nor killed."""
        return not self.is_over and is_held(self.path)

    def _take(self, line: bytes) -> None:
        from pytest_agentbench.reports.reading import parsed

        try:
            entry = parsed(line)
            # A line is read whole or not at all: an exception leaves the reader as before, and the next lines count.
            seconds = float(entry["seconds"])
            self._enter(entry["event"], entry)
            self.seconds = max(self.seconds, seconds)
        except (ValueError, KeyError, TypeError, RecursionError):
            self.broken += 1

    def _enter(self, event: str, entry: Mapping[str, Any]) -> None:
        """Take one line, all of it or nothing; an event that is not known here is a newer version's."""
        from pytest_agentbench.reports.reading import facts_mistake, run_mistake

        if event == "begin":
            if entry["journal"] != VERSION:
                raise ConfigError(f"{self.path}: journal: found version {entry['journal']!r}, expected {VERSION}")
            _require(facts_mistake({"session": entry["session"]}))
            self.session = entry["session"]
        elif event == "planned":
            self.planned = int(entry["runs"])
        elif event == "progress":
            ended, in_flight, running = int(entry["ended"]), int(entry["in_flight"]), [*map(str, entry["running"])]
            self.ended, self.in_flight, self.running = ended, in_flight, running
        elif event == "run":
            _require(run_mistake(entry["row"]))
            at, self.spent_usd = int(entry["at"]), _usd(entry["spent_usd"])
            self.rows[entry["row"]["nodeid"]] = at, entry["row"]
        elif event == "end":
            _require(facts_mistake(entry["report"]))
            if entry.get("rows") == REPORT:
                self.rows = {row["nodeid"]: (at, row) for at, row in enumerate(self._read_rows())}
            self.spent_usd, self.rest = _usd(entry["spent_usd"]), {**entry["report"]}
            self.session = self.rest.pop("session")
            self.is_over, self.in_flight, self.running = True, 0, []

    def _read_rows(self) -> list[Row]:
        from pytest_agentbench.reports.reading import read_report

        path, holder = self.path.parent.parent / REPORT, "none"
        if path.is_file():
            report = read_report(path)
            if report["session"]["started_at"] == self.session["started_at"]:
                rows: list[Row] = report["runs"]
                return rows
            holder = "a later session's report"
        raise RowsGoneError(f"{self.path}: its session wrote its runs to {path}, found {holder} there")


class RowsGoneError(ConfigError):
    """The rows of an ended session are missing from the file that its journal names."""


def _require(mistake: str | None) -> None:
    if mistake is not None:
        raise ValueError(mistake)


def _usd(spent: Mapping[str, Any]) -> dict[str, Any]:
    roles = sorted({*spent} - {"run", "judge", "at_least"})
    paid: dict[str, Any] = {
        part: None if spent[part] is None else float(spent[part]) for part in ("run", "judge", *roles)
    }
    if "at_least" in spent:
        return {**paid, "at_least": _usd(spent["at_least"])}
    return paid


def read_journal(path: Path) -> dict[str, Any]:
    """Return the report of a journal's session. For a session that runs or was killed it is incomplete and has a
    warning.

    Raises ConfigError if the file is not a journal.
    """
    reader = JournalReader(path)
    try:
        reader.read()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    if not reader.session:
        raise ConfigError(f"{path}: is not a session's journal, or the session was killed at its start")
    report = reader.report()
    if not reader.is_over:
        state = "is still running" if reader.is_live() else "was killed"
        planned = "its" if reader.planned is None else reader.planned
        warning = f"The session {state}: {len(reader.rows)} of {planned} runs are reported."
        report["session"]["warnings"] = [*report["session"]["warnings"], warning]
    return report


def journals(output: Path) -> list[Path]:
    """Return the journals below an output folder, the newest first."""
    return sorted(_journals(output / FOLDER), reverse=True)


def is_held(path: Path) -> bool:
    """Return whether the journal's session is running; True if unknown."""
    try:
        descriptor = os.open(path, os.O_RDWR)  # to write, for NFS gives no other an exclusive lock
    except OSError as error:
        return not isinstance(error, FileNotFoundError)
    try:
        return not _lock(descriptor)
    finally:
        os.close(descriptor)


def _create(folder: Path) -> tuple[Path, int]:
    """Return a new journal, with its lock: names sort by time, and who removes old ones looks at the lock first."""
    while True:
        path = folder / f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}Z-{secrets.token_hex(4)}.journal"
        descriptor = os.open(path, _FLAGS, 0o666)
        try:
            while _lock(descriptor) is False:  # a reader is trying it, for a moment
                time.sleep(0.001)
            if os.fstat(descriptor).st_nlink:  # else another session took it for one that is over
                return path, descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _remove_old(folder: Path) -> None:
    for path in _journals(folder):
        if not is_held(path):
            with contextlib.suppress(OSError):  # another session was faster, or may, as this one may not
                path.unlink()


def _journals(folder: Path) -> list[Path]:
    """Return the journals in a folder. Only plain files in a plain folder count: reading a FIFO would never end."""
    if folder.is_symlink():
        return []
    try:
        paths = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
        return [path for path in paths if path.is_file() and not path.is_symlink()]
    except OSError:
        return []


def _lock(descriptor: int) -> bool | None:
    """Take the lock. Return False if another process holds it, None if the file system has no locks."""
    try:
        return try_lock(descriptor)
    except OSError as error:
        if error.errno not in NO_LOCKS_HERE:
            raise
        return None
