"""Read the rows of a damaged SQLite file page by page, without the trees that hold the pages together.

A damaged page costs the rows on it and no others: neither the header nor the inner pages of a tree are needed. The
format is https://sqlite.org/fileformat2.html. Nothing here opens the file with SQLite.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_agentbench.bounded.files import open_descriptor

_MAGIC = b"SQLite format 3\0"
_LOG_MAGIC = (0x377F0682, 0x377F0683)
_LOG_HEADER, _FRAME_HEADER = 32, 24
_PAGE_SIZES = (8192, 4096)
"""Bytes of a page to try if the header is unreadable: this package's size and SQLite's default."""
_LONGEST = 2**18
"""Bytes of a row that are read at most: a document in the database has a quarter of it."""

TABLE_LEAF = 13
INDEX_LEAF, INDEX_INNER = 10, 2

Row = tuple[Any, ...]
LOST = object()
"""Value of a column on an unreadable page."""


class Pages:
    """The pages of a database file, as the log next to it has them last."""

    def __init__(self, path: str, page_size: int | None = None) -> None:
        """Open the file. Raises OSError."""
        with contextlib.ExitStack() as opened:
            self._file = os.fdopen(opened.enter_context(_closing(open_descriptor(path, None)[0])), "rb", closefd=False)
            self._log = None
            with contextlib.suppress(FileNotFoundError):
                descriptor = opened.enter_context(_closing(open_descriptor(f"{path}-wal", None)[0]))
                self._log = os.fdopen(descriptor, "rb", closefd=False)
            self._opened = opened.pop_all()
        header = self._read_at(self._file, 0, 100)
        self.is_headed = header.startswith(_MAGIC)
        named = _page_size(int.from_bytes(header[16:18])) if self.is_headed else None
        reserved = header[20] if named is not None and header[20] <= 64 else 0
        self.size = page_size or named or _PAGE_SIZES[0]
        self.is_sized = named is not None
        self.usable = self.size - reserved
        self._logged = self._read_log()
        self.count = -(-os.fstat(self._file.fileno()).st_size // self.size)
        counted = int.from_bytes(self.read(1)[28:32]) if self.is_headed else 0
        self.missing = max(0, counted - max(self.count, *self._logged, 0))

    def close(self) -> None:
        """Close the files."""
        self._opened.close()

    def read(self, number: int) -> bytes:
        """Return a page, counted from 1; shorter or empty if it cannot be read."""
        if self._log is not None and number in self._logged:
            return self._read_at(self._log, self._logged[number], self.size)
        if 0 < number <= self.count:
            return self._read_at(self._file, (number - 1) * self.size, self.size)
        return b""

    def list_rows(self, kind: int, columns: int) -> Iterator[tuple[int, Row]]:
        """Yield the rows of a kind of page that have so many columns, each with its row id (0 in an index)."""
        # Of a list that is damaged itself any page may be in use
        free = self._list_free() if self.has_whole_free_list() else set()
        # Not up to the log's highest number, which may be any
        for number in (*range(1, self.count + 1), *sorted(each for each in self._logged if each > self.count)):
            if number in free:
                continue
            page = self.read(number)
            for at in _list_cells(page, kind, 100 if number == 1 else 0):
                with contextlib.suppress(ValueError, IndexError):
                    rowid, body = self._read_payload(page, at, kind)
                    yield rowid, _decode(body, columns)

    def has_whole_free_list(self) -> bool:
        """Return whether the list of free pages is as long as the header promises. SQLite does not check that."""
        return not self.is_headed or len(self._list_free()) == int.from_bytes(self.read(1)[36:40])

    def _read_payload(self, page: bytes, at: int, kind: int) -> tuple[int, bytes]:
        """Return the row id and the record of a cell; the record is cut short if a page of it is lost."""
        if kind == INDEX_INNER:
            at += 4
        length, at = _varint(page, at)
        rowid, at = _varint(page, at) if kind == TABLE_LEAF else (0, at)
        if not 0 < length <= _LONGEST:
            raise ValueError(length)
        least = (self.usable - 12) * 32 // 255 - 23
        most = self.usable - 35 if kind == TABLE_LEAF else (self.usable - 12) * 64 // 255 - 23
        here = length
        if length > most:
            here = least + (length - least) % (self.usable - 4)
            if here > most:
                here = least
        body = page[at : at + here]
        after = int.from_bytes(page[at + here : at + here + 4]) if here < length else 0
        while len(body) < length and after:
            overflow = self.read(after)
            body += overflow[4 : min(self.usable, 4 + length - len(body))]
            if len(overflow) < self.size:
                break
            after = int.from_bytes(overflow[:4])
        return rowid, body

    def _list_free(self) -> set[int]:
        """Return the pages on the list of free ones, as far as it can be read: they hold rows that were removed."""
        free = set[int]()
        trunk = int.from_bytes(self.read(1)[32:36]) if self.is_headed else 0
        while trunk and trunk not in free:
            page = self.read(trunk)
            free.add(trunk)
            count = int.from_bytes(page[4:8])
            if len(page) < self.size or count > self.usable // 4:
                break
            free |= {int.from_bytes(page[at : at + 4]) for at in range(8, 8 + 4 * count, 4)}
            trunk = int.from_bytes(page[:4])
        return free

    def _read_log(self) -> dict[int, int]:
        """Return where in the log the last stored version of each page begins."""
        if self._log is None:
            return {}
        header = self._read_at(self._log, 0, _LOG_HEADER)
        size, salts = int.from_bytes(header[8:12]), header[16:24]
        if int.from_bytes(header[:4]) not in _LOG_MAGIC or _page_size(size) is None:
            return {}
        if not self.is_sized:
            self.size = self.usable = size
        stored, step, at = dict[int, int](), dict[int, int](), _LOG_HEADER
        while len(frame := self._read_at(self._log, at, _FRAME_HEADER)) == _FRAME_HEADER and frame[8:16] == salts:
            step[int.from_bytes(frame[:4])] = at + _FRAME_HEADER
            if int.from_bytes(frame[4:8]):  # the last page of a step: before it nothing of the step counts
                stored |= step
                step.clear()
            at += _FRAME_HEADER + size
        return stored

    @staticmethod
    def _read_at(file: Any, at: int, length: int) -> bytes:
        try:
            file.seek(at)
            content: bytes = file.read(length)
        except OSError:  # a bad sector
            return b""
        return content


def open_pages(path: str | Path) -> Pages:
    """Return the pages of a database file. Raises OSError."""
    pages = Pages(str(path))
    if pages.is_sized or pages._logged:
        return pages
    pages.close()
    candidates = [Pages(str(path), size) for size in _PAGE_SIZES]
    best = max(candidates, key=lambda candidate: sum(1 for _ in candidate.list_rows(TABLE_LEAF, 5)))
    for candidate in candidates:
        if candidate is not best:
            candidate.close()
    return best


@contextlib.contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _page_size(number: int) -> int | None:
    size = 65536 if number == 1 else number
    if 512 <= size <= 65536 and size & (size - 1) == 0:
        return size
    return None


def _list_cells(page: bytes, kind: int, begin: int) -> Iterator[int]:
    """Yield the offsets of a page's cells; nothing for pages of other kinds."""
    head = begin + (12 if kind == INDEX_INNER else 8)
    if len(page) < head or page[begin] != kind:
        return
    count = min(int.from_bytes(page[begin + 3 : begin + 5]), (len(page) - head) // 2)
    pointers = {int.from_bytes(page[at : at + 2]) for at in range(head, head + 2 * count, 2)}
    yield from sorted(at for at in pointers if head <= at < len(page))


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(9):
        byte = content[at + index]
        if index == 8:
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + index + 1
    raise AssertionError


def _decode(body: bytes, columns: int) -> Row:
    """Return the values of a record. Raises ValueError or IndexError for anything else."""
    end, at = _varint(body, 0)
    kinds = []
    while at < end:
        kind, at = _varint(body, at)
        kinds.append(kind)
    if at != end or len(kinds) != columns:
        raise ValueError(kinds)
    values = []
    for kind in kinds:
        length = (kind - 12) // 2 if kind >= 12 else (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)[kind]
        value = body[at : at + length]
        values.append(LOST if len(value) < length else _convert(kind, value))
        at += length
    return tuple(values)


def _convert(kind: int, value: bytes) -> object:
    if kind >= 12:
        if kind % 2:
            return value.decode()
        return value
    if kind == 7:
        raise ValueError(kind)  # no column of the store holds one
    if kind in (8, 9):
        return kind - 8
    if kind:
        return int.from_bytes(value, signed=True)
    return None
