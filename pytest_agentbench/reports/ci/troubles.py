"""What did not pass: each case once, however often and on however many models it ran."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_agentbench.reports.cases import CaseKey, case_key


@dataclass(frozen=True, slots=True)
class Trouble:
    """A case on a model: `runs` of its `ran` runs did not pass, all in one way. `row` is the first of them."""

    row: Mapping[str, Any]
    runs: int
    ran: int

    @property
    def often(self) -> str:
        """How often it came to that, empty where the case ran once."""
        return "" if self.ran == 1 else f"{self.runs} of {self.ran} runs"

    @property
    def reason(self) -> str:
        """What the first such run says of it."""
        message: str | None = self.row["message"]
        return message or "no reason is known"


def troubles(report: Mapping[str, Any], outcome: str) -> list[list[Trouble]]:
    """The cases with runs of this outcome (`failed` or `error`), in the report's order: what each model made of one."""
    ran: dict[tuple[CaseKey, str], int] = defaultdict(int)
    found: dict[tuple[CaseKey, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in report["runs"]:
        key = case_key(row), row["model_id"]
        ran[key] += row["outcome"] != "skipped"
        if row["outcome"] == outcome:
            found[key].append(row)
    cases: dict[CaseKey, list[Trouble]] = defaultdict(list)
    for (case, model), rows in found.items():
        cases[case].append(Trouble(rows[0], len(rows), ran[case, model]))
    return list(cases.values())
