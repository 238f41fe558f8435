"""Paired differences of cases: exact tests, sample sizes, and intervals that agree with the p values.

The pairs are cases, averaged over their repetitions before. Repetitions resemble each other, so a case is one
observation (Miller 2024, "Adding Error Bars to Evals", arXiv:2411.00640, sections 2.2 and 4.2). All results are
deterministic: draws have a fixed seed, and the order of cases and the choice of the baseline do not matter.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import accumulate, compress, islice
from math import ceil, comb, erfc, fsum, inf, sqrt
from operator import add
from typing import NamedTuple

from pytest_agentbench.statistics.estimates import Interval, Z, mean_of, solve
from pytest_agentbench.statistics.resampling import NORMAL, SUBSETS, UNCHANGED, CoinTosses, draw_fractions

ALPHA = 0.05
"""Probability that any model of a comparison is called different although none is."""
POWER = 0.8

MCNEMAR = "exact McNemar"


def mcnemar(worse: int, better: int) -> float:
    """Return the exact two-sided p value of McNemar's test for cases that only one side passed (McNemar 1947).

    Binomial with probability 1/2 over the cases that changed; 1 if none did.
    """
    return min(1.0, 2 * coin_tail(min(worse, better), worse + better))


def fewest_changes(alpha: float) -> int:
    """Return how many cases must change, all in one direction, before a paired test can reach `alpha`: 6 at 0.05.

    The smallest p value that a sign-flip test of m differences can have is 2 / 2^m.
    """
    changes = 1
    while 2.0 ** (1 - changes) > alpha:
        changes += 1
    return changes


def smallest_difference(differences: Sequence[float], alpha: float) -> float | None:
    """Return the shift of all cases that this many cases detect with 80 % power (Miller 2024, section 5, solved for
    it).

    None if no result could be significant, and if the differences do not vary.
    """
    cases, spread = len(differences), _sd(differences)
    if cases < fewest_changes(alpha) or not spread:
        return None
    return sum(_quantiles(alpha)) * spread / sqrt(cases)


def smallest_rate_difference(differences: Sequence[float], alpha: float) -> float | None:
    """Return the difference of pass rates that this many cases detect with 80 % power, 0 to 1.

    The difference consists of cases that pass on one side only, while the others vary as before: their change adds to
    the variance (Connor 1987, solved for the difference). It is at least the difference at which as many cases change
    as the exact test needs, in 80 % of campaigns. None if no result could be significant.
    """
    cases, fewest, spread = len(differences), fewest_changes(alpha), _sd(differences)
    if cases < fewest:
        return None

    def beyond(difference: float) -> float:
        square = min(1.0, spread**2 + difference)
        return sqrt(cases) * difference - _needed(square, max(0.0, square - difference**2), alpha)

    by_test = solve(lambda rate: binomial_tail(fewest, cases, rate) - POWER, 0.0, 1.0)
    if beyond(by_test) >= 0:
        return by_test
    if beyond(1.0) > 0:
        return solve(beyond, by_test, 1.0)
    return 1.0


def cases_needed(differences: Sequence[float], alpha: float) -> int | None:
    """Return the number of similar cases that would detect the present difference with 80 % power; None for a
    difference of 0.

    Uses the variance under the null hypothesis and that of the differences (Connor 1987, "Sample Size for Testing
    Differences in Proportions for the Paired-Sample Design", Biometrics 43, 207-211), and at least the number of
    changed cases that the exact test needs. Used for a difference that the present cases do not detect, so the result
    is larger than their number.
    """
    cases, changed, middle = len(differences), sum(map(bool, differences)), mean_difference(differences)
    if not middle:
        return None
    square = fsum(difference**2 for difference in differences) / cases
    by_power = ceil((_needed(square, _sd(differences) ** 2, alpha) / middle) ** 2)
    return max(by_power, _cases_that_change(fewest_changes(alpha), changed / cases), cases + 1)


def _cases_that_change(fewest: int, rate: float) -> int:
    """Return the number of cases of which `fewest` or more change in 80 % of campaigns."""
    low, high = fewest - 1, fewest
    while binomial_tail(fewest, high, rate) < POWER:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if binomial_tail(fewest, middle, rate) < POWER else (low, middle)
    return high


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p values adjusted for being several, in their order (Holm 1979)."""
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, at in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[at]))
        adjusted[at] = highest
    return adjusted


