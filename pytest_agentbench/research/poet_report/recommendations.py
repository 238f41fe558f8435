"""What a model's reports suggest doing, by stated rules. Each rests on numbers and names the tasks; one table has all.

A rule says nothing where too few reports or citations bear on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from pytest_agentbench.records import RACE_DIMENSIONS, Language, Record, RowId
from pytest_agentbench.research.poet_report.figures import FEWEST_FOR_INTERVAL, PerformanceClass, mean
from pytest_agentbench.research.poet_report.rows import PoetRow
from pytest_agentbench.research.poet_report.wording import LABELS

FEWEST_CITATIONS = 10
MOST_UNREADABLE = 0.25
"""Of a model's citations: above that their accuracy says little."""

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
    """What all rules of the table find, in its order."""
    labels = LABELS[language]
    return tuple(
        Recommendation(
            rule=rule,
            text=labels[f"rule_{rule}"].format_map({**finding.numbers, **_names(finding, labels)}),
            numbers=finding.numbers,
            task_ids=finding.tasks,
        )
        for rule, find in RULES.items()
        for finding in find(rows, thresholds)
    )


def _names(finding: Finding, labels: Mapping[str, str]) -> dict[str, str]:
    """Numbers that are names of dimensions, as readers know them."""
    dimension = finding.numbers.get("dimension")
    return {"dimension": labels[str(dimension)]} if dimension is not None else {}


def _incomplete(rows: Sequence[PoetRow], thresholds: Thresholds) -> Iterable[Finding]:
    """Reports without a composite."""
    found = [row.task_id for row in rows if row.overall_poet_score is None]
    if found:
        yield Finding({"n": len(found), "of": len(rows)}, tuple(found))


def _unfit(rows: Sequence[PoetRow], thresholds: Thresholds) -> Iterable[Finding]:
    """Reports whose composite is below acceptable."""
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
    """Reports whose citations were counted and that have none."""
    counted = [row for row in rows if row.citations_known is not None]
    found = tuple(row.task_id for row in counted if not row.citations_known and not row.citations_unknown)
    if found:
        yield Finding({"n": len(found), "of": len(counted)}, found)


def _slower(rows: Sequence[PoetRow], thresholds: Thresholds) -> Iterable[Finding]:
    """Reports that took longer than the expert."""
    yield from _negative([(row.time_saving_hours, row.task_id) for row in rows], "hours")


def _dearer(rows: Sequence[PoetRow], thresholds: Thresholds) -> Iterable[Finding]:
    """Reports that cost more than the expert."""
    yield from _negative([(row.cost_saving_usd, row.task_id) for row in rows], "usd")


def _attended(rows: Sequence[PoetRow], thresholds: Thresholds) -> Iterable[Finding]:
    """Reports with an automation below good."""
    known = [(row.automation_rate, row.task_id) for row in rows if row.automation_rate is not None]
    threshold = thresholds["good"]
    if found := _lowest((rate, task) for rate, task in known if rate < threshold):
        yield Finding({"n": len(found), "of": len(known), "threshold": threshold}, found)


def _weakest_dimension(rows: Sequence[PoetRow], thresholds: Thresholds) -> Iterable[Finding]:
    """RACE's dimension with the lowest mean, where the 95 % interval of its distance to the others' mean is below 0."""
    full = [
        ({name: score for name in RACE_DIMENSIONS if (score := row.race_dimensions.get(name)) is not None}, row.task_id)
        for row in rows
    ]
    full = [(scores, task) for scores, task in full if len(scores) == len(RACE_DIMENSIONS)]
    if len(full) < FEWEST_FOR_INTERVAL:
        return
    lowest = min(RACE_DIMENSIONS, key=lambda name: fsum(scores[name] for scores, _ in full))
    others = [name for name in RACE_DIMENSIONS if name != lowest]
    distances = [(scores[lowest] - fsum(scores[name] for name in others) / len(others), task) for scores, task in full]
    distance = mean(value for value, _ in distances)
    if distance.mean is None or distance.ci95 is None or distance.ci95[1] >= 0:
        return
    own = fsum(scores[lowest] for scores, _ in full) / len(full)
    low, high = distance.ci95
    numbers: Numbers = {
        "dimension": lowest,
        "mean": own,
        "distance": distance.mean,
        "low": low,
        "high": high,
        "n": len(full),
    }
    yield Finding(numbers, _lowest(each for each in distances if each[0] < 0))


def _weak_domains(rows: Sequence[PoetRow], thresholds: Thresholds) -> Iterable[Finding]:
    """Domains of at least five reports whose 95 % interval lies below the mean of at least five other reports."""
    domains: dict[str | None, list[tuple[float, RowId]]] = {}
    for row in rows:
        if row.overall_poet_score is not None:
            domains.setdefault(row.domain, []).append((row.overall_poet_score, row.task_id))
    everywhere = fsum(score for scores in domains.values() for score, _ in scores)
    n = sum(map(len, domains.values()))
    for domain, scores in domains.items():
        own, n_rest = mean(score for score, _ in scores), n - len(scores)
        if domain is None or own.mean is None or own.ci95 is None or n_rest < FEWEST_FOR_INTERVAL:
            continue
        rest = (everywhere - fsum(score for score, _ in scores)) / n_rest
        low, high = own.ci95
        if high < rest:
            figures = {"mean": own.mean, "low": low, "high": high, "n": own.n, "rest": rest, "n_rest": n_rest}
            yield Finding({"domain": domain, **figures}, _lowest(scores))


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
