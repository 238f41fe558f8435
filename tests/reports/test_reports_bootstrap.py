"""Bootstrap intervals, against every resample of a few cases, and what they cost."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from statistics import NormalDist, fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_agentbench.statistics.estimates import (
    FEWEST_JUDGED,
    MOST_CORRECTED,
    bootstrap_interval,
    mean_interval,
    standard_error,
)

pytestmark = pytest.mark.slow
NORMAL = NormalDist()


def exact_bca(groups):
    """BCa by its definition (Efron 1987, sections 3 and 6) over all n^n resamples."""

    def over(drawn):
        return sum(sum(group) for group in drawn) / sum(len(group) for group in drawn)

    means = sorted(over(drawn) for drawn in product(groups, repeat=len(groups)))
    observed = over(groups)
    ties = sum(mean < observed for mean in means) + sum(mean <= observed for mean in means)
    z0 = NORMAL.inv_cdf(ties / 2 / len(means))
    left_out = [over(groups[:n] + groups[n + 1 :]) for n in range(len(groups))]
    away = [fmean(left_out) - value for value in left_out]
    skew = sum(each**3 for each in away) / (6 * sum(each**2 for each in away) ** 1.5)
    ends = []
    for share in (0.025, 0.975):
        z = z0 + NORMAL.inv_cdf(share)
        ends.append(means[round(NORMAL.cdf(z0 + z / (1 - skew * z)) * (len(means) - 1))])
    return ends


@pytest.mark.parametrize(
    "groups",
    [
        [[1.0], [2.0], [4.0], [8.0], [9.5], [3.0]],
        [[0.0, 1.0], [5.0], [9.0, 9.0, 8.0], [2.0, 4.0], [7.0], [10.0, 9.0]],
    ],
)
def test_the_interval_is_bca_over_whole_cases(groups):
    low, high = exact_bca(groups)
    near = 0.1 * (high - low)
    assert bootstrap_interval(groups) == pytest.approx((low, high), abs=near)


def test_repetitions_of_a_case_are_drawn_together():
    once = [[float(n % 7)] for n in range(40)]
    thrice = [group * 3 for group in once]
    assert bootstrap_interval(thrice) == pytest.approx(bootstrap_interval(once))


@pytest.mark.parametrize("cases", [100, MOST_CORRECTED, MOST_CORRECTED + 500])
def test_many_cases_give_nearly_students_interval(cases):
    groups = [[float(n * 37 % 101), float(n * 53 % 101)] for n in range(cases)]
    low, high = bootstrap_interval(groups)
    expected = mean_interval(groups)
    assert (low, high) == pytest.approx(expected, abs=0.2 * standard_error(groups))


@given(st.lists(st.lists(st.floats(0, 10), min_size=1, max_size=3), max_size=8))
@settings(max_examples=50)
def test_an_interval_is_the_same_each_time_and_lies_among_the_cases(groups):
    found = bootstrap_interval(groups)
    assert found == bootstrap_interval(groups)
    if found is not None:
        low, high = found
        means = [fmean(group) for group in groups] if len(groups) > 1 else groups[0]
        assert min(means) - 1e-9 <= low < high <= max(means) + 1e-9


@pytest.mark.parametrize("few", [[], [[]], [[1.0], [2.0], [3.0], [4.0]], [[3.0]] * 9, [*[[0.1]] * 4, [0.1 + 1e-17]]])
def test_few_cases_and_equal_ones_have_no_interval(few):
    assert bootstrap_interval(few) is None


def test_the_repetitions_of_a_single_case_are_the_sample():
    assert bootstrap_interval([[1.0, 2.0, 4.0, 8.0, 9.0]]) == bootstrap_interval([[1.0], [2.0], [4.0], [8.0], [9.0]])
    assert bootstrap_interval([[1.0] * FEWEST_JUDGED]) is None


def test_scores_of_few_cases_do_not_cost_the_import_of_scipy():
    code = (
        "import sys; from pytest_agentbench.reports import build_report, write_summary\n"
        "from pytest_agentbench.statistics.estimates import bootstrap_interval\n"
        "build_report([], {}); assert bootstrap_interval([[1.0], [2.0], [3.0], [4.0]]) is None\n"
        "print([name for name in ('scipy', 'numpy') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
