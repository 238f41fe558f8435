"""Rates, means and repeated runs with 95 % intervals, without a library. Undefined figures are None.

Values come in groups: the repetitions of one case resemble each other, so five repetitions of ten cases carry less
information than fifty cases. Intervals use the cluster-robust variance over cases (Miller 2024, "Adding Error Bars to
Evals", arXiv:2411.00640, section 2.2), which for one run per case is the plain formula. For a single case its
repetitions are the sample. `scipy.stats` has the quantiles too, but takes 172 MB with numpy and 1.7 s to import.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from math import comb, cos, exp, fsum, isfinite, log, pi, sin, sqrt, tan
from typing import Any

Z = 1.959963984540054
"""The normal distribution's 97.5 % quantile."""

_MOST_EXACT = 100
"""Degrees of freedom up to which Student's quantile is computed exactly."""


@cache
def t_quantile(df: int, comparisons: int = 1) -> float:
    """Return Student's quantile at 1 - 0.025 / `comparisons` for `df` >= 1 degrees of freedom.

    Exact up to _MOST_EXACT degrees, then to 1e-9 by the normal one (Abramowitz & Stegun 26.7.5).
    """
    tail = 0.025 / comparisons
    if df <= _MOST_EXACT:
        return _exact_t_quantile(df, tail)
    from statistics import NormalDist  # 6 ms of decimals and fractions that most sessions do not pay

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
    sine_part = sin(angle) * fsum(terms)
    if df % 2:
        return (angle + sine_part) * 2 / pi
    return sine_part


