"""Whether the rows of two files find each other: by the prompt, under the same id."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pytest_agentbench.records import RowId
from pytest_agentbench.research.linting.finding import Finding, Severity, quoted
from pytest_agentbench.research.linting.tables import Table
from pytest_agentbench.sources.research_rows import prompt_key

_NAMED = 8


@dataclass(frozen=True, slots=True)
class Join:
    """Each row of `rows` needs its partner in `partners`, `what` such as `criteria`; one without is as severe as said.

    `both_ways`: a partner that no row has is told too.
    """

    rows: Table[Any]
    partners: Table[Any]
    what: str
    missing: Severity
    both_ways: bool = False


def join_findings(join: Join) -> Iterator[Finding]:
    """Rows whose partner has another id or another prompt, or that have none; then partners that have no row."""
    by_prompt = {prompt_key(row.value.prompt): row for row in reversed(join.partners.rows)}
    by_id = {str(row.value.id): row for row in reversed(join.partners.rows)}
    found: set[str] = set()
    alone: list[Finding] = []
    for row in join.rows.rows:
        same_prompt, same_id = by_prompt.get(prompt_key(row.value.prompt)), by_id.get(str(row.value.id))
        other = same_prompt or same_id
        place = (join.rows.path, row.line)
        if other is not None:
            found.add(prompt_key(other.value.prompt))
        if same_prompt is not None and str(same_prompt.value.id) != str(row.value.id):
            where = f"{same_prompt.value.id!r}, which {join.partners.path}:{same_prompt.line} has for this prompt"
            yield Finding(*place, "error", "id", repr(row.value.id), where)
        elif same_prompt is None and same_id is not None:
            where = f"that of {join.partners.path}:{same_id.line}: {quoted(same_id.value.prompt)}"
            yield Finding(*place, "error", "prompt", quoted(row.value.prompt), where)
        elif other is None:
            expected = f"one in {join.partners.path}"
            alone.append(Finding(*place, join.missing, "prompt", f"no {join.what} for {row.value.id!r}", expected))
    yield from _together(join, alone)
    lonely = [row.value.id for key, row in by_prompt.items() if key not in found]
    if join.both_ways and lonely:
        said = f"no row for {len(lonely)} of {len(by_prompt)} prompts of {join.partners.path} ({_names(lonely)})"
        yield Finding(join.rows.path, 1, "warning", "prompt", said, "one for each")


def _together(join: Join, alone: list[Finding]) -> Iterator[Finding]:
    """Rows without a partner: each, unless that is no error."""
    if join.missing == "error":
        yield from alone
    elif alone:
        lines = {each.line for each in alone}
        ids = [row.value.id for row in join.rows.rows if row.line in lines]
        said = f"no {join.what} for {len(ids)} of {len(join.rows.rows)} rows ({_names(ids)})"
        yield Finding(join.rows.path, alone[0].line, join.missing, "prompt", said, f"one in {join.partners.path}")


def _names(ids: list[RowId]) -> str:
    shown = sorted(map(str, ids), key=lambda each: (len(each), each))
    return ", ".join(shown[:_NAMED]) + (", ..." if len(shown) > _NAMED else "")
