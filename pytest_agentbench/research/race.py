"""RACE: criterion scores of a judge to the scores of a report (seed 003; DeepResearch Bench, section 3.1).

`T_d = sum(s1 w) / sum(w)` over the criteria of a dimension, `R_d` the same of the reference; `T = sum(T_d W_d)`;
overall `T / (T + R)`, a dimension's score `T_d / (T_d + R_d)`. Pointwise, without a reference, both are `T / 10`.
`W_d` are shares: weights that sum to anything else count by their sum.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from pytest_agentbench.records import RACE_DIMENSIONS, RaceCriteria, RaceCriterion, RaceDimension

TOP = 10.0


@dataclass(frozen=True, slots=True)
class Scored:
    """A judge's scores of one criterion, 0-10. `reference` is None where the judge saw no reference."""

    criterion: str
    target: float
    reference: float | None = None
    analysis: str = ""


@dataclass(frozen=True, slots=True)
class Race:
    """A report's RACE scores, 0-1; `target` and `reference` are the weighted totals, 0-10, None where pointwise.

    `weighted_dimensions` is the sum of the dimensions by their weights (the seed's wording of the overall score). A
    score is None where target and reference both have 0 points.
    """

    overall: float | None
    dimensions: dict[RaceDimension, float | None]
    weighted_dimensions: float | None
    target: float
    reference: float | None


class UnmatchedCriteria(ValueError):
    """What keeps a judge's scores from being those of the criteria: `missing`, `unknown` and `repeated` texts."""

    def __init__(self, missing: Sequence[str], unknown: Sequence[str], repeated: Sequence[str]) -> None:
        self.missing, self.unknown, self.repeated = tuple(missing), tuple(unknown), tuple(repeated)
        kinds = {"not scored": missing, "not asked for": unknown, "scored more than once": repeated}
        super().__init__("\n".join(f"- {kind}: {text!r}" for kind, texts in kinds.items() for text in texts))


def race(criteria: RaceCriteria, scored: Mapping[RaceDimension, Sequence[Scored]], *, compat: bool = False) -> Race:
    """The scores of a report whose criteria a judge has scored, all with a reference or all without one.

    `compat` is the original's: criteria that the judge left out are left out of the sums, others are found by a part of
    their text, and one that is not found weighs as the mean of its dimension's. Raises UnmatchedCriteria (else).
    """
    if not compat:
        require_all(criteria, scored)
    totals = {name: _totals(criteria.criterions[name], scored[name], compat) for name in RACE_DIMENSIONS}
    weights = _shares(criteria.dimension_weight)
    target = _weighted({name: total[0] for name, total in totals.items()}, weights)
    if any(each.reference is None for scores in scored.values() for each in scores):
        return _race({name: total[0] / TOP for name, total in totals.items()}, weights, target / TOP, target, None)
    reference = _weighted({name: total[1] for name, total in totals.items()}, weights)
    dimensions = {name: share(*total) for name, total in totals.items()}
    return _race(dimensions, weights, share(target, reference), target, reference)


def share(target: float, reference: float) -> float | None:
    """The target's part of both, None where there is nothing to share."""
    return target / (target + reference) if target + reference else None


def _shares(weights: Mapping[RaceDimension, float]) -> dict[RaceDimension, float]:
    total = fsum(weights[name] for name in RACE_DIMENSIONS)
    return {name: weights[name] / total for name in RACE_DIMENSIONS}


def _weighted(values: Mapping[RaceDimension, float], shares: Mapping[RaceDimension, float]) -> float:
    mean = fsum(values[name] * shares[name] for name in RACE_DIMENSIONS)
    return _among(mean, values.values())


def _among(mean: float, values: Collection[float]) -> float:
    """The mean of values, which no rounding takes out of their range: all 6 is 6, and nothing is more than all."""
    return min(max(mean, min(values)), max(values))


def require_all(criteria: RaceCriteria, scored: Mapping[RaceDimension, Sequence[Scored]]) -> None:
    """Raises UnmatchedCriteria unless every criterion is scored once, under its own text but for case and blanks."""
    missing, unknown, repeated = [], [], []
    for name in RACE_DIMENSIONS:
        wanted = {plain(each.criterion): each.criterion for each in criteria.criterions[name]}
        found: set[str] = set()
        for each in scored.get(name, ()):
            key = plain(each.criterion)
            if key not in wanted:
                unknown.append(each.criterion)
            elif key in found:
                repeated.append(each.criterion)
            found.add(key)
        missing += [text for key, text in wanted.items() if key not in found]
    if missing or unknown or repeated:
        raise UnmatchedCriteria(missing, unknown, repeated)


def plain(text: str) -> str:
    """A criterion's text as it is compared: without case, with single blanks."""
    return " ".join(text.split()).casefold()


def _totals(criteria: Sequence[RaceCriterion], scored: Sequence[Scored], compat: bool) -> tuple[float, float]:
    """The weighted means of target and reference, 0-10; the latter is 0 where there is none."""
    exact = {each.criterion: each.weight for each in criteria}
    weight_of = {plain(text): weight for text, weight in exact.items()}
    target = reference = total = 0.0
    for each in scored:
        weight = exact.get(each.criterion)
        if weight is None:
            weight = weight_of.get(plain(each.criterion))
        if weight is None and compat:
            weight = _closest(plain(each.criterion), weight_of)
        assert weight is not None
        target += each.target * weight
        reference += (each.reference or 0.0) * weight
        total += weight
    if not total:
        return 0.0, 0.0
    return (
        _among(target / total, [each.target for each in scored]),
        _among(reference / total, [each.reference or 0.0 for each in scored]),
    )


def _closest(text: str, weights: Mapping[str, float]) -> float:
    for known, weight in weights.items():
        if text in known or known in text:
            return weight
    return sum(weights.values()) / len(weights)


def _race(
    dimensions: Mapping[RaceDimension, float | None],
    weights: Mapping[RaceDimension, float],
    overall: float | None,
    target: float,
    reference: float | None,
) -> Race:
    known = {name: score for name, score in dimensions.items() if score is not None}
    weighted = _weighted(known, weights) if len(known) == len(dimensions) else None
    return Race(overall, dict(dimensions), weighted, target, reference)
