"""The records of `--agentbench-json-lines`: what a program reads while a session runs, one JSON object a line.

The file has a `start` record before the first run, a `run` record for each run that pytest reports, a `progress` record
once a second at most, and an `end` record. `json_lines.schema.json` next to this file describes them. Each record is on
its way to the reader before the session goes on. No record has a text that an agent wrote: programs that act on records
may be agents themselves.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_agentbench.reports.kept_rows import encode_json
from pytest_agentbench.reports.table import variant_of
from pytest_agentbench.terminal_text import sendable

if TYPE_CHECKING:
    from pytest_agentbench.options import Settings

_PROGRESS_SECONDS = 1.0
_SETTINGS = (
    *("suite", "run_profile", "evaluation_profile", "concurrency", "repetitions"),
    *("max_cost", "max_tokens", "max_seconds", "fail_under"),
)
_OUTCOMES = {0: "passed", 1: "failed", 2: "interrupted", 5: "empty"}
_COPIED = (
    *("nodeid", "case_id", "model_id", "repetition", "outcome", "status", "final_score", "cost_usd"),
    *("duration_seconds", "reused", "artifact"),
)
"""Members that a record has from the run's row."""


class JsonLines:
    """Writer of the records of one session. Its file is replaced at the start. Use from one thread at a time.

    If a record cannot be written, `warn` is called once and writing stops: the session goes on.
    """

    def __init__(self, path: Path, warn: Callable[[str], None]) -> None:
        """Open the file. Raises pytest.UsageError if that is impossible."""
        self.path, self._warn = path, warn
        self._done: set[str] = set()
        self._runs = 0
        self._began = self._told = 0.0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        except OSError as error:
            reason = f"{path}: cannot be written: {error.strerror or error}"
            raise pytest.UsageError(f"--agentbench-json-lines: {reason}") from None

    def start(
        self,
        session: str | None,
        started_at: str,
        models: Sequence[str],
        runs: int,
        settings: Settings,
        facts: Mapping[str, Any],
    ) -> None:
        """Write the `start` record. `session` is the id of the session, None without a journal.

        `facts` are `socket`, the path of the session's socket, and `variants`, their names.
        """
        self._runs = runs
        self._began = self._told = time.monotonic()
        self._write(
            "start",
            schema_version=1,
            session=session,
            process_id=os.getpid(),
            started_at=started_at,
            output=sendable(str(settings.output)),
            models=[sendable(model) for model in models],
            runs=runs,
            variants=facts["variants"],
            socket=None if facts["socket"] is None else sendable(facts["socket"]),
            settings={name: getattr(settings, name) for name in _SETTINGS},
        )

    def run(self, row: Mapping[str, Any]) -> None:
        """Write the record of a run from its row in report.json."""
        self._done.add(row["nodeid"])
        self._write(
            "run",
            done=len(self._done),
            total=max(self._runs, len(self._done)),
            **{name: row[name] for name in _COPIED},
            **variant_of(row),
        )

    def progress(self, done: int, in_flight: int | None, spent_usd: float | None) -> None:
        """Write a `progress` record, unless the last one is younger than a second.

        `done` counts runs that have ended, whether reported or not. None stands for what is not known here.
        """
        now = time.monotonic()
        if now - self._told < _PROGRESS_SECONDS:
            return
        self._told = now
        left = None
        if done:
            left = round((now - self._began) / done * max(0, self._runs - done), 1)
        self._write(
            "progress", done=done, total=self._runs, in_flight=in_flight, spent_usd=spent_usd, seconds_left=left
        )

    def end(self, exit_status: int, report: Mapping[str, Any] | None, written: Mapping[str, Path]) -> None:
        """Write the `end` record and close the file. `report` is None for a session that has nothing to report."""
        session = {} if report is None else report["session"]
        self._write(
            "end",
            outcome="interrupted" if exit_status > 128 else _OUTCOMES.get(exit_status, "error"),
            exit_status=exit_status,
            totals=None if report is None else report["totals"],
            gate=session.get("gate"),
            faults=session.get("faults", []),
            warnings=session.get("warnings", []),
            written={name: sendable(str(path)) for name, path in written.items()},
        )
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _write(self, event: str, **fields: Any) -> None:
        line = encode_json({"event": event, **fields}).encode() + b"\n"
        try:
            while line and self._descriptor is not None:
                line = line[os.write(self._descriptor, line) :]
        except OSError as error:
            self.close()
            self._warn(f"{self.path}: the records of --agentbench-json-lines end here: {error.strerror or error}")


def json_lines_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of one record."""
    text = Path(__file__).with_name("json_lines.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema
