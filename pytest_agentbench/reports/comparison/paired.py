"""Whether paired differences are more than chance. The pairs are cases: repetitions of one are averaged before.

A case's repetitions resemble each other, so a case is one observation however often it ran (Miller 2024, "Adding Error
Bars to Evals", arXiv:2411.00640, sections 2.2 and 4.2). All results are deterministic: what is drawn has a fixed seed,
and depends neither on the order of cases nor on which side is called the baseline.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import ceil, fsum, sqrt
from statistics import fmean

ALPHA = 0.05
"""How often all models of a comparison together may be called different where none is."""
POWER = 0.8

MCNEMAR = "exact McNemar"


def mcnemar(worse: int, better: int) -> float:
    """The exact two-sided p value of McNemar's test: cases that only one of two sides passed (McNemar 1947).

    Binomial with probability 1/2 over the cases that changed; 1 where none did.
    """
    from scipy.stats import binomtest

    return float(binomtest(worse, worse + better).pvalue) if worse + better else 1.0


def fewest_changes(alpha: float) -> int:
    """How many cases must change, all in one direction, before a paired test can reach `alpha`: 6 at 0.05.

    The smallest p value that a sign-flip test of m differences can have is 2 / 2^m.
    """
    changes = 1
    while 2.0 ** (1 - changes) > alpha:
        changes += 1
    return changes


def smallest_difference(differences: Sequence[float], alpha: float) -> float | None:
    """The shift of all cases that this many show with 80 % power (Miller 2024, section 5, solved for the difference).

    None where no result could be significant, and where the differences do not vary.
    """
    cases, spread = len(differences), _sd(differences)
    if cases < fewest_changes(alpha) or not spread:
        return None
    return sum(_quantiles(alpha)) * spread / sqrt(cases)


def smallest_rate_difference(differences: Sequence[float], alpha: float) -> float | None:
    """The difference of pass rates that this many cases show with 80 % power, 0 to 1.

    It is made of cases that pass on one side only, while the others go on to vary as they do: what changes adds to the
    variance (Connor 1987, solved for the difference). At least what makes as many cases change as the exact test needs,
    in 80 % of campaigns. None where no result could be significant.
    """
    from scipy.optimize import brentq
    from scipy.stats import beta

    cases, fewest, spread = len(differences), fewest_changes(alpha), _sd(differences)
    if cases < fewest:
        return None

    def beyond(difference: float) -> float:
        square = min(1.0, spread**2 + difference)
        return sqrt(cases) * difference - _needed(square, max(0.0, square - difference**2), alpha)

    by_test = float(beta.ppf(POWER, fewest, cases - fewest + 1))
    if beyond(by_test) >= 0:
        return by_test
    return float(brentq(beyond, by_test, 1.0)) if beyond(1.0) > 0 else 1.0


def cases_needed(differences: Sequence[float], alpha: float) -> int | None:
    """How many such cases would show the difference that these have, with 80 % power. None where they have none.

    The variance is that of the test where nothing differs, and that of the differences beside it (Connor 1987, "Sample
    Size for Testing Differences in Proportions for the Paired-Sample Design", Biometrics 43, 207-211); at least as many
    as change in as many cases as the exact test needs. Taken for a difference that the present cases do not show, so
    it is more than there are.
    """
    from scipy.stats import nbinom

    cases, changed, middle = len(differences), sum(map(bool, differences)), mean_of(differences)
    if not middle:
        return None
    square = fsum(difference**2 for difference in differences) / cases
    by_power = ceil((_needed(square, _sd(differences) ** 2, alpha) / middle) ** 2)
    fewest = fewest_changes(alpha)
    by_test = fewest + int(nbinom.ppf(POWER, fewest, changed / cases))
    return max(by_power, by_test, cases + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p values adjusted for being several, in their order (Holm 1979)."""
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, at in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[at]))
        adjusted[at] = highest
    return adjusted


@cache
def fisher(one: tuple[int, int], other: tuple[int, int]) -> float:
    """Fisher's exact two-sided p value that two (passed, failed) have the same rate."""
    import numpy as np
    from scipy.stats import fisher_exact

    return min(1.0, float(fisher_exact(np.asarray([one, other])).pvalue))


def mean_of(differences: Sequence[float]) -> float:
    """The mean; 0 exactly where gains and losses cancel out."""
    middle = fmean(differences)
    return 0.0 if abs(middle) < 1e-12 * max(map(abs, differences)) else middle


def _sd(differences: Sequence[float]) -> float:
    middle = fmean(differences)
    if len(set(differences)) < 2:
        return 0.0
    return sqrt(fsum((difference - middle) ** 2 for difference in differences) / (len(differences) - 1))


def _needed(variance_if_none: float, variance: float, alpha: float) -> float:
    """The root of the number of cases, times their mean difference, that gives 80 % power.

    The test goes by the variance where nothing differs, which is about 0; what it meets varies about the mean.
    """
    significant, powerful = _quantiles(alpha)
    return significant * sqrt(variance_if_none) + powerful * sqrt(variance)


def _quantiles(alpha: float) -> tuple[float, float]:
    """The standard normal's for a two-sided test, and for its power."""
    from scipy.stats import norm

    return float(norm.isf(alpha / 2)), float(norm.ppf(POWER))
