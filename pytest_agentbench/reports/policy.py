"""The policy of a session: which of its cases are blocking or quarantined, and which entries match no case."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.config.policy_file import PolicyEntry, PolicyFile, Status, read_policy
from pytest_agentbench.reports.gate import case_key
from pytest_agentbench.reports.table import column_of
from pytest_agentbench.terminal_text import count_text

if TYPE_CHECKING:
    import pytest

_NAMED = 3
_SELECTING = ("keyword", "markexpr", "deselect", "lf", "stepwise", "maxfail", "agentbench_shard")
"""Options with which a session may leave out cases of a file."""


class SessionPolicy:
    """A policy file for a session of a suite. `name` is the file's for people."""

    def __init__(self, path: Path, suite: str | None) -> None:
        """Read the file. Raises ConfigError with all its problems."""
        self.name = path.name
        self._entries = _select_entries(read_policy(path), suite)
        self._forced: set[str] = set()

    def apply(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the row with its case's status as `policy`, or the row itself if its case has none.

        A case that must pass is never quarantined: its own file decides.
        """
        place, model = case_key(row)[0], column_of(row)
        status = self._entries.get((place, model))
        if status is None:
            return row
        if status == "quarantined" and row["must_pass"]:
            self._forced.add(f"{place} [{model}]")
            return row
        return {**row, "policy": status}

    def list_warnings(self, rows: Iterable[Mapping[str, Any]], config: pytest.Config) -> Iterator[str]:
        """Yield warnings about entries that have no effect on the rows of a session.

        An entry without a row is unknown if its file does not exist, or if the session ran the whole file on its model.
        """
        if self._forced:
            yield f"{self.name}: {_describe(self._forced)} must pass: the policy cannot quarantine it"
        cases, models, files = set(), set(), set()
        for row in rows:
            place = case_key(row)[0]
            cases.add((place, column_of(row)))
            models.add(column_of(row))
            files.add(place.partition("::")[0])
        whole = not _selects_cases(config)
        unknown = []
        for place, model in self._entries.keys() - cases:
            file = place.partition("::")[0]
            if not (config.rootpath / file).exists() or (whole and file in files and model in models):
                unknown.append(f"{place} [{model}]")
        if unknown:
            yield f"{self.name}: found no case {_describe(unknown)}; write the file anew, or remove the entry"


def _selects_cases(config: pytest.Config) -> bool:
    """Return whether the session may leave out cases of the files that it collects."""
    chosen = any(config.getoption(name, None) for name in _SELECTING)
    return chosen or any("::" in argument for argument in config.args)


def _describe(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {count_text(len(ordered) - _NAMED, 'more case')}" if len(ordered) > _NAMED else ""
    return ", ".join(ordered[:_NAMED]) + more


def _select_entries(policy: PolicyFile, suite: str | None) -> dict[tuple[str, str], Status]:
    """Return the status by case and model. Entries of the suite take precedence over entries of every session."""
    entries: dict[tuple[str, str], Status] = {}
    for wanted in dict.fromkeys((None, suite)):
        kinds: tuple[tuple[Status, tuple[PolicyEntry, ...]], ...] = (
            ("blocking", policy.blocking),
            ("quarantined", policy.quarantined),
        )
        for status, listed in kinds:
            entries |= {(entry.case, entry.model): status for entry in listed if entry.suite == wanted}
    return entries
