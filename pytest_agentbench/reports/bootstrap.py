"""Intervals of means by resampling cases. Importing scipy takes about a second: only what resamples does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pytest_agentbench.reports.statistics import FEWEST_JUDGED, Interval, samples_of, standard_error

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

RESAMPLES = 2_000
MOST_CORRECTED = 1_000
"""The correction's jackknife grows with the square of the cases, while what it corrects shrinks with their number."""
_SEED = 20_260_101
_DRAWN_AT_ONCE = 2_000_000


def bootstrap_interval(groups: Sequence[Sequence[float]]) -> Interval | None:
    """The 95 % bootstrap interval of the mean over all values; a group is one case's scores, resampled as a whole.

    BCa (Efron 1987), for more than MOST_CORRECTED cases the percentile interval; the seed is fixed, so the same scores
    give the same interval. None for fewer than FEWEST_JUDGED cases, and where they do not differ. Where there
    is a single case, its repetitions are the sample.
    """
    groups = samples_of(groups)
    if len(groups) < FEWEST_JUDGED or standard_error(groups) is None:
        return None
    import numpy
    from scipy.stats import bootstrap

    found = bootstrap(
        (numpy.array([sum(group) for group in groups]), numpy.array([float(len(group)) for group in groups])),
        _mean,
        n_resamples=RESAMPLES,
        batch=max(1, _DRAWN_AT_ONCE // len(groups)),
        vectorized=True,
        paired=True,
        method="BCa" if len(groups) <= MOST_CORRECTED else "percentile",
        rng=numpy.random.default_rng(_SEED),
    ).confidence_interval
    return float(found.low), float(found.high)


def _mean(sums: NDArray[float64], counts: NDArray[float64], axis: int = -1) -> Any:
    return sums.sum(axis) / counts.sum(axis)
