"""The history of an output folder: `history.ndjson` has a line for each session that made runs.

A line is an object: `history` (1, the version), `started_at` (ISO 8601, UTC), `suite` (its id or null), and `verdicts`,
one for each run that the session made: `case` (node id without model and repetition), `case_id`, `model` (with its
variant), `repetition`, `outcome`, the first 16 digits of the run's `fingerprint`, and `measure`, the hash of the
checks, metrics and judges that decided it. Members that are null or false are left out.

Not recorded are runs from the store and from cassettes, and answers of a file of predictions: each session would count
the same run once more.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from pytest_agentbench.bounded.files import plain_size
from pytest_agentbench.reports.gate import case_key
from pytest_agentbench.reports.kept_rows import encode_json
from pytest_agentbench.reports.rows import Row
from pytest_agentbench.reports.table import column_of

HISTORY = "history.ndjson"
"""Name of the file in an output folder."""
VERSION = 1
"""Version of the lines."""
DIGITS = 16
"""Digits of fingerprints in a history."""
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


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
    head = encode_json({"history": VERSION, "started_at": started_at.isoformat(), "suite": suite}).encode()
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
