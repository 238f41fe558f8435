"""Jobs: a session's submitted batches, on disk before, during and after their processing."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from pytest_agentbench.bounded.files import read_file
from pytest_agentbench.errors import InfrastructureError

FOLDER = Path(".agentbench", "batches")
"""Folder of the jobs, below the output folder."""
Kind = Literal["openai", "anthropic", "gemini"]
"""The service of a batch."""
_KEY = 24
"""Hex digits of a request's key in the ids of its lines."""


@dataclass
class Job:
    """A batch, recorded before it is submitted. `ids` are those of the lines without a stored run.

    `state` is "new" or "uploaded" before there is a batch, then the service's state. `file` is the service's name of
    the uploaded lines, `batch` the name of the batch, each None before it is known. `created` is in Unix seconds.
    """

    kind: Kind
    model: str
    endpoint: str
    key_variable: str | None
    ids: list[str]
    job: str = field(default_factory=lambda: secrets.token_hex(8))
    state: str = "new"
    file: str | None = None
    batch: str | None = None
    created: float = field(default_factory=time.time)

    def save(self, output: Path) -> None:
        """Write the job so that it outlives the process and the machine. Raises InfrastructureError."""
        folder = output / FOLDER
        path = folder / f"{self.job}.json"
        temporary = path.with_suffix(f".{secrets.token_hex(4)}")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with temporary.open("x", encoding="utf-8") as file:
                json.dump({"schema_version": 1, **asdict(self)}, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            # The name in the folder too, because a paid batch is found by its file.
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise InfrastructureError(f"{path}: the batch could not be recorded: {error.strerror or error}") from error

    def remove(self, output: Path) -> None:
        """Remove the file of the job."""
        (output / FOLDER / f"{self.job}.json").unlink(missing_ok=True)


def key_of(line: str) -> str:
    """Return the key of the request in a line's id: 24 hex digits before the attempt."""
    return line[:_KEY]


def make_id(key: str, attempt: int) -> str:
    """Return the id of a request's line, by the request's key (hex)."""
    return f"{key[:_KEY]}-{attempt}"


def read_jobs(output: Path) -> Iterator[Job]:
    """Yield the jobs of an output folder, newest first. Raises InfrastructureError for an invalid file."""
    jobs = []
    for path in (output / FOLDER).glob("*.json"):
        try:
            data = json.loads(read_file(path))
            if data.pop("schema_version") != 1:
                raise ValueError("another schema_version")
            jobs.append(Job(**data))
        except FileNotFoundError:  # its session has just ended
            continue
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise InfrastructureError(
                f"{path}: found no job of a batch ({error}); its batch may be paid for: correct the file, or remove it"
            ) from error
    yield from sorted(jobs, key=lambda job: job.created, reverse=True)
