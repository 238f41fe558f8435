"""Salvage a damaged store.sqlite into a new one."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pytest_agentbench.bounded.folders import lies_below
from pytest_agentbench.errors import ConfigError, InfrastructureError
from pytest_agentbench.store.connection import connect, execute, query
from pytest_agentbench.store.database import find_place, is_name, open_documents
from pytest_agentbench.store.output_folder import DATABASE, SUITE, DamagedError
from pytest_agentbench.store.salvage import INDEX_INNER, INDEX_LEAF, LOST, TABLE_LEAF, Pages, Row, open_pages

DAMAGED = f"{DATABASE}.damaged"
"""Beginning of the names of replaced, damaged databases."""

_KEEP_NEWER = (
    "INSERT INTO documents (folder, leaf, name, modified, content) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT DO UPDATE SET modified = excluded.modified, content = excluded.content "
    "WHERE excluded.modified > modified"
)


@dataclass
class Repair:
    """Result of a repair: the number of saved documents, the paths of the lost ones, and the damaged database.

    `missing` are pages that the file lacks at its end: nothing may name the documents there.
    """

    saved: int = 0
    missing: int = 0
    lost: list[str] = field(default_factory=list)
    damaged: Path | None = None


def repair(output: Path) -> Repair | None:
    """Replace the database of an output folder by one with the documents that can be read; None if it is not damaged.

    No session may run there. The damaged database is kept under another name. Raises ConfigError for a file that is no
    store, InfrastructureError if the new one cannot be written.
    """
    path = output / DATABASE
    if not os.path.lexists(path):
        raise ConfigError(f"{path}: found no such file, expected the database of an output folder")
    new = f"{path}.{secrets.token_hex(4)}"
    try:
        is_damaged = _is_damaged(output)
        with contextlib.closing(open_pages(path)) as pages:
            if not is_damaged and pages.has_whole_free_list():
                return None
            result = _fill(new, pages, output)
        result.damaged = _replace(path, new)
    except OSError as error:
        raise InfrastructureError(f"{path}: cannot be repaired: {error.strerror or error}") from error
    finally:
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{new}{suffix}")
    return result


def _is_damaged(output: Path) -> bool:
    """Return whether SQLite finds a fault. Raises ConfigError for a database that is no store."""
    try:
        return open_documents(output).find_damage() is not None
    except ConfigError as error:
        if not isinstance(error.__cause__, DamagedError):
            raise
        return True
    finally:
        open_documents(output).close()


def _fill(new: str, pages: Pages, output: Path) -> Repair:
    """Make a database of the documents on some pages. Raises OSError, and ConfigError if there are none."""
    folders = _list_folders(pages)
    lost = set[str]()
    with contextlib.closing(connect(new, write=True)) as database:
        execute(database, "BEGIN IMMEDIATE")
        for folder, path in folders.items():
            execute(database, "INSERT INTO folders VALUES (?, ?, ?)", (folder, path, find_place(path)))
        for _, row in pages.list_rows(TABLE_LEAF, 5):
            if not _is_document(row):
                continue
            folder, leaf, name, _, content = row
            if folder in folders and content is not LOST and _is_readable(name, content):
                execute(database, _KEEP_NEWER, row)
            else:
                lost.add(f"{folders.get(folder, '...')}/{leaf}/{name}")
        execute(database, "COMMIT")
        for row in _list_keys(pages):
            lost.add(f"{folders.get(row[0], '...')}/{row[1]}/{row[2]}")
        lost -= _list_paths(database)
        [(saved,)] = query(database, "SELECT count(*) FROM documents")
    if not (saved or lost):
        raise ConfigError(f"{output / DATABASE}: found no document on any page: move it away, and run again")
    # A document that is also a file is read from the file
    return Repair(saved, pages.missing, sorted(path for path in lost if not _is_file(output, path)))


def _list_folders(pages: Pages) -> dict[int, str]:
    """Return the paths of folders by their ids: of their rows, or of the indexes that name them as well."""
    indexed = {
        row[0]: row[1]
        for row in _list_index(pages, 2)
        # The other index of the same form holds paths without the suite
        if isinstance(row[0], str) and isinstance(row[1], int) and ("/" not in row[0] or f"/{SUITE}" in row[0])
    }
    folders = {number: path for path, number in indexed.items()}
    for rowid, (number, path, place) in pages.list_rows(TABLE_LEAF, 3):
        if number is None and isinstance(path, str) and place == find_place(path):
            folders[rowid] = path
    unique: dict[str, int] = {path: number for number, path in sorted(folders.items())}
    return {number: path for path, number in unique.items() if all(map(is_name, path.split("/")))}


def _list_keys(pages: Pages) -> Iterator[Row]:
    """Yield folder, leaf and name of the documents that the index names."""
    for row in _list_index(pages, 4):
        if _is_document((*row[:3], 0, None)):
            yield row


def _list_index(pages: Pages, columns: int) -> Iterator[Row]:
    for kind in (INDEX_LEAF, INDEX_INNER):
        yield from (row for _, row in pages.list_rows(kind, columns))


def _is_document(row: Row) -> bool:
    folder, leaf, name, modified, content = row
    if not (isinstance(folder, int) and isinstance(modified, int) and isinstance(leaf, str) and isinstance(name, str)):
        return False
    return is_name(leaf) and is_name(name) and (content is None or content is LOST or isinstance(content, str | bytes))


def _is_readable(name: str, content: str | bytes | None) -> bool:
    """Return whether a document has the content that its name promises. Pages may belong to other documents."""
    if content is None or not name.endswith(".json"):
        return True
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True


def _list_paths(database: sqlite3.Connection) -> set[str]:
    statement = "SELECT f.path || '/' || d.leaf || '/' || d.name FROM documents d JOIN folders f ON f.id = d.folder"
    return {path for (path,) in query(database, statement)}


def _is_file(output: Path, path: str) -> bool:
    return lies_below(str(output), path) and (output / path).is_file()


def _replace(path: Path, new: str) -> Path:
    """Put the new database in the place of the old one, and return the path of the old one, which keeps its log."""
    damaged = path.with_name(DAMAGED)
    number = 1
    while os.path.lexists(damaged):
        number += 1
        damaged = path.with_name(f"{DAMAGED}.{number}")
    try:
        os.link(path, damaged)  # a database is there at any time
    except OSError:
        os.replace(path, damaged)
    # Its log must not be taken for the new one's
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.replace(f"{path}{suffix}", f"{damaged}{suffix}")
    os.replace(new, path)
    return damaged
