"""The columns of a report: the runs of one model, and of one variant, that become one file of another tool."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from pytest_agentbench.bounded.folders import slug
from pytest_agentbench.reports.gate import CaseKey, case_key, has_verdict
from pytest_agentbench.reports.reading import read_report
from pytest_agentbench.reports.rows import Row
from pytest_agentbench.reports.stored_runs import StoredRun, find_output, load_stored_run

_NO_SUITE = "default"
"""Name of a session's suite if it was run without one, as in the output folder."""

_LONGEST_ID = 500
"""Characters of a sample's id."""


@dataclass(frozen=True)
class Sample:
    """One run of a column. `sample_id` names its case, and `epoch` is its repetition."""

    sample_id: str
    epoch: int
    row: Row
    stored: StoredRun


@dataclass(frozen=True)
class ExportedFile:
    """A file of a column, with the number of runs in it."""

    path: Path
    runs: int


@dataclass(frozen=True)
class Column:
    """The runs of one model, and of one variant if there are several. `output` is the folder with the stored runs."""

    suite: str
    model: str
    variant: str | None
    rows: Sequence[Row]
    session: Mapping[str, Any]
    output: Path

    @property
    def task(self) -> str:
        """Return the suite, with the variant after a colon."""
        if self.variant is None:
            return self.suite
        return f"{self.suite}:{self.variant}"

    @property
    def title(self) -> str:
        """Return the model, with the variant after a colon."""
        if self.variant is None:
            return self.model
        return f"{self.model}:{self.variant}"

    @property
    def started(self) -> datetime:
        """Return the session's start in UTC; the epoch of Unix if it is unknown."""
        try:
            return datetime.fromisoformat(self.session["started_at"]).astimezone(UTC)
        except (KeyError, TypeError, ValueError, OverflowError):
            return datetime.fromtimestamp(0, UTC)

    @property
    def completed(self) -> datetime:
        """Return the session's end in UTC; its start if the duration is unknown."""
        try:
            return self.started + timedelta(seconds=self.session["duration_seconds"] or 0.0)
        except OverflowError:
            return self.started

    @property
    def digest(self) -> bytes:
        """Return 32 bytes that identify the column: a second export of it replaces the files of the first."""
        parts = (self.suite, self.model, self.variant, self.started.isoformat())
        return hashlib.sha256(repr(parts).encode()).digest()

    @property
    def ran(self) -> list[Row]:
        """Return the rows of runs that were not skipped."""
        return [row for row in self.rows if row["outcome"] != "skipped"]

    @property
    def counts(self) -> list[tuple[int, int]]:
        """Return for each case with a verdict how many of its runs passed, and how many have a verdict."""
        passed: Counter[CaseKey] = Counter()
        judged: Counter[CaseKey] = Counter()
        for row in filter(has_verdict, self.rows):
            judged[case_key(row)] += 1
            passed[case_key(row)] += row["outcome"] == "passed"
        return [(passed[key], count) for key, count in judged.items()]

    @cached_property
    def sample_ids(self) -> dict[CaseKey, str]:
        """Return a unique id for each case: the case's own, or its place if two files have cases of that id."""
        keys = dict.fromkeys(map(case_key, self.rows))
        shared = Counter(case_id for _, case_id in keys)
        return {key: _make_safe(key[1] if shared[key[1]] == 1 else key[0]) for key in keys}

    def load_samples(self) -> Iterator[Sample]:
        """Yield the runs that were not skipped. Only one stored run is in memory at a time."""
        seen: set[tuple[str, int]] = set()
        for row in self.ran:
            sample_id, epoch = self.sample_ids[case_key(row)], row["repetition"]
            # Reports of several sessions that were joined by hand may repeat a repetition.
            while (sample_id, epoch) in seen:
                epoch += 1
            seen.add((sample_id, epoch))
            yield Sample(sample_id, epoch, row, load_stored_run(row, self.output))


def read_columns(report: Path, output: Path | None) -> list[Column]:
    """Return the columns of a report in the order of their first runs. Raises ConfigError if it cannot be read."""
    document = read_report(report)
    session = document["session"]
    grouped: dict[tuple[str, str | None], list[Row]] = defaultdict(list)
    for row in document["runs"]:
        grouped[row["model_id"], row.get("variant")].append(row)
    return [
        Column(
            suite=session["profiles"].get("suite") or _NO_SUITE,
            model=model,
            variant=variant,
            rows=rows,
            session=session,
            output=output or find_output(report),
        )
        for (model, variant), rows in grouped.items()
    ]


def _make_safe(sample_id: str) -> str:
    """Return an id that may be a part of an archive member's name: one that could lead elsewhere is replaced."""
    parts = sample_id.replace("\\", "/").split("/")
    is_path = not any(part in ("", ".", "..") for part in parts)
    if is_path and sample_id.isprintable() and len(sample_id) <= _LONGEST_ID:
        return sample_id
    return slug(sample_id)
