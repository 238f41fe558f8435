"""The policy file: cases whose failure always counts, and cases whose failures do not count.

`agentbench history --write FILE` writes it, and `--agentbench-policy FILE` applies it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Self

from pydantic import model_validator

from pytest_agentbench.config.base import ConfigFile, Problems, load
from pytest_agentbench.config.documents import Loc
from pytest_agentbench.records.base import Record, Text

Status = Literal["blocking", "quarantined"]


class PolicyEntry(Record):
    """A case on a model."""

    case: Text
    """Its node id without model and repetition, as `cases[].case` of report.json."""
    model: Text
    """The model that answers, or the agent, with its variant: `MODEL:VARIANT`."""
    suite: Text | None = None
    """The suite in which it applies; null: in every session. An entry with a suite takes precedence."""
    reason: str | None = None
    """For people."""

    @property
    def key(self) -> tuple[str, str, str | None]:
        """Return the case, its model and the suite."""
        return self.case, self.model, self.suite


class PolicyFile(ConfigFile):
    """Cases by their status in a gate."""

    blocking: tuple[PolicyEntry, ...] = ()
    """A failure of one of them fails a gated session at any pass rate."""
    quarantined: tuple[PolicyEntry, ...] = ()
    """Their failures are shown, and fail no session."""

    @model_validator(mode="after")
    def _require_single_entries(self) -> Self:
        problems = [*self._find_repeated()]
        if problems:
            raise Problems(problems)
        return self

    def _find_repeated(self) -> Iterator[tuple[Loc, str]]:
        seen: dict[tuple[str, str, str | None], str] = {}
        for status, entries in (("blocking", self.blocking), ("quarantined", self.quarantined)):
            for at, entry in enumerate(entries):
                if (before := seen.get(entry.key)) is not None:
                    yield (status, at), f"found {entry.case!r} on {entry.model!r}, which is in {before} too; remove one"
                seen[entry.key] = f"{status}[{at}]"


def read_policy(path: Path) -> PolicyFile:
    """Return the policy of a file. Raises ConfigError with all its problems."""
    return load(path, PolicyFile)
