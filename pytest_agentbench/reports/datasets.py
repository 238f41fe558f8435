"""Results of datasets, and of the groups that their rows make: by difficulty, source, language, tags."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pytest_agentbench.reports.gate import CaseKey, Counts, case_key, has_verdict
from pytest_agentbench.reports.rows import Row
from pytest_agentbench.reports.table import column_of, variant_of
from pytest_agentbench.statistics.estimates import (
    JUDGED_SCALE,
    Interval,
    mean,
    pair,
    pass_rate_interval,
    score_interval,
)

FINAL_SCORE = "final_score"
"""Name of the score of datasets that a judge scored (0-10). Other datasets are scored by a metric (0-1)."""
TAG = "tag"
"""The field's name under which tags come."""

_MOST_VALUES = 20
_MOST_TAGS = 50


def dataset_results(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return one entry for each dataset and model, in order of first appearance; rows of no dataset are left out."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row["dataset"] is not None:
            groups[row["dataset"], column_of(row)].append(row)
    return [_summarize_dataset(group) for group in groups.values()]


def _summarize_dataset(rows: Sequence[Row]) -> dict[str, Any]:
    counts = Counts.of(row["outcome"] for row in rows)
    cases: dict[CaseKey, list[Row]] = defaultdict(list)
    for row in rows:
        cases[case_key(row)].append(row)
    judged = [list(filter(has_verdict, group)) for group in cases.values()]
    verdicts = [[row["outcome"] == "passed" for row in group] for group in judged]
    scorer = _scorer(rows)
    scores = [[score for row in group if (score := _score_of(row, scorer)) is not None] for group in judged]
    scale = JUDGED_SCALE if scorer == FINAL_SCORE else None
    return {
        "dataset": rows[0]["dataset"],
        "model_id": rows[0]["model_id"],
        **variant_of(rows[0]),
        "runs": counts.runs,
        "items": len(cases),
        "pass_rate": counts.pass_rate,
        "pass_rate_ci95": pair(
            pass_rate_interval([(sum(case_verdicts), len(case_verdicts)) for case_verdicts in verdicts])
        ),
        "completion": counts.completion,
        "scored_by": scorer,
        "mean_score": mean([score for group in scores for score in group]),
        "scored": sum(map(bool, scores)),
        "score_ci95": pair(score_interval(scores, scale)),
        "metrics": _mean_metrics(rows, judged),
        "breakdown": breakdown([_entry(row, scorer) for row in rows], scale) if _may_group(rows) else [],
    }


def _may_group(rows: Sequence[Row]) -> bool:
    return any(row["fields"] or row["tags"] for row in rows)


def _scorer(rows: Sequence[Row]) -> str | None:
    """Return FINAL_SCORE, else the metric that most rows have (of several the first), else None."""
    if any(row["final_score"] is not None for row in rows):
        return FINAL_SCORE
    metrics = Counter(name for row in rows for name in row["metrics"])
    return max(metrics, key=metrics.__getitem__, default=None)


def _score_of(row: Row, scorer: str | None) -> float | None:
    score: float | None = row["final_score"] if scorer == FINAL_SCORE else row["metrics"].get(scorer)
    return score


def _entry(row: Row, scorer: str | None) -> Entry:
    score = passed = None
    if has_verdict(row):
        score, passed = _score_of(row, scorer), row["outcome"] == "passed"
    return Entry(row["fields"], row["tags"], score, passed, case_key(row))


def _mean_metrics(rows: Sequence[Row], judged: Sequence[Sequence[Row]]) -> dict[str, Any]:
    """Return the mean of each metric with its interval, over the runs with a verdict that have a score, by case."""
    scores = {
        name: [[score for row in group if (score := row["metrics"].get(name)) is not None] for group in judged]
        for name in dict.fromkeys(name for row in rows for name in row["metrics"])
    }
    return {
        name: {"mean": mean([score for group in groups for score in group]), "ci95": pair(score_interval(groups))}
        for name, groups in scores.items()
    }


class Entry(NamedTuple):
    """One scored item, or one run of it. None: unknown.

    Entries with the same `case` are repetitions of one case. They resemble each other, so they count as one cluster in
    the intervals and as one item. An entry without `case` is a separate item.
    """

    fields: Mapping[str, str]
    tags: Sequence[str]
    score: float | None
    passed: bool | None
    case: Hashable = None


def breakdown(entries: Sequence[Entry], scale: Interval | None = None) -> list[dict[str, Any]]:
    """Return pass rate and mean score, each with its 95 % interval, of every group of entries.

    A field makes groups if it has 2 to 20 values, and at most half as many values as items: more would be an id. Fields
    and values are in order of first appearance, then tags (field "tag", the 50 most frequent), which may overlap. A tag
    of all entries is left out, and a tag that repeats a field (`easy`, `level-3` of `tags_from`). An entry without a
    field is in none of its groups. Intervals are over cases, see `statistics`. The mean's interval stays on the scores'
    scale.

    :returns: `{field, value, items, judged, mean_score, score_ci95, pass_rate, pass_rate_ci95}` each; `judged` of the
        items have a verdict or a score. None: undefined.
    """
    # Entries without a case are separate clusters.
    cases = [object() if entry.case is None else entry.case for entry in entries]
    entries_of_groups: list[dict[str, Any]] = []
    field_groups: dict[str, list[int]] = {}
    for field in _grouping_fields(entries):
        groups: dict[str, list[int]] = defaultdict(list)
        for at, entry in enumerate(entries):
            if field in entry.fields:
                groups[entry.fields[field]].append(at)
        items = len({cases[at] for group in groups.values() for at in group})
        # By items, not entries: repetitions would make an id look like a group
        if 2 * len(groups) <= items:
            entries_of_groups += [
                _make_group(field, value, group, entries, cases, scale) for value, group in groups.items()
            ]
            field_groups |= {name: group for value, group in groups.items() for name in (value, f"{field}-{value}")}
    tags = {
        tag: group
        for tag, group in _group_by_tag(entries).items()
        if field_groups.get(tag) != group and len(group) < len(entries)
    }
    return entries_of_groups + [_make_group(TAG, tag, group, entries, cases, scale) for tag, group in tags.items()]


def _grouping_fields(entries: Iterable[Entry]) -> list[str]:
    """Return the fields with 2 to 20 values."""
    values: dict[str, set[str]] = defaultdict(set)
    for entry in entries:
        for field, value in entry.fields.items():
            seen = values[field]
            if len(seen) <= _MOST_VALUES:  # one more than may be shows that it is too many, and ids fill no memory
                seen.add(value)
    return [field for field, seen in values.items() if 2 <= len(seen) <= _MOST_VALUES]


def _group_by_tag(entries: Sequence[Entry]) -> dict[str, list[int]]:
    """Return the most frequent tags with the places of their entries."""
    # `fromkeys`: a tag that an entry has twice counts once
    frequent = Counter(tag for entry in entries for tag in dict.fromkeys(entry.tags)).most_common(_MOST_TAGS)
    groups: dict[str, list[int]] = {tag: [] for tag, _ in frequent}
    for at, entry in enumerate(entries):
        for tag in dict.fromkeys(entry.tags):
            if tag in groups:
                groups[tag].append(at)
    return groups


def _make_group(
    field: str,
    value: str,
    places: Iterable[int],
    entries: Sequence[Entry],
    cases: Sequence[Hashable],
    scale: Interval | None,
) -> dict[str, Any]:
    verdicts: dict[Hashable, list[bool]] = defaultdict(list)
    scores: dict[Hashable, list[float]] = defaultdict(list)
    items = set()
    for at in places:
        entry, case = entries[at], cases[at]
        items.add(case)
        if entry.passed is not None:
            verdicts[case].append(entry.passed)
        if entry.score is not None:
            scores[case].append(entry.score)
    return {
        "field": field,
        "value": value,
        "items": len(items),
        "judged": len(verdicts.keys() | scores.keys()),
        "mean_score": mean([score for group in scores.values() for score in group]),
        "score_ci95": pair(score_interval(list(scores.values()), scale)),
        "pass_rate": mean([passed for group in verdicts.values() for passed in group]),
        "pass_rate_ci95": pair(pass_rate_interval([(sum(group), len(group)) for group in verdicts.values()])),
    }
