"""Recommendations of the business report, by stated rules: each rests on numbers and names the tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any

from pytest_agentbench.packs.research.business_report.figures import (
    FEWEST_FOR_INTERVAL,
    PerformanceClass,
    PoetRow,
    format_apart,
    format_hours,
    format_interval,
    format_line,
    format_usd,
    group_by_task,
    read_labels,
)
from pytest_agentbench.packs.research.records import RACE_DIMENSIONS, Language, RowId
from pytest_agentbench.records.base import Record
from pytest_agentbench.statistics.estimates import difference_interval, mean_interval, mean_of

FEWEST_CITATIONS = 10
MOST_UNREADABLE = 0.25
"""Share of a model's citations with unreadable pages, above which their accuracy is unreliable."""

SMALLEST_DISTANCE = 0.02
"""Between means of scores: among many reports a smaller one may be certain, and still matters to nobody."""

Thresholds = Mapping[PerformanceClass, float]
Numbers = Mapping[str, float | int | str]


class Recommendation(Record):
    """Recommendation of a rule, with its `numbers` and its tasks, the worst first. `text` contains the numbers."""

    rule: str
    text: str
    numbers: Numbers
    task_ids: tuple[RowId, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """Numbers for a rule's text, and the tasks."""

    numbers: Numbers
    tasks: tuple[RowId, ...]


Find = Callable[[Sequence[PoetRow], Thresholds], Iterable[Finding]]


def recommendations(rows: Sequence[PoetRow], thresholds: Thresholds, language: Language) -> tuple[Recommendation, ...]:
    """Return the findings of all rules of the table, in its order."""
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
    """Return the numbers that have a special form in texts."""
    forms: Mapping[str, Callable[[Any], str]] = {
        "dimension": labels.__getitem__,
        "domain": format_line,
        "usd": format_usd,
        "hours": format_hours,
    }
    texts = {name: form(numbers[name]) for name, form in forms.items() if name in numbers}
    if "accuracy" in numbers:
        texts["accuracy"], texts["threshold"] = format_apart(numbers["accuracy"], numbers["threshold"], "%")
    if "share" in numbers:
        texts["share"], texts["limit"] = format_apart(numbers["share"], MOST_UNREADABLE, "%")
    if "low" in numbers:
        texts["interval"] = format_interval((numbers["low"], numbers["high"]), labels["to"])
    return texts


def _incomplete(rows: Sequence[PoetRow], thresholds: Thresholds) -> Iterable[Finding]:
    """Find reports without a composite."""
    task_ids = [row.task_id for row in rows if row.overall_poet_score is None]
    if task_ids:
        yield Finding({"n": len(task_ids), "of": len(rows)}, tuple(task_ids))


def _unfit(rows: Sequence[PoetRow], thresholds: Thresholds) -> Iterable[Finding]:
    """Find reports whose composite is below acceptable."""
    scored = [(row.overall_poet_score, row.task_id) for row in rows if row.overall_poet_score is not None]
    threshold = thresholds["acceptable"]
    if task_ids := _lowest_first((score, task) for score, task in scored if score < threshold):
        yield Finding({"n": len(task_ids), "of": len(scored), "threshold": threshold}, task_ids)


def _inaccurate_citations(rows: Sequence[PoetRow], thresholds: Thresholds) -> Iterable[Finding]:
    """Find a citation accuracy below good over at least ten known citations."""
    known = sum(row.citations_known or 0 for row in rows)
    supported = sum(row.citations_supported or 0 for row in rows if row.citations_known is not None)
    threshold = thresholds["good"]
    # A share of few citations is unreliable, and one dead link would be a recommendation.
    if known < FEWEST_CITATIONS or supported / known >= threshold:
        return
    own = ((row.citations_supported or 0, row.citations_known or 0, row.task_id) for row in rows)
    tasks = _lowest_first((s / k, task) for s, k, task in own if k and s / k < threshold)
    numbers: Numbers = {"supported": supported, "known": known, "accuracy": supported / known, "threshold": threshold}
    yield Finding(numbers, tasks)


def _unreadable_citations(rows: Sequence[PoetRow], thresholds: Thresholds) -> Iterable[Finding]:
    """Find over a quarter of at least ten citations with pages that could not be compared."""
    unknown = sum(row.citations_unknown or 0 for row in rows)
    cited = unknown + sum(row.citations_known or 0 for row in rows)
    if cited < FEWEST_CITATIONS or unknown / cited <= MOST_UNREADABLE:
        return
    tasks = _lowest_first((-row.citations_unknown, row.task_id) for row in rows if row.citations_unknown)
    yield Finding({"unknown": unknown, "cited": cited, "share": unknown / cited}, tasks)


def _uncited(rows: Sequence[PoetRow], thresholds: Thresholds) -> Iterable[Finding]:
    """Find reports whose citations were counted and that have none."""
    counted = [row for row in rows if row.citations_known is not None]
    task_ids = tuple(row.task_id for row in counted if not row.citations_known and row.citations_unknown == 0)
    if task_ids:
        yield Finding({"n": len(task_ids), "of": len(counted)}, task_ids)


def _slower(rows: Sequence[PoetRow], thresholds: Thresholds) -> Iterable[Finding]:
    """Find reports that took longer than the expert."""
    yield from _negative([(row.time_saving_hours, row.task_id) for row in rows], "hours")


def _dearer(rows: Sequence[PoetRow], thresholds: Thresholds) -> Iterable[Finding]:
    """Find reports that cost more than the expert."""
    yield from _negative([(row.cost_saving_usd, row.task_id) for row in rows], "usd")


def _attended(rows: Sequence[PoetRow], thresholds: Thresholds) -> Iterable[Finding]:
    """Find reports with an automation below good."""
    rates = [(row.automation_rate, row.task_id) for row in rows if row.automation_rate is not None]
    threshold = thresholds["good"]
    if task_ids := _lowest_first((rate, task) for rate, task in rates if rate < threshold):
        yield Finding({"n": len(task_ids), "of": len(rates), "threshold": threshold}, task_ids)


def _weakest_dimension(rows: Sequence[PoetRow], thresholds: Thresholds) -> Iterable[Finding]:
    """Find RACE's lowest dimension, if the 95 % interval of its distance to the others' mean is below 0.

    The lowest of four is picked, so the interval is one of four simultaneous ones.
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
    distance = mean_of([value for value, _ in distances])
    # Bonferroni over the four: the lowest is picked after looking, and one of four is below the others by chance four
    # times as often.
    ends = mean_interval(group_by_task((row.task, value) for value, row in distances), comparisons=len(RACE_DIMENSIONS))
    if ends is None or ends[1] >= 0 or distance > -SMALLEST_DISTANCE:
        return
    figures = {"mean": mean_of([scores[lowest] for scores, _ in full]), "distance": distance, "low": ends[0]}
    numbers: Numbers = {"dimension": lowest, **figures, "high": ends[1], "n": len(full)}
    yield Finding(numbers, _lowest_first((value, row.task_id) for value, row in distances if value < 0))


def _weak_domains(rows: Sequence[PoetRow], thresholds: Thresholds) -> Iterable[Finding]:
    """Find domains of at least five reports that the 95 % interval of the distance puts below at least five others.

    Of many domains some are low by chance, so the interval is one of as many as domains are compared.
    """
    domains: dict[str, list[tuple[float, PoetRow]]] = {}
    scored = [(row.overall_poet_score, row) for row in rows if row.overall_poet_score is not None]
    for score, row in scored:
        if row.domain is not None:
            domains.setdefault(row.domain, []).append((score, row))
    fewest = FEWEST_FOR_INTERVAL
    n = len(_average_by_task(scored))
    # Both sides have to be large enough: a domain of nearly all reports has nothing to be compared with.
    compared = {name: pairs for name, pairs in domains.items() if fewest <= len(_average_by_task(pairs)) <= n - fewest}
    for domain, pairs in compared.items():
        own = _average_by_task(pairs)
        rest = _average_by_task([(score, row) for score, row in scored if row.domain != domain])
        distance, ends = mean_of(own) - mean_of(rest), difference_interval(own, rest, comparisons=len(compared))
        if ends is None or ends[1] >= 0 or distance > -SMALLEST_DISTANCE:
            continue
        figures = {
            "mean": mean_of(own),
            "n": len(own),
            "rest": mean_of(rest),
            "n_rest": len(rest),
            "distance": distance,
        }
        numbers: Numbers = {"domain": domain, **figures, "low": ends[0], "high": ends[1], "compared": len(compared)}
        yield Finding(numbers, _lowest_first((score, row.task_id) for score, row in pairs))


def _average_by_task(scored: Sequence[tuple[float, PoetRow]]) -> list[float]:
    """Return the mean score of each task."""
    return [mean_of(scores) for scores in group_by_task((row.task, score) for score, row in scored)]


def _unused_knowledge(rows: Sequence[PoetRow], thresholds: Thresholds) -> Iterable[Finding]:
    """Find that at least five reports add knowledge without using any earlier knowledge."""
    # Reuse is None without earlier knowledge: such reports could not have used any.
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
"""Rules by name; their texts are in texts/labels.yaml as `rule_<name>`."""


def _negative(values: Sequence[tuple[float | None, RowId]], name: str) -> Iterable[Finding]:
    known = [(value, task) for value, task in values if value is not None]
    negative = [entry for entry in known if entry[0] < 0]
    if negative:
        loss = -fsum(value for value, _ in negative)
        yield Finding({"n": len(negative), "of": len(known), name: loss}, _lowest_first(negative))


def _lowest_first(values: Iterable[tuple[float, RowId]]) -> tuple[RowId, ...]:
    return tuple(task for _, task in sorted(values, key=lambda entry: entry[0]))
