"""Pair cases whose ids differ from the baseline because their file, or the root in its name, has moved.

The store finds stored runs of such cases by the same rules. The id of a test.yaml does not depend on its place. The
name of a dataset is its path below a root, which may be any folder above it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from pytest_agentbench.reports.comparison.campaigns import Campaign, CaseRuns
from pytest_agentbench.reports.gate import CaseKey

_HASH = re.compile(r"-[0-9a-f]{6}$")
"""The end of a dataset's name that holds characters that no node id can have: its hash changes with the root."""


class _Identity(NamedTuple):
    """The parts of a case's key. `own` is all that does not depend on the name of its dataset."""

    key: CaseKey
    file: str
    dataset: str | None
    own: tuple[str, str]


def pair_renamed(
    baseline: Campaign, current: Campaign, matched: Sequence[tuple[str, str]]
) -> tuple[Campaign, dict[CaseKey, CaseKey]]:
    """Return the baseline with the keys of the current side, and its own keys of the cases that were renamed."""
    models: dict[str, Mapping[CaseKey, CaseRuns]] = {**baseline.models}
    renamed: dict[CaseKey, CaseKey] = {}
    for old, new in matched:
        new_keys = _find_renamed(baseline.models[old], current.models[new])
        if new_keys:
            models[old] = {new_keys.get(key, key): _rename(case, new_keys) for key, case in models[old].items()}
            renamed |= new_keys
    return replace(baseline, models=models), renamed


def describe_renamed(renamed: Mapping[CaseKey, CaseKey], baseline: Campaign) -> Iterable[str]:
    """Return a sentence on the cases that have other ids in the baseline, none if there are none."""
    if renamed:
        (there, here), *_ = renamed.items()
        cases = "1 case has another id" if len(renamed) == 1 else f"{len(renamed)} cases have other ids"
        yield (
            f"{cases} in {baseline.label}, as a file or a root has moved, for example {there[0]} there and {here[0]} "
            "here: each is compared as one case."
        )


def _rename(case: CaseRuns, renamed: Mapping[CaseKey, CaseKey]) -> CaseRuns:
    if (key := renamed.get(case.key)) is None:
        return case
    # Fingerprints contain the id, so they cannot be compared between different ids.
    return replace(case, key=key, prints=case.prints if key[1] == case.key[1] else frozenset())


def _find_renamed(old: Mapping[CaseKey, CaseRuns], new: Mapping[CaseKey, CaseRuns]) -> dict[CaseKey, CaseKey]:
    """Return the keys in `new` of cases that have other keys in `old`; only pairs without ambiguity."""
    before = [_identify(case) for key, case in old.items() if key not in new]
    after = [_identify(case) for key, case in new.items() if key not in old]
    # Files whose paths end alike come first: several may have cases of one id
    certain = _match(before, after, lambda a, b: _is_same_case(a, b) and _ends_alike(a.file, b.file))
    paired_keys = {*certain, *certain.values()}
    before, after = ([identity for identity in side if identity.key not in paired_keys] for side in (before, after))
    return certain | _match(before, after, _is_same_case)


def _match(
    before: Sequence[_Identity], after: Sequence[_Identity], is_same: Callable[[_Identity, _Identity], bool]
) -> dict[CaseKey, CaseKey]:
    """Return the pairs of which neither case fits another one."""
    by_own: dict[tuple[str, str], list[_Identity]] = defaultdict(list)
    for case in before:
        by_own[case.own].append(case)
    pairs = [(a.key, b.key) for b in after for a in by_own.get(b.own, ()) if is_same(a, b)]
    olds, news = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    return {a: b for a, b in pairs if olds[a] == news[b] == 1}


def _identify(case: CaseRuns) -> _Identity:
    place, case_id = case.key
    file, _, name = place.partition("::")
    beginning = "" if case.dataset is None else f"{case.dataset}."
    own = name.removeprefix(beginning), case_id.removeprefix(beginning)
    return _Identity(case.key, file, case.dataset, own)


def _is_same_case(a: _Identity, b: _Identity) -> bool:
    """Return whether two cases whose own parts are equal may be one: of one dataset, or of none."""
    if a.dataset is None or b.dataset is None:
        return a.dataset is b.dataset
    return _ends_alike(_HASH.sub("", a.dataset), _HASH.sub("", b.dataset))


def _ends_alike(a: str, b: str) -> bool:
    """Return whether one path is the other one below some folder."""
    shorter, longer = sorted((a, b), key=len)
    return f"/{longer}".endswith(f"/{shorter}")
