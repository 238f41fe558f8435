"""The difference between columns that a session's cases can show, known before anything is paid."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from pytest_agentbench.engine.job import Job, Plan
from pytest_agentbench.reports.comparison.columns import Column, pair_columns
from pytest_agentbench.statistics.paired import ALPHA, smallest_rate_difference
from pytest_agentbench.terminal_text import count_text

_MOST_NAMED = 3


def describe_power(jobs: Iterable[Job]) -> str | None:
    """Return a sentence on the pairs of columns and the smallest difference of pass rates that they can show.

    None if no columns are compared. The sentence assumes that no other case changes between two columns: if some do,
    the smallest difference is larger.
    """
    columns = _list_columns(jobs)
    pairs = [*pair_columns(columns)]
    if not pairs:
        return None
    common = min(len(reference.cases & column.cases) for reference, column in pairs)
    names = [f"{column.name} with {reference.name}" for reference, column in pairs]
    if len(names) > _MOST_NAMED:
        names[_MOST_NAMED:] = [count_text(len(names) - _MOST_NAMED, "other pair")]
    head = f"{len(columns)} columns, {count_text(common, 'common case')}"
    tail = f"compared: {', '.join(names)}"
    difference = smallest_rate_difference([0.0] * common, ALPHA / len(pairs))
    if difference is None:
        return f"{head}: too few to show any difference in pass rate; {tail}"
    size = f"{difference * 100:.1f} points"
    return f"{head}: a difference of {size} in pass rate is found 8 times in 10, at best; {tail}"


def _list_columns(jobs: Iterable[Job]) -> list[Column]:
    plans: dict[str, Plan] = {}
    cases: dict[str, set[str]] = defaultdict(set)
    for job in jobs:
        plans.setdefault(job.plan.column, job.plan)
        cases[job.plan.column].add(job.case_id)
    return [
        Column(
            plan.model_id,
            plan.variant_name,
            plan.reference_name,
            plan.model is not None and plan.model.scripted,
            cases[name],
        )
        for name, plan in plans.items()
    ]
