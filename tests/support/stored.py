"""Read and change the documents of an output folder, in the database or as files."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from pathlib import Path, PurePosixPath
from typing import Any

from pytest_agentbench.records.evaluation import Evaluation
from pytest_agentbench.records.run import RunArtifact
from pytest_agentbench.store.database import open_documents
from pytest_agentbench.store.documents import load_evaluation, load_run
from pytest_agentbench.store.layout import lay_out
from pytest_agentbench.store.output_folder import DATABASE, LOCKS


def as_files(output: str | Path) -> Path:
    """Turn a store into one without a database, as on a network file system: all documents become files."""
    documents = open_documents(output)
    lay_out(documents)
    documents.close()
    for suffix in ("", "-wal", "-shm"):
        Path(output, f"{DATABASE}{suffix}").unlink(missing_ok=True)
    return Path(output)


def list_stored(output: str | Path, pattern: str = "*") -> list[str]:
    """Return the paths of all documents and files that match from the right, without locks and the database."""
    output = Path(output)
    files = (path.relative_to(output) for path in output.rglob("*") if path.is_file())
    found = {path.as_posix() for path in files if LOCKS not in path.parts and not path.name.startswith(DATABASE)}
    if (output / DATABASE).exists():
        with contextlib.closing(sqlite3.connect(output / DATABASE)) as database:
            # None where a process was killed as it had just made the file: its tables come in one step
            if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'files'").fetchone():
                found.update(path for (path,) in database.execute("SELECT path FROM files"))
    return sorted(path for path in found if PurePosixPath(path).match(pattern))


def find_stored(output: str | Path, pattern: str) -> list[Stored]:
    """Return the documents of `list_stored`."""
    return [Stored(Path(output), path) for path in list_stored(output, pattern)]


class Stored:
    """A document with the interface of a path: in the database if there is one, else a file."""

    def __init__(self, output: str | Path, path: str | Path) -> None:
        self.output, self.path = Path(output), Path(path).as_posix()

    def __str__(self) -> str:
        return f"{self.output}/{self.path}"

    def __fspath__(self) -> str:
        return str(self)

    def __repr__(self) -> str:
        return f"Stored({self.path!r})"

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def name(self) -> str:
        """Return the last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def folder(self) -> str:
        """Return the path up to the name."""
        return self.path.rpartition("/")[0]

    @property
    def file(self) -> Path:
        """Return the path of the document as a file."""
        return self.output / self.path

    def with_name(self, name: str) -> Stored:
        """Return the document of another name in the same folder."""
        return Stored(self.output, f"{self.folder}/{name}")

    def beside(self) -> list[str]:
        """Return the names of all documents in its folder."""
        return open_documents(self.output).names(self.folder)

    def exists(self) -> bool:
        """Return whether the document exists."""
        return self.name in self.beside()

    def read_bytes(self) -> bytes:
        """Return its content as bytes."""
        content = open_documents(self.output).read(self.path)
        if content is None:
            raise FileNotFoundError(str(self))
        return content

    def read_text(self) -> str:
        """Return its content as text."""
        return self.read_bytes().decode()

    def json(self) -> Any:
        """Return its content as JSON."""
        return json.loads(self.read_bytes())

    def run(self) -> RunArtifact:
        """Return its content as a run."""
        return load_run(self.output, self.path)

    def evaluation(self) -> Evaluation:
        """Return its content as an evaluation."""
        return load_evaluation(self.output, self.path)

    def write_bytes(self, content: bytes) -> None:
        """Store these bytes."""
        if open_documents(self.output).exist:
            open_documents(self.output).put(self.path, content)
        else:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_bytes(content)

    def write_text(self, content: str) -> None:
        """Store this text."""
        self.write_bytes(content.encode())

    def update(self, **fields: Any) -> None:
        """Change fields of a JSON document."""
        self.write_text(json.dumps(self.json() | fields, separators=(",", ":"), ensure_ascii=False))

    def unlink(self) -> None:
        """Remove the document."""
        if not self.exists():
            raise FileNotFoundError(str(self))
        open_documents(self.output).remove(self.path)

    def rename(self, other: Stored) -> Stored:
        """Move it to another path, and return the document there."""
        content = self.read_bytes()
        self.unlink()
        other.write_bytes(content)
        return other

    def age(self, at: float) -> None:
        """Set the time of its writing, in seconds since 1970."""
        documents = open_documents(self.output)
        if documents.exist and self.path.count("/") > 1:
            folder, leaf, name = self.path.rsplit("/", 2)
            with contextlib.closing(sqlite3.connect(self.output / DATABASE)) as database, database:
                database.execute(
                    "UPDATE documents SET modified = ? WHERE leaf = ? AND name = ? "
                    "AND folder = (SELECT id FROM folders WHERE path = ?)",
                    (int(at * 1e9), leaf, name, folder),
                )
        if self.file.exists():
            os.utime(self.file, (at, at))