@cache
def fisher(one: tuple[int, int], other: tuple[int, int]) -> float:
    """Return Fisher's exact two-sided p value that two (passed, failed) have the same rate."""
    (passed, failed), (others_passed, others_failed) = one, other
    n, others, passing = passed + failed, others_passed + others_failed, passed + others_passed
    ways = [comb(n, k) * comb(others, passing - k) for k in range(max(0, passing - others), min(n, passing) + 1)]
    as_seen = comb(n, passed) * comb(others, others_passed)
    return sum(each for each in ways if each <= as_seen) / sum(ways)


def mean_difference(differences: Sequence[float]) -> float:
    """Return the mean; 0 exactly where gains and losses cancel out."""
    middle = mean_of(differences)
    if abs(middle) < 1e-12 * max(map(abs, differences)):
        return 0.0
    return middle


def _sd(differences: Sequence[float]) -> float:
    middle = mean_of(differences)
    if len(set(differences)) < 2:
        return 0.0
    return sqrt(fsum((difference - middle) ** 2 for difference in differences) / (len(differences) - 1))


def _needed(variance_if_none: float, variance: float, alpha: float) -> float:
    """Return the root of the number of cases, times their mean difference, that gives 80 % power.

    The test uses the variance under the null hypothesis, about 0; the actual variance is about the mean.
    """
    significant, powerful = _quantiles(alpha)
    return significant * sqrt(variance_if_none) + powerful * sqrt(variance)


def _quantiles(alpha: float) -> tuple[float, float]:
    """Return the standard normal's quantiles for a two-sided test, and for its power."""
    return -NORMAL.inv_cdf(alpha / 2), NORMAL.inv_cdf(POWER)


# The 95 % interval of a mean difference, from the distribution that also gives its p value: they never contradict.
#
# From six changed cases on, the interval is the inversion of the sign-flip test: the mean of a random subset of a
# symmetric sample lies below the true mean as often as above it (Hartigan 1969, "Using Subsample Values as Typical
# Values", JASA 64, 1303-1317). What fewer changed cases say of the others rests on what a case can change by at most:
# the bound of Gaffke (2005, "Three test statistics for a nonparametric one-sided hypothesis on the mean of a
# nonnegative variable", Mathematical Methods of Statistics 14, 451-467), which for single runs is that of the exact
# binomial.


SIGN_FLIP = "exact sign flip"
SIGN_FLIP_DRAWN = "sign flip, 9999 drawn"
SIGN_FLIP_LIMIT = "sign flip, normal limit"
FEWEST_CHANGED = 6
"""Differing cases below which no paired test can reach p = 0.05."""

_LEVEL = 0.05
_MOST_EXACT = 16
_DRAWN = 9_999
_LIMIT = 1_000
"""Differing cases from which the sign-flip test is its normal limit: more draws would only take longer."""
_ROUNDING = 1e-9
_TOSSES = CoinTosses(SUBSETS)


class _Subsets(NamedTuple):
    """The sums and sizes of subsets of the changed cases, each as likely as another; `exact`: of all of them."""

    sums: Sequence[float]
    sizes: Sequence[int]
    exact: bool


