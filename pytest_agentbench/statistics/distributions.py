"""Quantiles and tails of the normal, Student's and the binomial distribution, to rounding and without a library.

`scipy.stats` has all of them; it weighs 172 MB with numpy and takes 1.7 s to import, for what is a page of sums.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from itertools import accumulate
from math import comb, cos, fsum, pi, sin, sqrt, tan
from statistics import NormalDist

NORMAL = NormalDist()
Z = 1.959963984540054
"""The normal distribution's 97.5 % quantile."""

_MOST_EXACT = 100
"""Degrees of freedom up to which Student's quantile is computed exactly."""
_TIES = 1e-12
"""What a sum of probabilities misses of the share that it should reach exactly is rounding."""


@cache
def t_quantile(df: int, comparisons: int = 1) -> float:
    """Return Student's quantile at 1 - 0.025 / `comparisons` for `df` >= 1 degrees of freedom.

    Exact up to _MOST_EXACT degrees, then to 1e-9 by the normal one (Abramowitz & Stegun 26.7.5).
    """
    tail = 0.025 / comparisons
    if df <= _MOST_EXACT:
        return _exact_t_quantile(df, tail)
    z = Z if comparisons == 1 else NormalDist().inv_cdf(1 - tail)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / float(df) ** power for power, term in enumerate(terms, 1))


def _exact_t_quantile(df: int, tail: float) -> float:
    """Return the quantile by halving the angle whose tangent is t / sqrt(df)."""
    return tan(solve(lambda angle: _within(angle, df) - (1 - 2 * tail), 0.0, pi / 2)) * sqrt(df)


def _within(angle: float, df: int) -> float:
    """Return the probability of |t| < tan(angle) sqrt(df) (Abramowitz & Stegun 26.7.3 and 26.7.4)."""
    term, terms = cos(angle) if df % 2 else 1.0, []
    for power in range(2 + df % 2, df + 1, 2):
        terms.append(term)
        term *= cos(angle) ** 2 * (power - 1) / power
    found = sin(angle) * fsum(terms)
    return (angle + found) * 2 / pi if df % 2 else found


def solve(function: Callable[[float], float], low: float, high: float) -> float:
    """Return where an increasing function comes to 0 between `low` and `high`: the last float below it.

    By halving until no float lies between, some 60 steps: a faster method would stop at a tolerance that somebody has
    to choose.
    """
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if function(middle) < 0 else (low, middle)
    return low


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
