"""The bootstrap interval of a mean, and the fixed random numbers that resampling goes by."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice
from math import floor, fsum, sqrt
from statistics import NormalDist

from pytest_agentbench.statistics.estimates import FEWEST_JUDGED, Interval, Z, mean_of, samples_of, standard_error

RESAMPLES = 2_000
MOST_DRAWN = 1_000
"""Number of cases above which the interval is the limit of infinitely many draws: 20 million draws take 5 s."""
_ROUNDING = 1e-12
"""Means that differ by less, as a share of the larger, differ by rounding."""

# numpy's default generator, PCG64 with XSL-RR output (O'Neill 2014, "PCG: A Family of Simple Fast Space-Efficient
# Statistically Good Algorithms for Random Number Generation", HMC-CS-2014-0905): figures are drawn as they were when
# numpy drew them, so that reports of then and now can be compared. States are those that its seeds lead to.

_MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645
_ALL_128, _ALL_64, _ALL_32 = (1 << 128) - 1, (1 << 64) - 1, (1 << 32) - 1

BOOTSTRAP = 0x57350C51801F1CF4E3B30DDFCF764493, 0x7E4FFFFAB14E3E3BE0452F35133326EB
"""Where `numpy.random.default_rng(20_260_101)` begins."""
SUBSETS = 0x8B8EA58474086D665EFB22A626F5EF3E, 0x4824476FD323410EBF210283555FCC4B
"""Where `numpy.random.default_rng(20_240_411)` begins."""
UNCHANGED = 0xD9485556741DE05C87A5C7AFA0306B2F, 0xE829A20E22EF8E477B45EE367C42B509
"""Where `numpy.random.default_rng(20_240_412)` begins."""


def draw_words(seed: tuple[int, int]) -> Iterator[int]:
    """Yield random integers of 64 bits, endlessly, as `next_uint64` of numpy's PCG64."""
    state, increment = seed
    while True:
        state = (state * _MULTIPLIER + increment) & _ALL_128
        word, turn = (state >> 64) ^ (state & _ALL_64), state >> 122
        yield (word >> turn | word << (64 - turn)) & _ALL_64


def draw_fractions(seed: tuple[int, int]) -> Iterator[float]:
    """Yield random numbers from 0 to below 1, endlessly, as `Generator.random`."""
    return ((word >> 11) * 2.0**-53 for word in draw_words(seed))


class CoinTosses:
    """Tosses of a fair coin, 1 for heads: `Generator.random(n) < 0.5` of any n, each made once in a process."""

    def __init__(self, seed: tuple[int, int]) -> None:
        self._heads = (word >> 63 ^ 1 for word in draw_words(seed))
        self._made = bytearray()

    def first(self, n: int) -> memoryview:
        """Return the first `n` draws, a byte each. A later call for more returns these before the others."""
        missing = n - len(self._made)
        if missing > 0:  # a new one: what others hold a view of cannot grow
            self._made = self._made + bytes(islice(self._heads, missing))
        return memoryview(self._made)[:n]


def draw_indices(seed: tuple[int, int], below: int) -> Iterator[int]:
    """Yield random integers from 0, endlessly, as `Generator.integers`: two of each word, its lower half first.

    Without a bias (Lemire 2019, "Fast Random Integer Generation in an Interval", doi:10.1145/3230636).
    """
    unfair = 2**32 % below
    for word in draw_words(seed):
        for half in (word & _ALL_32, word >> 32):
            product = half * below
            if product & _ALL_32 >= unfair:
                yield product >> 32


def bootstrap_interval(groups: Sequence[Sequence[float]]) -> Interval | None:
    """Return the 95 % bootstrap interval of the mean over all values; a group is one case's, resampled as a whole.

    BCa (Efron 1987) of RESAMPLES draws with a fixed seed; for more than MOST_DRAWN cases the percentile interval in the
    limit of infinitely many draws. None for fewer than FEWEST_JUDGED cases, and if they do not differ. For a single
    case its repetitions are the sample.
    """
    groups = samples_of(groups)
    if len(groups) < FEWEST_JUDGED or standard_error(groups) is None:
        return None
    sums, sizes = list(map(fsum, groups)), list(map(len, groups))
    if len(groups) > MOST_DRAWN:
        return _limit(sums, sizes)
    means = sorted(_resampled_means(sums, sizes))
    return _bias_corrected(means, sums, sizes)


def _resampled_means(sums: Sequence[float], sizes: Sequence[int]) -> Iterator[float]:
    """Yield the mean of each resample of whole cases."""
    indices, cases, alike = draw_indices(BOOTSTRAP, len(sums)), len(sums), len(set(sizes)) == 1
    for _ in range(RESAMPLES):
        drawn = list(islice(indices, cases))
        size = cases * sizes[0] if alike else sum(map(sizes.__getitem__, drawn))
        yield fsum(map(sums.__getitem__, drawn)) / size


def _bias_corrected(means: Sequence[float], sums: Sequence[float], sizes: Sequence[int]) -> Interval:
    """Return the BCa interval from the resampled means, in order (Efron & Tibshirani 1993, section 14.3)."""
    total, size = fsum(sums), sum(sizes)
    middle = total / size
    # A resample that is the sample in another order is neither below nor above, whatever its sum was rounded to
    near = _ROUNDING * max(abs(means[0]), abs(means[-1]))
    below, up_to = bisect_left(means, middle - near), bisect_left(means, middle + near)
    bias = NORMAL.inv_cdf(min(max((below + up_to) / 2, 0.5), len(means) - 0.5) / len(means))
    left_out = [(total - one) / (size - count) for one, count in zip(sums, sizes, strict=True)]
    away = [mean_of(left_out) - each for each in left_out]
    skew = fsum(each**3 for each in away) / (6 * fsum(each**2 for each in away) ** 1.5)
    low, high = (_quantile(means, NORMAL.cdf(bias + z / (1 - skew * z))) for z in (bias - Z, bias + Z))
    return low, high


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of ordered values, on the line between neighbours (type 7 of Hyndman & Fan 1996)."""
    at = share * (len(ordered) - 1)
    below = min(floor(at), len(ordered) - 2)
    return ordered[below] + (at - below) * (ordered[below + 1] - ordered[below])


def _limit(sums: Sequence[float], sizes: Sequence[int]) -> Interval:
    """Return the percentile interval in the limit of infinitely many draws, by mean, spread and skewness (Cornish &
    Fisher 1938).

    Its error shrinks with the number of cases and is far below that of 2,000 draws.
    """
    middle = fsum(sums) / sum(sizes)
    away = [total - size * middle for total, size in zip(sums, sizes, strict=True)]
    spread = sqrt(fsum(each**2 for each in away))
    shift = fsum(each**3 for each in away) / (6 * spread**3) * (Z**2 - 1)
    low, high = (middle + (shift + z) * spread / sum(sizes) for z in (-Z, Z))
    fewest = [total / size for total, size in zip(sums, sizes, strict=True)]
    return max(low, min(fewest)), min(high, max(fewest))


NORMAL = NormalDist()
