"""The history of an output folder: `history.ndjson` has a line for each session that made runs.

A line is an object: `history` (1, the version), `started_at` (ISO 8601, UTC), `suite` (its id or null), and `verdicts`,
one for each run that the session made: `case` (node id without model and repetition), `case_id`, `model` (with its
variant), `repetition`, `outcome`, the first 16 digits of the run's `fingerprint`, and `measure`, the hash of the
checks, metrics and judges that decided it. Members that are null or false are left out.

Runs from the store and from cassettes are old draws, and answers of a file of predictions are nobody's runs: none of
them is recorded, because they would count a single pass many times.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytest_agentbench.bounded.files import open_file, plain_size, read_lines
from pytest_agentbench.reports.gate import case_key
from pytest_agentbench.reports.kept_rows import encode_json
from pytest_agentbench.reports.rows import Report, Row
from pytest_agentbench.reports.table import column_of

HISTORY = "history.ndjson"
"""Name of the file in an output folder."""
_VERSION = 1
DIGITS = 16
"""Digits of fingerprints in a history."""
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One run of a case, as the history has it."""

    case: str
    case_id: str
    model: str
    outcome: str
    repetition: int = 1
    fingerprint: str | None = None
    measure: str | None = None
    must_pass: bool = False


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """A session with the runs that it made."""

    started_at: datetime
    suite: str | None
    verdicts: tuple[Verdict, ...]


def encode_verdict(row: Row) -> bytes | None:
    """Return the history's text of a row, or None if the session did not make the run."""
    if row["reused"] or row["cassette"] == "replayed" or row["predictions"] is not None or row["outcome"] == "skipped":
        return None
    case, case_id = case_key(row)
    verdict = {
        "case": case,
        "case_id": case_id,
        "model": column_of(row),
        "repetition": row["repetition"],
        "outcome": row["outcome"],
    }
    if row["fingerprint"] is not None:
        verdict["fingerprint"] = row["fingerprint"][:DIGITS]
    if row["measure"] is not None:
        verdict["measure"] = row["measure"]
    if row["must_pass"]:
        verdict["must_pass"] = True
    return encode_json(verdict).encode()


def append_session(output: Path, started_at: datetime, suite: str | None, verdicts: Iterable[bytes]) -> None:
    """Append a session's line to the history of an output folder. Raises OSError."""
    head = encode_json({"history": _VERSION, "started_at": started_at.isoformat(), "suite": suite}).encode()
    line = b'%b,"verdicts":[%b]}\n' % (head[:-1], b",".join(verdicts))
    output.mkdir(parents=True, exist_ok=True)
    path = output / HISTORY
    descriptor = os.open(path, _FLAGS, 0o666)
    try:
        # Concurrent sessions append without a lock: the kernel puts each write at the end. A line that a full disk cut
        # short must not spoil the next one.
        size = plain_size(descriptor, path, None)
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line
        while line:
            line = line[os.write(descriptor, line) :]
    finally:
        os.close(descriptor)


def read_history(path: Path) -> Iterator[RecordedSession | None]:
    """Yield the sessions of a history file; None for a line that cannot be read. Raises OSError."""
    with open_file(path, None) as file:
        for line in read_lines(file):
            if line.strip():
                yield _parse_session(line)


def _parse_session(line: bytes) -> RecordedSession | None:
    try:
        entry = json.loads(line)
        if entry["history"] != _VERSION:
            return None
        return _make_session(entry["started_at"], entry["suite"], (Verdict(**fields) for fields in entry["verdicts"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def recorded_session(report: Report) -> RecordedSession | None:
    """Return the session of a report with the runs that it made, or None if its time is unknown."""
    session = report["session"]
    texts = [text for row in report["runs"] if (text := encode_verdict(row)) is not None]
    suite = (session.get("profiles") or {}).get("suite")
    try:
        return _make_session(session["started_at"], suite, (Verdict(**json.loads(text)) for text in texts))
    except (ValueError, TypeError):
        return None


def _make_session(started_at: Any, suite: Any, verdicts: Iterable[Verdict]) -> RecordedSession:
    """Return a session. Raises ValueError and TypeError for values of other types: anybody may have written them."""
    begin = datetime.fromisoformat(started_at)
    checked = tuple(verdicts)
    texts = [suite or "", *(text for each in checked for text in (each.case, each.case_id, each.model, each.outcome))]
    hashes = [text for each in checked for text in (each.fingerprint, each.measure) if text is not None]
    if not all(isinstance(text, str) for text in (*texts, *hashes)):
        raise TypeError("found another type, expected texts")
    if not all(isinstance(each.repetition, int) for each in checked):
        raise TypeError("found another type, expected numbers")
    return RecordedSession(begin if begin.tzinfo else begin.replace(tzinfo=UTC), suite, checked)
