"""The difference between columns that a session's cases can show, known before anything is paid."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from pytest_agentbench.engine.job import Job, Plan
from pytest_agentbench.statistics.paired import ALPHA, smallest_rate_difference
from pytest_agentbench.terminal_text import count_text


def describe_power(jobs: Iterable[Job]) -> str | None:
    """Return a sentence on the smallest difference of pass rates that the columns' common cases can show.

    None if no columns are compared. The sentence assumes that no other case changes between two columns: if some do,
    the smallest difference is larger.
    """
    plans: dict[str, Plan] = {}
    cases: dict[str, set[str]] = defaultdict(set)
    for job in jobs:
        plans.setdefault(job.plan.column, job.plan)
        cases[job.plan.column].add(job.case_id)
    common = [number for old, new in _pair_columns(plans) if (number := len(cases[old] & cases[new]))]
    if not common:
        return None
    head = f"{len(plans)} columns, {count_text(min(common), 'common case')}"
    difference = smallest_rate_difference([0.0] * min(common), ALPHA / len(common))
    if difference is None:
        return f"{head}: too few to show any difference in pass rate"
    return f"{head}: a difference of {difference * 100:.1f} points in pass rate is found 8 times in 10, at best"


def _pair_columns(plans: Mapping[str, Plan]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of columns that the session's report compares: see `comparing.compare_columns`."""
    if all(plan.variant_name is None for plan in plans.values()):
        models = [column for column, plan in plans.items() if plan.model is None or not plan.model.scripted]
        yield from ((models[0], column) for column in models[1:])
        return
    references: dict[str, str] = {}
    for column, plan in plans.items():
        if plan.is_reference:
            references.setdefault(plan.model_id, column)
    for column, plan in plans.items():
        reference = references.get(plan.model_id) or references.get(plan.model_id.partition("+")[2])
        if reference is not None and reference != column:
            yield reference, column
