"""Sessions with the runs that they made, read from histories and reports."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytest_agentbench.bounded.files import open_file, read_lines
from pytest_agentbench.reports.history_file import VERSION, encode_verdict
from pytest_agentbench.reports.rows import Report


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


def read_history(path: Path) -> Iterator[RecordedSession | None]:
    """Yield the sessions of a history file; None for a line that cannot be read. Raises OSError."""
    with open_file(path, None) as file:
        for line in read_lines(file):
            if line.strip():
                yield _parse_session(line)


def _parse_session(line: bytes) -> RecordedSession | None:
    try:
        entry = json.loads(line)
        if entry["history"] != VERSION:
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
