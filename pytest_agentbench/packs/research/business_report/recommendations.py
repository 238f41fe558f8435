"""Recommendations of the business report, by stated rules: each rests on numbers and names the tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from statistics import fmean
from typing import Any

from pytest_agentbench.packs.research.business_report.figures import (
    FEWEST_FOR_INTERVAL,
    PerformanceClass,
    PoetRow,
    apart,
    by_task,
    hours,
    interval,
    line,
    usd,
)
from pytest_agentbench.packs.research.records import RACE_DIMENSIONS, Language, RowId
from pytest_agentbench.packs.research.wording import read_labels
from pytest_agentbench.records.base import Record
from pytest_agentbench.statistics.estimates import difference_interval, mean_interval

FEWEST_CITATIONS = 10
MOST_UNREADABLE = 0.25
"""Of a model's citations: above that their accuracy says little."""

SMALLEST_DISTANCE = 0.02
"""Between means of scores: among many reports a smaller one may be certain, and still matters to nobody."""

Thresholds = Mapping[PerformanceClass, float]
Numbers = Mapping[str, float | int | str]


class Recommendation(Record):
    """What a rule found: its `numbers`, and the tasks it rests on, the worst first. `text` says it with the numbers."""

    rule: str
    text: str
    numbers: Numbers
    task_ids: tuple[RowId, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """The numbers for a rule's text, and the tasks."""

    numbers: Numbers
    tasks: tuple[RowId, ...]


Find = Callable[[Sequence[PoetRow], Thresholds], Iterable[Finding]]


def recommendations(rows: Sequence[PoetRow], thresholds: Thresholds, language: Language) -> tuple[Recommendation, ...]:
    """Return what all rules of the table find, in its order."""
    labels = read_labels(language)
    return tuple(
        Recommendation(
            rule=rule,
            text=labels[f"rule_{rule}"].format_map({**finding.numbers, **_shown(finding.numbers, labels)}),
            numbers=finding.numbers,
            task_ids=finding.tasks,
        )
        for rule, find in RULES.items()
        for finding in find(rows, thresholds)
    )


def _shown(numbers: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, str]:
    """Return those of the numbers that have a form of their own in texts."""
    forms: Mapping[str, Callable[[Any], str]] = {
        "dimension": labels.__getitem__,
        "domain": line,
        "usd": usd,
        "hours": hours,
    }
    shown = {name: form(numbers[name]) for name, form in forms.items() if name in numbers}
    if "accuracy" in numbers:
        shown["accuracy"], shown["threshold"] = apart(numbers["accuracy"], numbers["threshold"], "%")
    if "share" in numbers:
        shown["share"], shown["limit"] = apart(numbers["share"], MOST_UNREADABLE, "%")
    if "low" in numbers:
        shown["interval"] = interval((numbers["low"], numbers["high"]), labels["to"])
    return shown


def _incomplete(rows: Sequence[PoetRow], thresholds: Thresholds) -> Iterable[Finding]:
    """Report without a composite."""
    found = [row.task_id for row in rows if row.overall_poet_score is None]
    if found:
        yield Finding({"n": len(found), "of": len(rows)}, tuple(found))


def _unfit(rows: Sequence[PoetRow], thresholds: Thresholds) -> Iterable[Finding]:
    """Report whose composite is below acceptable."""
    scored = [(row.overall_poet_score, row.task_id) for row in rows if row.overall_poet_score is not None]
    threshold = thresholds["acceptable"]
    if found := _lowest((score, task) for score, task in scored if score < threshold):
        yield Finding({"n": len(found), "of": len(scored), "threshold": threshold}, found)


def _inaccurate_citations(rows: Sequence[PoetRow], thresholds: Thresholds) -> Iterable[Finding]:
    """Of at least ten known citations, a share below good that hold."""
    known = sum(row.citations_known or 0 for row in rows)
    supported = sum(row.citations_supported or 0 for row in rows if row.citations_known is not None)
    threshold = thresholds["good"]
    if known < FEWEST_CITATIONS or supported / known >= threshold:
        return
    own = ((row.citations_supported or 0, row.citations_known or 0, row.task_id) for row in rows)
    tasks = _lowest((s / k, task) for s, k, task in own if k and s / k < threshold)
    numbers: Numbers = {"supported": supported, "known": known, "accuracy": supported / known, "threshold": threshold}
    yield Finding(numbers, tasks)


def _unreadable_citations(rows: Sequence[PoetRow], thresholds: Thresholds) -> Iterable[Finding]:
    """Of at least ten citations, more than a quarter whose pages could not be compared."""
    unknown = sum(row.citations_unknown or 0 for row in rows)
    cited = unknown + sum(row.citations_known or 0 for row in rows)
    if cited < FEWEST_CITATIONS or unknown / cited <= MOST_UNREADABLE:
        return
    tasks = _lowest((-row.citations_unknown, row.task_id) for row in rows if row.citations_unknown)
    yield Finding({"unknown": unknown, "cited": cited, "share": unknown / cited}, tasks)


def _uncited(rows: Sequence[PoetRow], thresholds: Thresholds) -> Iterable[Finding]:
    """Report whose citations were counted and that have none."""
    counted = [row for row in rows if row.citations_known is not None]
    found = tuple(row.task_id for row in counted if not row.citations_known and row.citations_unknown == 0)
    if found:
        yield Finding({"n": len(found), "of": len(counted)}, found)


def _slower(rows: Sequence[PoetRow], thresholds: Thresholds) -> Iterable[Finding]:
    """Report that took longer than the expert."""
    yield from _negative([(row.time_saving_hours, row.task_id) for row in rows], "hours")


def _dearer(rows: Sequence[PoetRow], thresholds: Thresholds) -> Iterable[Finding]:
    """Report that cost more than the expert."""
    yield from _negative([(row.cost_saving_usd, row.task_id) for row in rows], "usd")


def _attended(rows: Sequence[PoetRow], thresholds: Thresholds) -> Iterable[Finding]:
    """Report with an automation below good."""
    known = [(row.automation_rate, row.task_id) for row in rows if row.automation_rate is not None]
    threshold = thresholds["good"]
    if found := _lowest((rate, task) for rate, task in known if rate < threshold):
        yield Finding({"n": len(found), "of": len(known), "threshold": threshold}, found)


def _weakest_dimension(rows: Sequence[PoetRow], thresholds: Thresholds) -> Iterable[Finding]:
    """RACE's dimension with the lowest mean, where the 95 % interval of its distance to the others' mean is below 0.

    The lowest of four is picked, so the interval is one of four that hold at once.
    """
    full = [
        ({name: score for name in RACE_DIMENSIONS if (score := row.race_dimensions.get(name)) is not None}, row)
        for row in rows
    ]
    full = [(scores, row) for scores, row in full if len(scores) == len(RACE_DIMENSIONS)]
    if len({row.task for _, row in full}) < FEWEST_FOR_INTERVAL:
        return
    lowest = min(RACE_DIMENSIONS, key=lambda name: fsum(scores[name] for scores, _ in full))
    others = [name for name in RACE_DIMENSIONS if name != lowest]
    distances = [(scores[lowest] - fsum(scores[name] for name in others) / len(others), row) for scores, row in full]
    distance = fmean(value for value, _ in distances)
    ends = mean_interval(by_task((row.task, value) for value, row in distances), comparisons=len(RACE_DIMENSIONS))
    if ends is None or ends[1] >= 0 or distance > -SMALLEST_DISTANCE:
        return
    figures = {"mean": fmean(scores[lowest] for scores, _ in full), "distance": distance, "low": ends[0]}
    numbers: Numbers = {"dimension": lowest, **figures, "high": ends[1], "n": len(full)}
    yield Finding(numbers, _lowest((value, row.task_id) for value, row in distances if value < 0))


def _weak_domains(rows: Sequence[PoetRow], thresholds: Thresholds) -> Iterable[Finding]:
    """Domains of at least five reports, where the 95 % interval of the distance to at least five others is below 0.

    Of many domains some are low by chance, so the interval is one of as many as domains are compared.
    """
    domains: dict[str, list[tuple[float, PoetRow]]] = {}
    scored = [(row.overall_poet_score, row) for row in rows if row.overall_poet_score is not None]
    for score, row in scored:
        if row.domain is not None:
            domains.setdefault(row.domain, []).append((score, row))
    fewest = FEWEST_FOR_INTERVAL
    n = len(_of_tasks(scored))
    compared = {name: found for name, found in domains.items() if fewest <= len(_of_tasks(found)) <= n - fewest}
    for domain, found in compared.items():
        own = _of_tasks(found)
        rest = _of_tasks([(score, row) for score, row in scored if row.domain != domain])
        distance, ends = fmean(own) - fmean(rest), difference_interval(own, rest, comparisons=len(compared))
        if ends is None or ends[1] >= 0 or distance > -SMALLEST_DISTANCE:
            continue
        figures = {"mean": fmean(own), "n": len(own), "rest": fmean(rest), "n_rest": len(rest), "distance": distance}
        numbers: Numbers = {"domain": domain, **figures, "low": ends[0], "high": ends[1], "compared": len(compared)}
        yield Finding(numbers, _lowest((score, row.task_id) for score, row in found))


def _of_tasks(scored: Sequence[tuple[float, PoetRow]]) -> list[float]:
    """Return the mean score of each task."""
    return [fmean(scores) for scores in by_task((row.task, score) for score, row in scored)]


def _unused_knowledge(rows: Sequence[PoetRow], thresholds: Thresholds) -> Iterable[Finding]:
    """At least five reports that add knowledge, none of which uses any that was there."""
    adding = [row for row in rows if row.knowledge_units_created and row.knowledge_units_reused is not None]
    if len(adding) >= FEWEST_FOR_INTERVAL and not any(row.knowledge_units_reused for row in adding):
        units = sum(row.knowledge_units_created or 0 for row in adding)
        yield Finding({"units": units, "n": len(adding)}, tuple(row.task_id for row in adding))


RULES: Mapping[str, Find] = {
    "incomplete": _incomplete,
    "unfit": _unfit,
    "inaccurate_citations": _inaccurate_citations,
    "unreadable_citations": _unreadable_citations,
    "uncited": _uncited,
    "slower": _slower,
    "dearer": _dearer,
    "attended": _attended,
    "weakest_dimension": _weakest_dimension,
    "weak_domain": _weak_domains,
    "unused_knowledge": _unused_knowledge,
}
"""By name; the texts stand in wording.py as `rule_<name>`."""


def _negative(values: Sequence[tuple[float | None, RowId]], name: str) -> Iterable[Finding]:
    known = [(value, task) for value, task in values if value is not None]
    found = [each for each in known if each[0] < 0]
    if found:
        lost = -fsum(value for value, _ in found)
        yield Finding({"n": len(found), "of": len(known), name: lost}, _lowest(found))


def _lowest(values: Iterable[tuple[float, RowId]]) -> tuple[RowId, ...]:
    return tuple(task for _, task in sorted(values, key=lambda each: each[0]))