def sign_flip(differences: Sequence[float]) -> tuple[str, float]:
    """Return the two-sided sign-flip test of the mean difference (Fisher 1935) and its p value.

    Under the null hypothesis each case's difference could equally have the other sign. Flipping the signs of a subset
    makes the sum more extreme exactly if the subset's own sum is on the other side of 0. Exact up to 16 differences
    other than 0, 9999 drawn subsets up to 1000, and the test's normal limit above.
    """
    changed = _changed(differences)
    if len(changed) < 2:  # either sign is as far from 0
        return SIGN_FLIP, 1.0
    if len(changed) > _LIMIT:
        z = abs(fsum(changed)) / sqrt(fsum(difference**2 for difference in changed))
        return SIGN_FLIP_LIMIT, erfc(z / sqrt(2))
    subsets = _subsets(changed)
    beyond = min(sum(total <= 0 for total in subsets.sums), sum(total >= 0 for total in subsets.sums))
    if subsets.exact:
        return SIGN_FLIP, min(1.0, 2 * beyond / len(subsets.sums))
    return SIGN_FLIP_DRAWN, min(1.0, 2 * (beyond + 1) / (_DRAWN + 1))


def single_run_interval(differences: Sequence[float], p_value: float) -> Interval | None:
    """Return `rate_interval` of differences of -1, 0 and 1 whose exact p value is known.

    Draws and the normal limit can differ slightly from the exact test. If they disagree about 0, the p value decides:
    the end next to 0 moves to 0, or to the least difference that this many cases can have.
    """
    if (ends := rate_interval(differences)) is None:
        return None
    (low, high), least = ends, 1 / len(differences)
    if p_value > _LEVEL:
        return min(low, 0.0), max(high, 0.0)
    if fsum(differences) > 0:
        return (max(low, least), high)
    return (low, min(high, -least))


def rate_interval(differences: Sequence[float]) -> Interval | None:
    """Return the 95 % interval of the mean of differences of rates, each from -1 to 1; it has 0 where p is over 0.05.

    None without a case, and from six changed cases on where all cases differ alike.
    """
    changed = _changed(differences)
    if differences and len(changed) < FEWEST_CHANGED:
        return _bounded(changed, len(differences))
    return difference_interval(differences)


def difference_interval(differences: Sequence[float]) -> Interval | None:
    """Return the 95 % interval of the mean of any differences; it has 0 where p is over 0.05.

    None for fewer than six changed cases, which can show nothing, and where all cases differ alike.
    """
    changed = _changed(differences)
    if len(changed) < FEWEST_CHANGED or len(set(differences)) == 1:
        return None
    if len(changed) > _LIMIT:
        return _normal(differences)
    return _typical(changed, len(differences) - len(changed))


def _changed(differences: Sequence[float]) -> list[float]:
    """Return the differences other than 0, in an order that does not depend on the baseline's side."""
    return sorted(filter(None, differences), key=abs)


def _subsets(changed: Sequence[float]) -> _Subsets:
    """Return all subsets of the changed cases, or drawn ones where these are too many."""
    if exact := len(changed) <= _MOST_EXACT:
        sums, sizes = [0.0], [0]
        for difference in changed:
            sums += [total + difference for total in sums]
            sizes += [size + 1 for size in sizes]
    else:
        chosen, sizes = _drawn_subsets(len(changed))
        sums = [sum(compress(changed, each)) for each in chosen]
    # What cancels out is 0, whatever it was rounded to: else it would count for one side only
    near = _ROUNDING * max(map(abs, changed))
    return _Subsets([0.0 if abs(total) <= near else total for total in sums], sizes, exact)


@lru_cache(maxsize=2)
def _drawn_subsets(cases: int) -> tuple[list[bytes], list[int]]:
    """Return which of so many cases are in each drawn subset, a byte for each, and how many these are."""
    tosses = _TOSSES.first(_DRAWN * cases)
    chosen = [tosses[at : at + cases].tobytes() for at in range(0, len(tosses), cases)]
    return chosen, [each.count(1) for each in chosen]


@lru_cache(maxsize=2)
def _drawn_unchanged(unchanged: int) -> list[int]:
    """Return how many of so many unchanged cases are in each drawn subset."""
    return [coin_quantile(share, unchanged) for share in islice(draw_fractions(UNCHANGED), _DRAWN)]


