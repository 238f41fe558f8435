"""Several models side by side: how far each is from the best on the tasks that both have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from pytest_agentbench.records import Record
from pytest_agentbench.research.poet_report.aggregates import PoetReport
from pytest_agentbench.research.poet_report.figures import FEWEST_FOR_INTERVAL, Mean, by_task, mean
from pytest_agentbench.research.poet_report.rows import PoetRow


@dataclass(frozen=True, slots=True)
class Scored:
    """A model's report with the rows that it is made of."""

    report: PoetReport
    rows: Sequence[PoetRow]


class Difference(Record):
    """A model's POET score less the best one's over the tasks that both have; `ci95` that of the paired differences."""

    model: str
    difference: Mean


class Comparison(Record):
    """`best` has the highest mean, over `n` reports: of models with at least five scored ones where there are any."""

    best: str
    n: int
    differences: tuple[Difference, ...]


def comparison(models: Sequence[Scored]) -> Comparison | None:
    """None where fewer than two models have a score."""
    known = [each for each in models if each.report.n_scored]
    if len(known) < 2:
        return None
    best = max(known, key=_rank)
    reference = _by_task(best)
    found = []
    for each in (other for other in models if other is not best):
        own = _by_task(each)
        values = [own[task] - reference[task] for task in own if task in reference]
        found.append(Difference(model=each.report.model, difference=mean(values)))
    return Comparison(best=best.report.model, n=best.report.n_scored, differences=tuple(found))


def _rank(model: Scored) -> tuple[bool, float]:
    overall = model.report.means["overall_poet_score"]
    return overall.n >= FEWEST_FOR_INTERVAL, overall.mean or 0.0


def _by_task(model: Scored) -> dict[str, float]:
    """A model's score on each task, of several reports on one their mean."""
    scored = [(row.task, row.overall_poet_score) for row in model.rows if row.overall_poet_score is not None]
    groups = by_task((task, (task, score)) for task, score in scored)
    return {group[0][0]: fmean(score for _, score in group) for group in groups}
