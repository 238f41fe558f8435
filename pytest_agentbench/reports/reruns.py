"""Runs that another plugin had made again, such as pytest-rerunfailures: which attempt counts, and what readers learn.

A session imports this only if it has such runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_MOST_NAMED = 3
"""How many of the runs the warning names."""


def merge_attempts(before: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of an item that was run again, with facts about the attempts that do not count.

    The first attempt with a verdict counts: repeating failed runs until they pass would falsify the pass rate.
    """
    counts, other = (before, row) if before["outcome"] in ("passed", "failed") else (row, before)
    attempt = {name: other[name] for name in ("repetition", "outcome", "message", "artifact")}
    return {**counts, "reruns": [*before.get("reruns", ()), attempt]}


def describe_reruns(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a warning that names the runs that were made again, if there are any."""
    repeated = [row for row in rows if "reruns" in row]
    if not repeated:
        return
    attempts = [
        f"{row['nodeid'].rpartition('::')[2]} {row['outcome']}, and "
        + ", ".join(attempt["outcome"] for attempt in row["reruns"])
        for row in repeated[:_MOST_NAMED]
    ]
    more = f"; and {len(repeated) - _MOST_NAMED} more" if len(repeated) > _MOST_NAMED else ""
    yield (
        f"made again by another plugin: {'; '.join(attempts)}{more}. Figures count an item's first verdict, which is "
        "named first; the exit status is that of the last attempt"
    )
