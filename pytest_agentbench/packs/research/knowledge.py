"""Knowledge base: units that reports have added, by model, kept across sessions; a file that only grows."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import IO

from pydantic import AwareDatetime, ValidationError

from pytest_agentbench.bounded.files import MAX_DOCUMENT, plain_size
from pytest_agentbench.errors import ConfigError, UnwritableError
from pytest_agentbench.packs.research.records import RowId, Share, article_digest
from pytest_agentbench.packs.research.rows import prompt_key
from pytest_agentbench.records.base import Record

KNOWLEDGE_BASE = "research/knowledge_base.jsonl"
"""Its path below the output folder, unless a configuration sets another."""
_LONGEST_WAIT = 10.0
"""Seconds for another process that adds: each takes milliseconds."""
_log = logging.getLogger(__name__)


class Unit(Record):
    """One unit of knowledge; its id is derived from its text."""

    id: str
    text: str
    quality: Share


class Contribution(Record):
    """A line of the file: the units that a model's report on a task added, possibly none.

    `batch` identifies the reports first scored together, None if the earlier ones were known to it.
    """

    model: str
    task_id: RowId
    task: str
    article: str
    added: AwareDatetime
    batch: str | None = None
    units: tuple[Unit, ...] = ()


def make_unit(text: str, quality: float) -> Unit:
    """Return a unit. Equal texts get equal ids, ignoring case and blanks."""
    text = _replace_surrogates(text)
    # By the text without case and blanks: the same sentence drawn twice is one unit.
    return Unit(id=sha256(" ".join(text.split()).casefold().encode()).hexdigest()[:12], text=text, quality=quality)


def make_contribution(
    model: str, task_id: RowId, prompt: str, article: str, units: Sequence[Unit], batch: str | None = None
) -> Contribution:
    """Return a report's contribution at this time."""
    return Contribution(
        model=_replace_surrogates(model),
        task_id=_replace_surrogates(task_id) if isinstance(task_id, str) else task_id,
        task=prompt_key(prompt)[:16],
        article=article_digest(article),
        added=datetime.now(UTC).replace(microsecond=0),
        batch=batch,
        units=tuple(units),
    )


class KnowledgeBase:
    """A file of contributions, to which several processes may append at once. `retention_days` None: all are known.

    Raises ConfigError for invalid lines, and UnwritableError if the file cannot be read or appended to.
    """

    def __init__(self, path: Path, retention_days: int | None = None) -> None:
        self.path = path
        self._retention = None if retention_days is None else timedelta(days=retention_days)
        self._clear()

    def check(self) -> None:
        """Read the file: better now than when units are paid for."""
        with self._locked():
            pass

    def contribute(self, new: Contribution) -> list[Unit]:
        """Append a report's contribution, unless it is there; return the units that are known to the report.

        Each unit is returned once: units of the same model's reports on other tasks that were added before it, or
        before the first of its batch, and within the retention.
        """
        with self._locked():
            own = self._own.get(_report(new), [])
            # A repeated call finds its own line and adds nothing: its known units stay the same.
            if all(self._lines[at].units != new.units for at in own):
                own = [*own, self._append(new)]
        # The place of the report's first line decides: later lines, its own too, were not known to it.
        begin = own[0]
        if (batch := self._lines[begin].batch) is not None:
            begin = self._batches[batch]
        # Of other tasks only: another report on the same task repeats its knowledge and reuses nothing.
        earlier_lines = (line for line in self._lines[:begin] if line.model == new.model and line.task != new.task)
        if self._retention is not None:
            since = self._lines[begin].added - self._retention
            earlier_lines = (line for line in earlier_lines if line.added >= since)
        return list({unit.id: unit for line in earlier_lines for unit in line.units}.values())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes from the file, of which all is read."""
        from filelock import FileLock, Timeout

        if self.path.is_symlink():  # it is appended to, in place
            raise UnwritableError(
                f"{self.path}: cannot be added to: found a link, expected a file; name the file itself"
            )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # A lock file, because the file itself may be replaced; filelock lets the kernel free the locks of
            # killed processes.
            with FileLock(f"{self.path}.lock", timeout=_LONGEST_WAIT):
                self._read_on()
                yield
        except Timeout as error:
            raise UnwritableError(
                f"{self.path}: another process has held its lock for {_LONGEST_WAIT:g} s; end that one"
            ) from error
        except OSError as error:
            raise UnwritableError(f"{self.path}: cannot be added to: {error.strerror or error}") from error

    def _append(self, new: Contribution) -> int:
        line = f"{new.model_dump_json()}\n".encode()
        with self.path.open("ab") as file:
            file.write(line)
        self._size += len(line)
        self._line_number += 1
        return self._remember(new)

    def _remember(self, line: Contribution) -> int:
        at = len(self._lines)
        self._lines.append(line)
        self._own.setdefault(_report(line), []).append(at)
        if line.batch is not None:
            self._batches.setdefault(line.batch, at)
        return at

    def _clear(self) -> None:
        self._lines: list[Contribution] = []
        self._own: dict[tuple[str, str, str], list[int]] = {}
        self._batches: dict[str, int] = {}
        self._size = self._line_number = 0

    def _read_on(self) -> None:
        """Read the lines that other processes have added since; a last line that a killed one left half is removed."""
        if not self.path.exists():
            self._clear()
            return
        with self.path.open("r+b") as file:
            plain_size(file.fileno(), self.path, MAX_DOCUMENT)
            # Shorter than it was: somebody has replaced it, and nothing that was read of it holds.
            if file.seek(0, os.SEEK_END) < self._size:
                self._clear()
            file.seek(self._size)
            text = file.read()
            # Lines are appended in one write, but a full disk or a kill can leave a part of one.
            half = text[text.rfind(b"\n") + 1 :]
            if half:
                text = self._repair_end(file, text, half)
        lines = text.split(b"\n")[:-1]
        numbered = enumerate(lines, self._line_number + 1)
        contributions = [self._parse_line(line, number) for number, line in numbered if line.strip()]
        for contribution in contributions:
            self._remember(contribution)
        self._line_number += len(lines)
        self._size += len(text)

    def _repair_end(self, file: IO[bytes], text: bytes, half: bytes) -> bytes:
        """Return the read bytes, with the end of their last line added, or without that line."""
        if _is_contribution(half):
            file.write(b"\n")
            return text + b"\n"
        _log.warning("%s: its last line was half written and is taken off: %r", self.path, half[:80])
        file.truncate(self._size + len(text) - len(half))
        return text[: -len(half)]

    def _parse_line(self, line: bytes, number: int) -> Contribution:
        try:
            return Contribution.model_validate_json(line)
        except ValidationError as error:
            [problem, *_] = error.errors(include_url=False)
            where = ".".join(map(str, problem["loc"])) or "line"
            raise ConfigError(
                f"{self.path}:{number}:1: {where}: {problem['msg']}; expected the contribution of a "
                "report; remove the line, or name another file"
            ) from error


def _report(line: Contribution) -> tuple[str, str, str]:
    return line.model, line.task, line.article


def _is_contribution(line: bytes) -> bool:
    try:
        Contribution.model_validate_json(line)
    except ValidationError:
        return False
    return True


def _replace_surrogates(text: str) -> str:
    """Return the text with `?` for halves of surrogate pairs, which no file of JSON has."""
    # json.dumps of a lone surrogate makes a line that no other reader of JSON takes.
    return text.encode("utf-8", "replace").decode()
