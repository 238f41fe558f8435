"""Compare a prediction with several right answers by a metric that takes one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from pytest_agentbench.records.gold import Golds


class _Scored(Protocol):
    @property
    def score(self) -> float: ...


S = TypeVar("S", bound=_Scored)


def compare_golds(golds: Golds, compare: Callable[[str], S]) -> tuple[S, str]:
    """Return the best result of all answers (`any_of`) or the worst (`all_of`), and the answer that it is of.

    `compare` returns the result for one ground truth, and raises ValueError for one that the metric cannot read. One
    spelling that it can read is enough. Raises the error of an answer that it cannot read in any spelling, unless
    another answer decides already.
    """
    decided_at = 1.0 if golds.rule == "any_of" else 0.0
    results: list[tuple[S, str]] = []
    errors: list[ValueError] = []
    for spellings in golds.answers:
        try:
            result = _best(spellings, compare)
        except ValueError as error:
            errors.append(error)
            continue
        if result[0].score == decided_at:
            return result
        results.append(result)
    if errors:
        raise errors[0]
    return (max if golds.rule == "any_of" else min)(results, key=_score)


def _best(spellings: Iterable[str], compare: Callable[[str], S]) -> tuple[S, str]:
    results: list[tuple[S, str]] = []
    first: ValueError | None = None
    for spelling in spellings:
        try:
            result = compare(spelling)
        except ValueError as error:
            first = first or error
            continue
        if result.score == 1.0:
            return result, spelling
        results.append((result, spelling))
    if first is not None and not results:
        raise first
    return max(results, key=_score)


def _score(result: tuple[S, str]) -> float:
    return result[0].score
