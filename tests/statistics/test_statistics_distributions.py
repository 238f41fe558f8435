"""Tails and quantiles, against scipy."""

from __future__ import annotations

import pytest
from scipy.stats import binom, binomtest, t

from pytest_agentbench.statistics.estimates import Z, solve, t_quantile, wilson_interval
from pytest_agentbench.statistics.paired import binomial_tail, coin_quantile, coin_tail
from pytest_agentbench.statistics.resampling import NORMAL

pytestmark = pytest.mark.filterwarnings("default")


@pytest.mark.parametrize("df", [1, 2, 3, 5, 29, 30, 31, 99, 100, 101, 150, 999, 9999])
def test_quantiles_of_students_t_are_scipys(df):
    assert t_quantile(df) == pytest.approx(t.isf(0.025, df), rel=1e-9)
    for comparisons in (2, 3, 10):
        assert t_quantile(df, comparisons) == pytest.approx(t.isf(0.025 / comparisons, df), rel=1e-9)


def test_wilson_intervals_are_scipys():
    for passed, n in [(0, 5), (1, 1), (7, 20), (19, 20), (431, 1000)]:
        expected = binomtest(passed, n).proportion_ci(method="wilson")
        assert wilson_interval(passed, n) == pytest.approx((expected.low, expected.high), rel=1e-9)


@pytest.mark.parametrize("n", [6, 7, 40, 1000, 10_000])
@pytest.mark.parametrize("p", [0.0, 1e-3, 0.3, 0.97, 1.0])
def test_tails_of_the_binomial_are_scipys(n, p):
    for least in (1, 2, 6):
        assert binomial_tail(least, n, p) == pytest.approx(binom.sf(least - 1, n, p), abs=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 31, 1074, 1075, 5000])
def test_tails_and_quantiles_of_coin_tosses_are_scipys(n):
    for most in {0, n // 3, n // 2, n - 1, n}:
        assert coin_tail(most, n) == pytest.approx(binom.cdf(most, n, 0.5), rel=1e-9, abs=1e-300)
    assert coin_quantile(0.5, n) == n // 2  # where scipy is one off for 1,075
    for share in (1e-9, 0.01, 0.25, 0.4999999, 0.5000001, 0.9, 0.999):
        assert coin_quantile(share, n) == binom.ppf(share, n, 0.5)
    assert coin_quantile(0.3, 0) == 0


def test_solve_is_exact_to_neighbouring_floats():
    assert solve(lambda x: x**2 - 2, 0.0, 2.0) == pytest.approx(2**0.5, rel=1e-15)
    assert solve(lambda x: x - 3, 0.0, 2.0) == pytest.approx(2)
    assert NORMAL.inv_cdf(0.975) == pytest.approx(Z, rel=1e-15)
