"""Paired differences of cases: exact tests, how many cases could tell, and the intervals that go with the p values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from math import ceil, fsum, sqrt
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from pytest_agentbench.statistics.estimates import Interval

if TYPE_CHECKING:
    from numpy import bool_, float64, int64
    from numpy.typing import NDArray


# Whether paired differences are more than chance. The pairs are cases: repetitions of one are averaged before.
#
# A case's repetitions resemble each other, so a case is one observation however often it ran (Miller 2024, "Adding Error
# Bars to Evals", arXiv:2411.00640, sections 2.2 and 4.2). All results are deterministic: what is drawn has a fixed seed,
# and depends neither on the order of cases nor on which side is called the baseline.


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


# The 95 % interval of a mean difference, from the distribution that also gives its p value: they never contradict.
#
# From six changed cases on, the interval is the inversion of the sign-flip test: the mean of a random subset of a
# symmetric sample lies below the true mean as often as above it (Hartigan 1969, "Using Subsample Values as Typical
# Values", JASA 64, 1303-1317). What fewer changed cases say of the others rests on what a case can change by at most:
# the bound of Gaffke (2005, "Three test statistics for a nonparametric one-sided hypothesis on the mean of a nonnegative
# variable", Mathematical Methods of Statistics 14, 451-467), which for single runs is that of the exact binomial.


SIGN_FLIP = "exact sign flip"
SIGN_FLIP_DRAWN = "sign flip, 9999 drawn"
SIGN_FLIP_LIMIT = "sign flip, normal limit"
FEWEST_CHANGED = 6
"""Differing cases below which no paired test can reach p = 0.05."""

_LEVEL = 0.05
_SEED = 20240411
_MOST_EXACT = 16
_DRAWN = 9_999
_LIMIT = 1_000
"""Differing cases from which the sign-flip test is its normal limit: more draws would only take longer."""
_WEIGHTS = 100_000
_ROUNDING = 1e-9


class _Subsets(NamedTuple):
    """Sums and sizes of subsets of the changed cases, each as likely as another; `exact`: of all of them."""

    sums: NDArray[float64]
    sizes: NDArray[int64]
    exact: bool


def sign_flip(differences: Sequence[float]) -> tuple[str, float]:
    """The two-sided sign-flip (one-sample permutation) test of the mean difference (Fisher 1935), and its p value.

    Under the null hypothesis each case's difference could as well have had the other sign; flipping those of a subset
    takes the sum past 0 where the subset's own sum does. Exact up to 16 differences other than 0, 9999 drawn subsets up
    to 1000, and beyond it the test's normal limit.
    """
    changed = _changed(differences)
    if len(changed) < 2:  # either sign is as far from 0
        return SIGN_FLIP, 1.0
    if len(changed) > _LIMIT:
        from scipy.stats import norm

        z = abs(fsum(changed)) / sqrt(fsum(difference**2 for difference in changed))
        return SIGN_FLIP_LIMIT, float(2 * norm.sf(z))
    found = _subsets(changed)
    beyond = min((found.sums <= 0).sum(), (found.sums >= 0).sum())
    if found.exact:
        return SIGN_FLIP, min(1.0, 2 * float(beyond) / len(found.sums))
    return SIGN_FLIP_DRAWN, min(1.0, 2 * float(beyond + 1) / (_DRAWN + 1))


def single_run_interval(differences: Sequence[float], p_value: float) -> Interval | None:
    """`rate_interval` of differences of -1, 0 and 1 whose exact p value is known.

    Draws and the normal limit can miss that by a little, so at the edge 0 goes where p says: an end next to it moves to
    it, or to the least difference that so many cases can have.
    """
    if (ends := rate_interval(differences)) is None:
        return None
    (low, high), least = ends, 1 / len(differences)
    if p_value > _LEVEL:
        return min(low, 0.0), max(high, 0.0)
    return (max(low, least), high) if fsum(differences) > 0 else (low, min(high, -least))


def rate_interval(differences: Sequence[float]) -> Interval | None:
    """The 95 % interval of the mean of differences of rates, each from -1 to 1; it has 0 where p is over 0.05.

    None without a case, and from six changed cases on where all cases differ alike.
    """
    changed = _changed(differences)
    if differences and len(changed) < FEWEST_CHANGED:
        return _bounded(changed, len(differences))
    return difference_interval(differences)


def difference_interval(differences: Sequence[float]) -> Interval | None:
    """The 95 % interval of the mean of any differences; it has 0 where p is over 0.05.

    None for fewer than six changed cases, which can show nothing, and where all cases differ alike.
    """
    changed = _changed(differences)
    if len(changed) < FEWEST_CHANGED or len(set(differences)) == 1:
        return None
    if len(changed) > _LIMIT:
        return _normal(differences)
    return _typical(changed, len(differences) - len(changed))


def _changed(differences: Sequence[float]) -> list[float]:
    """Without those of 0, in an order that does not depend on which side is the baseline."""
    return sorted(filter(None, differences), key=abs)


def _subsets(changed: Sequence[float]) -> _Subsets:
    import numpy

    chosen, values = _choices(len(changed)), numpy.array(changed)
    sums = chosen @ values
    sums[abs(sums) <= _ROUNDING * abs(values).max()] = 0.0
    return _Subsets(sums, chosen.sum(1), len(changed) <= _MOST_EXACT)


@lru_cache(maxsize=2)
def _choices(cases: int) -> NDArray[bool_]:
    """Which of so many changed cases are in each subset: all subsets, or drawn ones."""
    import numpy

    if cases > _MOST_EXACT:
        return numpy.random.default_rng(_SEED).random((_DRAWN, cases)) < 0.5
    every: NDArray[bool_] = (numpy.arange(2**cases)[:, None] >> numpy.arange(cases)) & 1 == 1
    return every


def _typical(changed: Sequence[float], unchanged: int) -> Interval:
    """Quantiles of the means of subsets of all cases: the differences that the sign-flip test does not refute.

    Of the unchanged cases in a subset only the number matters: binomial, its quantiles spread over each subset of
    changed cases where all of these are taken, else drawn. The empty subset is beyond every difference.
    """
    import numpy
    from scipy.stats import binom

    found = _subsets(changed)
    spread, others = 1, numpy.random.default_rng(_SEED + 1).binomial(unchanged, 0.5, _DRAWN)
    if found.exact:
        spread = -(-_DRAWN // len(found.sums))
        quantiles = binom.ppf((numpy.arange(spread) + 0.5) / spread, unchanged, 0.5)
        others = numpy.tile(quantiles.astype(int), len(found.sums))
    sums, sizes = numpy.repeat(found.sums, spread), numpy.repeat(found.sizes, spread) + others
    empty = sizes == 0
    means = sums / numpy.where(empty, 1, sizes)
    low = numpy.sort(numpy.where(empty, -numpy.inf, means))
    high = numpy.sort(numpy.where(empty, numpy.inf, means))
    at = int(len(means) * _LEVEL / 2) if found.exact else int((_DRAWN + 1) * _LEVEL / 2) - 1
    return float(low[at]), float(high[-1 - at])


def _normal(differences: Sequence[float]) -> Interval:
    """What the normal limit of the sign-flip test does not refute."""
    from scipy.stats import norm

    cases, z = len(differences), float(norm.isf(_LEVEL / 2))
    middle = fsum(differences) / cases
    half = z * sqrt(fsum((difference - middle) ** 2 for difference in differences) / cases / (cases - z**2))
    return middle - half, middle + half


def _bounded(changed: Sequence[float], cases: int) -> Interval:
    """Gaffke's bounds: of the means under random weights, with one case more that changed as far as one can.

    The weights are uniform over all that add up to 1 (Dirichlet); those of unchanged cases need only their sum.
    """
    import numpy

    drawn = numpy.random.default_rng(_SEED)
    weights = drawn.standard_exponential((_WEIGHTS, len(changed) + 1))
    total = weights.sum(1) + drawn.standard_gamma(cases - len(changed), _WEIGHTS)
    sums = weights[:, 1:] @ numpy.array(changed)
    low, high = ((sums + most * weights[:, 0]) / total for most in (-1.0, 1.0))
    ends = float(numpy.quantile(low, _LEVEL / 2)), float(numpy.quantile(high, 1 - _LEVEL / 2))
    return max(-1.0, ends[0]), min(1.0, ends[1])