def solve(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the root of an increasing function between `low` and `high`: the last float below it.

    Bisects until no float is left, some 60 steps. A faster method would need a tolerance.
    """
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if function(middle) < 0 else (low, middle)
    return low


Interval = tuple[float, float]

_ROUNDING = 1e-12
"""Largest relative difference of values that is rounding."""


def wilson_interval(passed: float, n: float) -> Interval | None:
    """Return the 95 % score interval of a proportion (Wilson 1927), in [0, 1] and around passed / n. None for n = 0.

    `n` may be an effective sample size, so both may be fractional.
    """
    if n <= 0:
        return None
    rate = passed / n
    middle = rate + Z * Z / (2 * n)
    half = Z * sqrt(rate * (1 - rate) / n + Z * Z / (4 * n * n))
    scale = 1 + Z * Z / n
    return max(0.0, min(rate, (middle - half) / scale)), min(1.0, max(rate, (middle + half) / scale))


def pass_rate_interval(groups: Sequence[tuple[int, int]]) -> Interval | None:
    """Return the 95 % Wilson interval of the overall pass rate; a group is one case's (passed, judged) repetitions.

    The sample size is the effective one (Kish 1965): runs divided by the design effect. It is at least the size for
    cases whose repetitions all agree, which is the number of cases if all have equally many repetitions.
    """
    groups = [group for group in groups if group[1]]
    passed, n = sum(group[0] for group in groups), sum(group[1] for group in groups)
    # One run a case, or a single case: nothing is clustered, and this is the plain interval
    if len(groups) in (0, 1, n):
        return wilson_interval(passed, n)
    rate, cases, fewest = passed / n, len(groups), n**2 / sum(m**2 for _, m in groups)
    clustered = cases / (cases - 1) * fsum((c - m * rate) ** 2 for c, m in groups) / n**2
    independent = rate * (1 - rate) / n
    effective = min(n, max(fewest, n * independent / clustered)) if clustered and independent else fewest
    return wilson_interval(rate * effective, effective)


def samples_of(groups: Sequence[Sequence[float]]) -> list[Sequence[float]]:
    """Return the groups with values. If only one has any, each of its values becomes a group."""
    known = [group for group in groups if group]
    if len(known) == 1:
        return [(value,) for value in known[0]]
    return known


def standard_error(groups: Sequence[Sequence[float]]) -> float | None:
    """Return the clustered standard error of the mean over all values; a group is one case's scores.

    None for fewer than two values, and if the cases do not differ: an error of 0 would be misleading.
    """
    groups = samples_of(groups)
    if len(groups) < 2:
        return None
    n, cases = sum(map(len, groups)), len(groups)
    middle = fsum(map(fsum, groups)) / n
    spread = fsum((fsum(group) - len(group) * middle) ** 2 for group in groups)
    error = sqrt(cases / (cases - 1) * spread) / n
    if error > _ROUNDING * max(abs(value) for group in groups for value in group):
        return error
    return None


def mean_interval(
    groups: Sequence[Sequence[float]], *, comparisons: int = 1, scale: Interval | None = None
) -> Interval | None:
    """Return the 95 % t interval of the mean over all values; a group is one case's scores.

    With `comparisons` intervals, all of them hold at once with 95 % (Bonferroni).

    Student's t with (number of cases - 1) degrees of freedom. With a `scale`, the interval is that of the mean's logit,
    transformed back (Korn & Graubard 1998, "Confidence Intervals for Proportions With Small Expected Number of Positive
    Counts", Survey Methodology 24, 193-201): it stays within the scale, and covers the mean as often if scores crowd at
    an end. None for fewer than two values, and if the cases do not differ: three perfect scores do not bound the next
    one.
    """
    groups = samples_of(groups)
    error = standard_error(groups)
    if error is None:
        return None
    middle = fsum(map(fsum, groups)) / sum(map(len, groups))
    half = t_quantile(len(groups) - 1, comparisons) * error
    if scale is None or not scale[0] < middle < scale[1]:
        return middle - half, middle + half
    below, above, width = middle - scale[0], scale[1] - middle, scale[1] - scale[0]
    half *= width / (below * above)  # the logit's slope
    return tuple(scale[0] + width * _expit(log(below / above) + end) for end in (-half, half))  # type: ignore[return-value]


def _expit(logit: float) -> float:
    if logit > 0:
        return 1 / (1 + exp(-logit))
    return (power := exp(logit)) / (1 + power)


def difference_interval(one: Sequence[float], other: Sequence[float], *, comparisons: int = 1) -> Interval | None:
    """Return the 95 % interval of the difference of two samples' means with unequal variances (Welch 1947).

    With `comparisons` intervals, all of them hold at once with 95 % (Bonferroni). None if a sample has fewer than two
    values or only equal ones.
    """
    if len(set(one)) < 2 or len(set(other)) < 2:
        return None
    errors = [(_variance(sample) / len(sample), len(sample) - 1) for sample in (one, other)]
    spread = fsum(error for error, _ in errors)
    if not spread:
        return None
    # Rounded down, as tables do: fewer degrees make a wider interval
    df = max(1, int(1 / fsum((error / spread) ** 2 / free for error, free in errors)))
    half, distance = t_quantile(df, comparisons) * sqrt(spread), mean_of(one) - mean_of(other)
    return distance - half, distance + half


def _variance(sample: Sequence[float]) -> float:
    middle = mean_of(sample)
    return fsum((value - middle) ** 2 for value in sample) / (len(sample) - 1)


FEWEST_JUDGED = 5
"""Minimum cases for the interval of a mean score and for its place in a chart."""
JUDGED_SCALE = (0.0, 10.0)
_ABSURD = 1e100
"""Bound above all costs, durations and scores, whose square can still be summed."""


def finite(value: float | None) -> float | None:
    """Return a plain float, None for NaN, infinities and huge values: JSON has no NaN, and execnet no numpy types."""
    if value is not None and isfinite(value) and abs(value) < _ABSURD:
        return float(value)
    return None


def pair(interval: Interval | None) -> list[float] | None:
    """Return an interval as JSON has it."""
    if interval is None:
        return None
    return list(interval)


def score_interval(groups: Sequence[Sequence[float]], scale: Interval | None = None) -> Interval | None:
    """Return the 95 % interval of a mean score on its scale, None below FEWEST_JUDGED cases; a group is one case's.

    Without a scale the scale is 0 to 1 if all scores are in it, like most metrics', else there is none.
    """
    if len(samples_of(groups)) < FEWEST_JUDGED:
        return None
    if scale is None and all(0 <= value <= 1 for group in groups for value in group):
        scale = (0.0, 1.0)
    return mean_interval(groups, scale=scale)


def mean(values: Collection[float]) -> float | None:
    """Return the arithmetic mean, or None for no values."""
    if values:
        return mean_of(values)
    return None


def nearest_rank(ordered: Sequence[float], percent: int) -> float:
    """Return the percentile of sorted values, at least one. It is one of the values: nothing is interpolated."""
    return ordered[-(-percent * len(ordered) // 100) - 1]


def mean_known(values: Iterable[float | None]) -> float | None:
    """Return the arithmetic mean of the values other than None, or None if there are none."""
    return mean([value for value in values if value is not None])


def mean_of(values: Collection[float]) -> float:
    """Return the arithmetic mean of at least one value. The sum is rounded once, so the order does not matter."""
    return fsum(values) / len(values)


def sd(values: Sequence[float]) -> float | None:
    """Return the sample standard deviation (n - 1), None for fewer than two values."""
    if len(values) < 2:
        return None
    middle = mean_of(values)
    return sqrt(fsum((value - middle) ** 2 for value in values) / (len(values) - 1))


def flakiness(n: int, passed: int) -> float | None:
    """Return the chance that two runs of a case differ in their verdict, unbiased, from `passed` of `n`.

    The share of pairs of runs that do (Simpson 1949, doi:10.1038/163688a0). None for fewer than two verdicts.
    """
    if n > 1:
        return passed * (n - passed) / comb(n, 2)
    return None


def pass_at_k(n: int, passed: int, k: int) -> float | None:
    """Return the chance that at least one of k runs passes, unbiased, from `passed` of `n`.

    Chen et al. 2021, arXiv:2107.03374. None unless 1 <= k <= n.
    """
    if 1 <= k <= n:
        return 1 - comb(n - passed, k) / comb(n, k)
    return None


def pass_hat_k(n: int, passed: int, k: int) -> float | None:
    """Return the chance that all of k runs pass, unbiased, from `passed` of `n`.

    Yao et al. 2024 (tau-bench), arXiv:2406.12045. None unless 1 <= k <= n.
    """
    if 1 <= k <= n:
        return comb(passed, k) / comb(n, k)
    return None


def by_k(n: int, passed: int) -> dict[str, dict[str, float] | None]:
    """Return `pass_at_k` and `pass_hat_k` for each k from 1 to `n` verdicts, None without any."""
    # From k to k + 1 by one ratio, where binomial coefficients would be computed anew for each
    none_pass, all_pass = [1.0], [1.0]
    for drawn in range(n):
        none_pass.append(none_pass[-1] * max(0, n - passed - drawn) / (n - drawn))
        all_pass.append(all_pass[-1] * max(0, passed - drawn) / (n - drawn))
    return {
        "pass_at_k": {str(k): 1 - none_pass[k] for k in range(1, n + 1)} or None,
        "pass_hat_k": {str(k): all_pass[k] for k in range(1, n + 1)} or None,
    }


def over_cases(cases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return `pass_at_k`, `pass_hat_k` and `flaky_cases` of a model, from its entries of report.json's `cases[]`.

    Means over the cases with a verdict, for each k that all of them reach; None without a verdict. `flaky_cases` counts
    cases that both passed and failed; None if no case has two verdicts.
    """
    judged = [case for case in cases if case["pass_at_k"]]
    common = min((len(case["pass_at_k"]) for case in judged), default=0)
    repeated = [case for case in judged if case["flakiness"] is not None]
    return {
        **{name: _means(judged, name, common) for name in ("pass_at_k", "pass_hat_k")},
        "flaky_cases": sum(case["flakiness"] > 0 for case in repeated) if repeated else None,
    }


def _means(cases: Sequence[Mapping[str, Any]], name: str, most: int) -> dict[str, float | None] | None:
    return {str(k): mean([case[name][str(k)] for case in cases]) for k in range(1, most + 1)} or None
