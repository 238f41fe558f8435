"""How far several votes on the same thing agree. A unit is a list of votes; None wherever a figure is undefined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from math import fsum, sqrt
from statistics import fmean

Units = Sequence[Sequence[float]]


def krippendorff_alpha(units: Units) -> float | None:
    """Krippendorff's alpha at the interval level: 1 full agreement, 0 what chance gives, below 0 worse than that.

    Of votes of 0 and 1 that is alpha at the nominal level too. A unit's votes are exchangeable; those that are alone
    in their unit count for nothing (Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability"). Because the
    distance is the square of the difference, the sums over pairs are sums of squares about means: nothing grows with
    the number of different scores. None without a unit of two votes, and where all votes are the same: no
    disagreement is to be expected then.
    """
    units = [unit for unit in units if len(unit) > 1]
    votes = [vote for unit in units for vote in unit]
    if len(set(votes)) < 2:
        return None
    observed = fsum(len(unit) / (len(unit) - 1) * _squares(unit) for unit in units)
    expected = len(votes) / (len(votes) - 1) * _squares(votes)
    return 1 - observed / expected if expected else None


def within_sd(units: Units) -> float | None:
    """The standard deviation of the votes on one unit, pooled over the units.

    Bland & Altman 1996, "Measurement error", doi:10.1136/bmj.312.7047.1654. None without a unit of two votes.
    """
    units = [unit for unit in units if len(unit) > 1]
    free = sum(len(unit) - 1 for unit in units)
    return sqrt(fsum(map(_squares, units)) / free) if free else None


def cv_percent(units: Units) -> float | None:
    """sigma / mu x 100 % of each unit's votes with population sigma, the mean over the units (MCP-Bench, Table 7).

    Single votes and units whose mean is 0 tell nothing; None where all are such.
    """
    found = [
        100 * sqrt(_squares(unit) / len(unit)) / middle for unit in units if len(unit) > 1 and (middle := fmean(unit))
    ]
    return fmean(found) if found else None


def pairwise_agreement(units: Units, verdict: Callable[[float], object]) -> float | None:
    """The share of pairs of votes on one unit that come to the same verdict, the mean over the units with a pair."""
    shares = []
    for unit in units:
        pairs = list(combinations(map(verdict, unit), 2))
        if pairs:
            shares.append(sum(one == other for one, other in pairs) / len(pairs))
    return fmean(shares) if shares else None


def _squares(votes: Sequence[float]) -> float:
    middle = fsum(votes) / len(votes)
    return fsum((vote - middle) ** 2 for vote in votes)
