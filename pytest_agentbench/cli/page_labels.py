"""Labels that readers give on the page of `agentbench watch`: checked, and appended to `human.jsonl`."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from pytest_agentbench.cli.labels import append_label, label_row, require_plain
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.base import Record, Text

MOST_BYTES = 100_000
"""Bytes of a request with a label."""


class _SentLabel(Record):
    """A label as the page sends it. Everything else of a label is known here, and believed of nobody."""

    nodeid: Text
    run_id: Text
    verdict: Literal["passed", "failed"]
    comment: Annotated[str, Field(max_length=10_000)] | None = None


@dataclass(frozen=True, slots=True)
class LabelledRun:
    """A run as the server knows it: its row in report.json, and its id."""

    row: Mapping[str, Any]
    run_id: str | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """Status and text of an answer."""

    status: int
    text: str


class PageLabels:
    """The file of labels, open to those who know the token. Safe to use from any thread.

    The token stands in the address that the command prints. So an agent that runs on this machine can read the page,
    as anything here can, and rate no run.
    """

    def __init__(self, path: Path, annotator: str) -> None:
        self._path, self._annotator = path, annotator
        self._lock = threading.Lock()
        self.token = secrets.token_urlsafe(16)

    def admits(self, token: str) -> bool:
        """Return whether it is the token."""
        return secrets.compare_digest(token.encode(), self.token.encode())

    def store(self, sent: bytes, find_run: Callable[[str], LabelledRun | None]) -> Outcome:
        """Append the label of a request to the file. `find_run` returns the run of a node id, None if unknown."""
        try:
            label = _SentLabel.model_validate_json(sent)
        except ValidationError as error:
            return Outcome(400, f"Not stored: this is no label: {error.errors()[0]['msg']}.")
        run = find_run(label.nodeid)
        if run is None or run.run_id != label.run_id:
            return Outcome(409, "Not stored: this run has been replaced. Load the page again.")
        stored = label_row(
            run.row, label.verdict, self._annotator, run_id=run.run_id, comment=label.comment or None, blind=False
        )
        try:
            with self._lock:
                require_plain(self._path)
                append_label(self._path, stored)
        except ConfigError as error:
            return Outcome(500, f"Not stored: {error}")
        return Outcome(200, f"Stored in {self._path.name}.")