def _typical(changed: Sequence[float], unchanged: int) -> Interval:
    """Return quantiles of the means of subsets of all cases: the differences that the sign-flip test does not refute.

    Of the unchanged cases in a subset only the number matters: binomial, its quantiles spread over each subset of
    changed cases where all of these are taken, else drawn. The empty subset is beyond every difference.
    """
    found = _subsets(changed)
    if found.exact:
        spread = -(-_DRAWN // len(found.sums))
        others = [coin_quantile((part + 0.5) / spread, unchanged) for part in range(spread)]
        subsets = [(total, size + more) for total, size in zip(found.sums, found.sizes, strict=True) for more in others]
        at = int(len(subsets) * _LEVEL / 2)
    else:
        subsets = [*zip(found.sums, map(add, found.sizes, _drawn_unchanged(unchanged)), strict=True)]
        at = int((_DRAWN + 1) * _LEVEL / 2) - 1
    means = sorted(total / size for total, size in subsets if size)
    empty = len(subsets) - len(means)  # each is the lowest of the means, and the highest
    if at >= empty:
        return (means[at - empty], means[empty - 1 - at])
    return (-inf, inf)


def _normal(differences: Sequence[float]) -> Interval:
    """Return the interval of the means that the normal limit of the sign-flip test does not reject."""
    cases, middle = len(differences), mean_of(differences)
    half = Z * sqrt(fsum((difference - middle) ** 2 for difference in differences) / cases / (cases - Z**2))
    return middle - half, middle + half


def _bounded(changed: Sequence[float], cases: int) -> Interval:
    """Return Gaffke's bounds: of the means under random weights, with one case more that changed as far as one can.

    The weights are uniform over all that add up to 1 (Dirichlet).
    """

    def lowest(differences: Sequence[float]) -> float:
        values = [-1.0, *differences, *[0.0] * (cases - len(differences))]
        return solve(lambda end: _share_below(end, values) - _LEVEL / 2, -1.0, 1.0)

    return lowest(changed), -lowest([-difference for difference in changed])


def _share_below(end: float, values: Sequence[float]) -> float:
    """Return the probability that the mean of the values under random weights is at most `end`.

    The weights are exponential waiting times divided by their sum. So this is the probability that the waits for the
    values below `end`, each multiplied by its distance, sum to more than those for the values above. Of two exponential
    waits the means alone determine which ends first, and the other one begins anew: no sum here has a negative term.
    """
    above = [value - end for value in values if value > end]
    below = [end - value for value in values if value < end]
    shares = [0.0] + [1.0] * len(below)  # by how many of those below are left, when none above is
    for wait in above:
        for left, other in enumerate(below, 1):
            shares[left] = (other * shares[left] + wait * shares[left - 1]) / (wait + other)
    return shares[-1]


_TIES = 1e-12
"""Largest deviation of a sum of probabilities from its exact share that is rounding."""


def binomial_tail(least: int, n: int, p: float) -> float:
    """Return the probability of `least` or more of `n`; cheap for a small `least`."""
    return 1 - fsum(comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(min(least, n + 1)))


def coin_tail(most: int, n: int) -> float:
    """Return the probability of at most `most` heads in `n` tosses, rounded once: the sum is one of integers."""
    ways, total = 1, 0
    for heads in range(min(most, n) + 1):
        total += ways
        ways = ways * (n - heads) // (heads + 1)
    return total / (1 << n)


def coin_quantile(share: float, n: int) -> int:
    """Return the least number of heads in `n` tosses that at least this share of all series does not exceed."""
    return bisect_left(_coin_sums(n), share * (1 - _TIES))


@lru_cache(maxsize=4)
def _coin_sums(n: int) -> Sequence[float]:
    """Return the probabilities of at most 0, 1, ... heads in `n` tosses.

    From the middle outwards, by ratios of neighbours: 2^-n is no float from 1,075 tosses on.
    """
    upper = [1.0]
    for heads in range(n // 2, n):
        upper.append(upper[-1] * (n - heads) / (heads + 1))
    weights = [*upper[: n % 2 : -1], *upper]
    total = fsum(weights)
    return [each / total for each in accumulate(weights)]
