"""Results by what the rows of a dataset say of themselves: difficulty, source, language, tags."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pytest_agentbench.reports.text import sendable
from pytest_agentbench.statistics.estimates import Interval, mean, pair, pass_rate_interval, score_interval

TAG = "tag"
"""The field's name under which tags come."""

_MOST_VALUES = 20
_MOST_TAGS = 50
_MOST_FIELDS = 8
_LONGEST = 40
_LARGEST = 10**15


class Entry(NamedTuple):
    """One scored item, or one run of it. None: unknown.

    Entries with the same `case` are repetitions of one case: they resemble each other, so they count as one cluster in
    the intervals and as one item. An entry without `case` is an item of its own.
    """

    fields: Mapping[str, str]
    tags: Sequence[str]
    score: float | None
    passed: bool | None
    case: Hashable = None


def groupable(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return what of a row's metadata is worth grouping by, as text: the first 8 short texts, numbers and booleans.

    Texts have up to 40 characters. Equal keys and values of many rows are one object each.
    """
    found: dict[str, str] = {}
    for key, value in metadata.items():
        text = _short(value)
        if text is not None and len(key) <= _LONGEST:
            found[sys.intern(sendable(key))] = sys.intern(text)
            if len(found) == _MOST_FIELDS:
                break
    return found


def breakdown(entries: Sequence[Entry], scale: Interval | None = None) -> list[dict[str, Any]]:
    """Pass rate and mean score, each with its 95 % interval, of every group of entries.

    A field groups where it has 2 to 20 values, and no more than half as many as items that have it: more would be an
    id. Fields and values come in order of first appearance, then tags (field "tag", the 50 most frequent), which may
    overlap. A tag of all entries is left out, and one that says what a field says already (`easy`, `level-3` of
    `tags_from`). An entry without a field is in none of its groups. Intervals are over cases, see `statistics`; that of
    the mean stays on the scores' scale.

    :returns: `{field, value, items, judged, mean_score, score_ci95, pass_rate, pass_rate_ci95}` each; `judged` of the
        items have a verdict or a score. None: undefined.
    """
    cases = [object() if entry.case is None else entry.case for entry in entries]
    found: list[dict[str, Any]] = []
    said: dict[str, list[int]] = {}
    for field in _fields(entries):
        groups: dict[str, list[int]] = defaultdict(list)
        for at, entry in enumerate(entries):
            if field in entry.fields:
                groups[entry.fields[field]].append(at)
        items = len({cases[at] for group in groups.values() for at in group})
        if 2 * len(groups) <= items:
            found += [_group(field, value, group, entries, cases, scale) for value, group in groups.items()]
            said |= {name: group for value, group in groups.items() for name in (value, f"{field}-{value}")}
    tags = {
        tag: group for tag, group in _tagged(entries).items() if said.get(tag) != group and len(group) < len(entries)
    }
    return found + [_group(TAG, tag, group, entries, cases, scale) for tag, group in tags.items()]


def _short(value: object) -> str | None:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            text = sendable(value.strip()) if len(value) <= _LONGEST else ""
            return text or None
        case int():
            return str(value) if abs(value) < _LARGEST else None
        case float():
            return repr(value)
    return None


def _fields(entries: Iterable[Entry]) -> list[str]:
    """Fields with 2 to 20 values."""
    values: dict[str, set[str]] = defaultdict(set)
    for entry in entries:
        for field, value in entry.fields.items():
            seen = values[field]
            if len(seen) <= _MOST_VALUES:
                seen.add(value)
    return [field for field, seen in values.items() if 2 <= len(seen) <= _MOST_VALUES]


def _tagged(entries: Sequence[Entry]) -> dict[str, list[int]]:
    """Return the most frequent tags with the places of their entries."""
    frequent = Counter(tag for entry in entries for tag in dict.fromkeys(entry.tags)).most_common(_MOST_TAGS)
    groups: dict[str, list[int]] = {tag: [] for tag, _ in frequent}
    for at, entry in enumerate(entries):
        for tag in dict.fromkeys(entry.tags):
            if tag in groups:
                groups[tag].append(at)
    return groups


def _group(
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
