"""Statistics of samples so small that their figures can be worked out by hand, or that one sum tells exactly."""

from __future__ import annotations

from math import comb, sqrt
from statistics import fmean

import numpy
import pytest
from scipy.stats import beta, nbinom, norm
from scipy.stats import t as student
from statsmodels.stats.multitest import multipletests

from pytest_agentbench.statistics.agreement import (
    Table,
    Verdicts,
    cv_percent,
    kappa_interval,
    krippendorff_alpha,
    pairwise_agreement,
    rank_correlation,
    weighted_kappa,
    within_sd,
)
from pytest_agentbench.statistics.estimates import (
    by_k,
    finite,
    flakiness,
    mean_interval,
    over_cases,
    pass_rate_interval,
    score_interval,
    standard_error,
    t_quantile,
    wilson_interval,
)
from pytest_agentbench.statistics.estimates import difference_interval as welch_interval
from pytest_agentbench.statistics.paired import (
    SIGN_FLIP,
    SIGN_FLIP_DRAWN,
    SIGN_FLIP_LIMIT,
    cases_needed,
    difference_interval,
    fisher,
    holm,
    mcnemar,
    mean_difference,
    rate_interval,
    sign_flip,
    single_run_interval,
    smallest_difference,
    smallest_rate_difference,
)

Z = 1.959963984540054
POWER_Z = 0.8416212335729143
"""The normal quantile at 80 %."""

# -- rates and means ---------------------------------------------------------------


def test_wilson_of_one_of_four():
    """rate 0.25, z^2 = 3.8415: (0.25 + 0.48018 -+ 1.96 sqrt(0.046875 + 0.060023)) / 1.96036."""
    assert wilson_interval(1, 4) == pytest.approx((0.0455873, 0.6993582), abs=1e-6)
    assert wilson_interval(3, 4) == pytest.approx((1 - 0.6993582, 1 - 0.0455873), abs=1e-6)
    assert wilson_interval(4, 4) == pytest.approx((4 / (4 + Z**2), 1))
    assert wilson_interval(0.5, 1) == pytest.approx((0.0546208, 0.9453792), abs=1e-6)


def test_runs_of_a_case_count_for_what_they_differ():
    """Two of 2, twice 1 of 2, none of 2: variance 4/3 * 2 / 64 = 1/24, of 8 runs alone 1/32: worth 6."""
    assert pass_rate_interval([(2, 2), (1, 2), (1, 2), (0, 2)]) == pytest.approx(wilson_interval(3, 6))
    # 2, 1, 0 of 2: 3/2 * 2 / 36 = 1/12 against 1/24, worth 3
    assert pass_rate_interval([(2, 2), (1, 2), (0, 2)]) == pytest.approx(wilson_interval(1.5, 3))
    # each case passes half: nothing varies between cases, so only the number of cases is sure
    assert pass_rate_interval([(1, 2), (1, 2), (1, 2)]) == pytest.approx(wilson_interval(1.5, 3))
    assert pass_rate_interval([(2, 2), (2, 2)]) == pytest.approx(wilson_interval(2, 2))
    assert pass_rate_interval([(1, 1), (0, 1)]) == pytest.approx(wilson_interval(1, 2))


def test_the_standard_error_counts_cases_and_not_runs():
    """Sums 2 and 6 of 2 runs each about a mean of 2: sqrt(2/1 * (4 + 4)) / 4 = 1."""
    assert standard_error([[1.0, 1.0], [3.0, 3.0]]) == pytest.approx(1)
    assert standard_error([[1.0], [2.0], [6.0]]) == pytest.approx(sqrt(7 / 3))
    # runs of unequal number: mean 2, sums less their runs' share -2 and 2
    assert standard_error([[0.0], [2.0, 2.0, 4.0]]) == pytest.approx(sqrt(2 * 8) / 4)
    assert standard_error([[1.0, 3.0]]) == pytest.approx(1)
    assert standard_error([[1.0], [1.0 + 1e-9]]) == pytest.approx(5e-10, rel=1e-6)
    assert standard_error([[1.0], [1.0 + 1e-15]]) is None
    assert standard_error([[-1e-9], [1e-9]]) == pytest.approx(1e-9)
    assert standard_error([[0.0], [0.0]]) is None


@pytest.mark.parametrize("df", [*range(1, 13), 29, 30, 31, 32, 40, 100, 1000])
@pytest.mark.parametrize("comparisons", [1, 3])
def test_students_quantile_is_that_of_scipy(df, comparisons):
    expected = student.isf(0.025 / comparisons, df)
    assert t_quantile(df, comparisons) == pytest.approx(expected, rel=1e-9 if df <= 30 else 3e-7)


def test_quantiles_of_many_degrees_are_exact():
    for df in (31, 62, 100):
        assert t_quantile(df) == pytest.approx(student.isf(0.025, df), abs=1e-9)
        assert t_quantile(df, 40) == pytest.approx(student.isf(0.025 / 40, df), abs=1e-9)


def test_a_mean_on_a_scale_whose_end_it_is_at_has_the_plain_interval():
    values = [[0.0], [0.0], [0.0], [0.0], [1.0]]
    low, high = mean_interval(values, scale=(0.0, 1.0))
    assert 0 < low < 0.2 < high < 1
    assert mean_interval(values, scale=(0.2, 1.0)) == mean_interval(values)
    assert mean_interval(values, comparisons=2)[1] - 0.2 == pytest.approx(student.isf(0.0125, 4) * 0.2)
    assert score_interval([[-0.1], [0.2], [0.3], [0.4], [0.5]])[0] < 0.05  # no scale from 0 to 1 has -0.1
    assert score_interval([[0.1], [0.2], [0.3], [0.4], [1.1]])[1] == pytest.approx(
        mean_interval([[0.1], [0.2], [0.3], [0.4], [1.1]])[1]
    )


def test_welch_of_two_pairs():
    """Variances 2 and 8 over 2: spread 5, df = 25 / (1 + 16) = 1.47, so 1 degree, t = 12.706."""
    half = 12.706204736 * sqrt(5)
    assert welch_interval([0.0, 2.0], [3.0, 7.0]) == pytest.approx((-4 - half, -4 + half))
    assert welch_interval([0.0, 2.0], [1.0, 1.0]) is None
    assert welch_interval([0.0, 1.0], [0.0, 1.0, 1.0]) is not None


@pytest.mark.parametrize(("value", "kept"), [(None, None), (float("nan"), None), (1e100, None), (-1e99, -1e99)])
def test_only_finite_numbers_are_summed(value, kept):
    assert finite(value) == kept
    assert finite(float("inf")) is finite(-1e101) is None


# -- repeated runs -------------------------------------------------------------------


def test_flakiness_is_the_share_of_pairs_that_differ():
    assert flakiness(4, 1) == 3 / 6
    assert flakiness(4, 2) == 4 / 6
    assert (flakiness(2, 1), flakiness(2, 2), flakiness(3, 0)) == (1, 0, 0)
    assert flakiness(1, 1) is flakiness(0, 0) is None


def test_draws_of_k_runs_from_four_of_which_two_pass():
    assert by_k(4, 2) == {
        "pass_at_k": pytest.approx({"1": 1 / 2, "2": 5 / 6, "3": 1, "4": 1}),
        "pass_hat_k": pytest.approx({"1": 1 / 2, "2": 1 / 6, "3": 0, "4": 0}),
    }
    assert by_k(0, 0) == {"pass_at_k": None, "pass_hat_k": None}


def test_cases_of_a_model_reach_as_far_as_the_one_with_fewest_runs():
    def case(n, passed):
        return {**by_k(n, passed), "flakiness": flakiness(n, passed)}

    found = over_cases([case(3, 1), case(2, 2), case(0, 0)])
    assert found["pass_at_k"] == pytest.approx({"1": (1 / 3 + 1) / 2, "2": (2 / 3 + 1) / 2})
    assert found["pass_hat_k"] == pytest.approx({"1": (1 / 3 + 1) / 2, "2": (0 + 1) / 2})
    assert found["flaky_cases"] == 1
    assert over_cases([case(1, 1)])["flaky_cases"] is None
    assert over_cases([case(2, 2), case(2, 0)])["flaky_cases"] == 0
    assert over_cases([]) == {"pass_at_k": None, "pass_hat_k": None, "flaky_cases": None}


# -- paired differences ----------------------------------------------------------------


def test_mcnemar_counts_the_cases_that_changed():
    """2 (C(6,0) + C(6,1)) / 2^6 for one against five."""
    assert mcnemar(1, 5) == mcnemar(5, 1) == pytest.approx(2 * (1 + 6) / 64)
    assert (mcnemar(6, 0), mcnemar(3, 3), mcnemar(0, 0), mcnemar(1, 0)) == pytest.approx((2 / 64, 1, 1, 1))


def test_sign_flip_counts_subsets():
    """Of {1, 2} the sums are 0, 1, 2, 3: one of four is not above 0."""
    assert sign_flip([1.0, 2.0]) == (SIGN_FLIP, 2 * 1 / 4)
    assert sign_flip([1.0, 2.0, -0.5]) == (SIGN_FLIP, 2 * 2 / 8)  # 0, -0.5
    assert sign_flip([-1.0, -2.0, 0.5]) == (SIGN_FLIP, 2 * 2 / 8)
    assert sign_flip([1.0] * 6) == (SIGN_FLIP, 2 / 64)
    assert sign_flip([1.0, -1.0]) == sign_flip([3.0]) == sign_flip([]) == (SIGN_FLIP, 1.0)
    assert sign_flip([0.1, 0.2, -0.3]) == (SIGN_FLIP, 1.0)  # their sum is 0, whatever rounding makes of it
    assert sign_flip([1.0] * 16) == (SIGN_FLIP, 2 / 2**16)


@pytest.mark.slow
def test_a_p_value_of_draws_is_never_0():
    """Where no drawn subset lies beyond, the sample itself does: (0 + 1) / (9999 + 1), on two sides."""
    assert sign_flip([1.0] * 17) == (SIGN_FLIP_DRAWN, 0.0002)
    assert sign_flip([-0.5] * 40) == (SIGN_FLIP_DRAWN, 0.0002)
    assert sign_flip([1.0, -1.0] * 10) == (SIGN_FLIP_DRAWN, 1.0)
    test, p_value = sign_flip([-1.0] * 20 + [1.0] * 10)
    assert (test, p_value) == (SIGN_FLIP_DRAWN, pytest.approx(mcnemar(20, 10), abs=0.012))


@pytest.mark.slow
def test_a_thousand_changes_are_drawn_and_more_go_by_the_normal_limit():
    """60 more of 1100 in one direction: z = 60 / sqrt(1100)."""
    assert sign_flip([1.0] * 530 + [-1.0] * 470)[0] == SIGN_FLIP_DRAWN
    assert sign_flip([1.0] * 530 + [-1.0] * 471)[0] == SIGN_FLIP_LIMIT
    test, p_value = sign_flip([1.0] * 580 + [-1.0] * 520 + [0.0] * 300)
    assert (test, p_value) == (SIGN_FLIP_LIMIT, pytest.approx(2 * norm.sf(60 / sqrt(1100))))


def test_the_interval_of_differences_is_of_means_of_subsets():
    """Of 64 subsets of six the outermost at either end is beyond 2.5 %: the means of one case."""
    assert difference_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == (1, 6)
    # of 256 of eight the seventh: after none, {1}, {1,2}, {2}, {1,3}, {1,2,3} comes {1,2,4}
    found = difference_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    assert found == pytest.approx((7 / 3, 9 - 7 / 3))
    assert difference_interval([1.0, 2.0, 3.0, 4.0, 5.0]) is None
    assert difference_interval([2.0] * 7) is None


def test_unchanged_cases_are_in_subsets_too():
    """All 2^12 subsets of six changed cases and six unchanged ones, counted out."""
    differences = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, *[0.0] * 6]
    subsets = [[value for at, value in enumerate(differences) if mask >> at & 1] for mask in range(1, 2**12)]
    means = sorted(fmean(subset) for subset in subsets)
    assert difference_interval(differences) == pytest.approx((means[101], means[-102]), abs=0.1)


def test_the_interval_of_drawn_subsets_is_near_that_of_all():
    """Seventeen changed cases are drawn, sixteen are not: the ends move by little."""
    sixteen = difference_interval([float(n) for n in range(1, 17)])
    seventeen = difference_interval([*(float(n) for n in range(1, 17)), 8.5])
    assert seventeen == pytest.approx(sixteen, abs=0.35)
    assert seventeen[0] + seventeen[1] == pytest.approx(17, abs=0.3)
    assert sixteen == pytest.approx((17 - sixteen[1], sixteen[1]))


def test_the_interval_of_very_many_changes_inverts_the_normal_limit():
    """(mean - d)^2 cases = z^2 (variance + (mean - d)^2), solved for d."""
    values = [1.0] * 600 + [-1.0] * 500 + [0.0] * 100
    middle, variance = 100 / 1200, 1100 / 1200 - (100 / 1200) ** 2
    half = Z * sqrt(variance / (1200 - Z**2))
    assert difference_interval(values) == pytest.approx((middle - half, middle + half))


def test_few_changed_cases_are_bounded_by_what_a_case_can_change_by():
    """Nobody of ten changed: 1 - 0.025^(1/10) (the rule of three, exact)."""
    low, high = rate_interval([0.0] * 10)
    assert (low, high) == pytest.approx((-(1 - 0.025**0.1), 1 - 0.025**0.1), abs=0.004)
    low, high = rate_interval([1.0] * 2 + [0.0] * 8)
    assert high == pytest.approx(beta.ppf(0.975, 3, 8), abs=0.004)
    assert -(1 - 0.025**0.1) < low < 0  # two that gained leave less room for losses
    assert rate_interval([]) is None
    assert rate_interval([1.0, 1.0])[1] == 1
    assert rate_interval([-1.0, -1.0])[0] == -1


def test_the_interval_of_single_runs_agrees_with_the_p_value():
    gains = [1.0] * 6 + [0.0] * 14
    low, high = single_run_interval(gains, 0.03125)
    assert 0 < low < 0.3 < high
    assert single_run_interval(gains, 0.06) == (0, pytest.approx(high))
    assert single_run_interval([-each for each in gains], 0.06) == (pytest.approx(-high), 0)
    # 24 of 35 changes are gains: no draw may take the end past what a case counts
    close = [1.0] * 24 + [-1.0] * 11
    assert mcnemar(11, 24) == pytest.approx(0.041, abs=0.001)
    assert single_run_interval(close, 0.041)[0] >= 1 / 35
    assert single_run_interval([-each for each in close], 0.041)[1] <= -1 / 35
    assert single_run_interval([], 1.0) is None


def test_holm_multiplies_the_smallest_by_all_and_never_falls():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.4]) == pytest.approx([0.8, 0.8])
    assert holm([0.9, 0.6]) == [1, 1]
    assert holm([]) == []
    values = [0.2, 0.001, 0.013, 0.8, 0.02]
    assert holm(values) == pytest.approx(list(multipletests(values, method="holm")[1]))


def test_fisher_of_four_and_four():
    """All of one side, none of the other: 2 of C(8, 4) tables."""
    assert fisher((4, 0), (0, 4)) == pytest.approx(2 / comb(8, 4))
    assert fisher((2, 2), (2, 2)) == 1


def test_differences_that_cancel_out_have_a_mean_of_0():
    assert mean_difference([0.1, 0.2, -0.3]) == 0
    assert mean_difference([1.0, 2.0]) == 1.5
    assert mean_difference([1e-6, -1e-6, 3e-6]) == pytest.approx(1e-6)
    assert mean_difference([0.0, 0.0]) == 0


def test_the_smallest_difference_of_a_known_spread():
    """Ten differences of sd 1: (1.96 + 0.84) / sqrt(10)."""
    differences = [sqrt(0.9), -sqrt(0.9)] * 5
    assert smallest_difference(differences, 0.05) == pytest.approx((Z + POWER_Z) / sqrt(10))
    assert smallest_difference(differences, 0.01) == pytest.approx((2.5758293 + POWER_Z) / sqrt(10))
    assert smallest_difference(differences[:6], 0.05) is not None
    assert smallest_difference(differences[:5], 0.05) is None


@pytest.mark.parametrize("alpha", [0.05, 0.01])
@pytest.mark.parametrize("cases", [50, 400])
def test_the_smallest_detectable_difference_of_rates_has_its_stated_power(cases, alpha):
    """Where d = (z sqrt(v) + 0.84 sqrt(v - d^2)) / sqrt(n) for v = the variance now and d more (Connor 1987)."""
    differences = [1.0] * (cases // 10) + [-1.0] * (cases // 10) + [0.0] * (cases - 2 * (cases // 10))
    found = smallest_rate_difference(differences, alpha)
    square = float(numpy.var(differences, ddof=1)) + found
    needed = norm.isf(alpha / 2) * sqrt(square) + POWER_Z * sqrt(square - found**2)
    assert sqrt(cases) * found == pytest.approx(needed)


def test_the_smallest_difference_of_rates_is_what_the_exact_test_can_see():
    """Six of ten must change: as many do in 80 % of campaigns where 0.75 of all cases change."""
    found = smallest_rate_difference([0.0] * 10, 0.05)
    assert found == pytest.approx(float(beta.ppf(0.8, 6, 5)))
    assert sum(comb(10, k) * found**k * (1 - found) ** (10 - k) for k in range(6, 11)) == pytest.approx(0.8)
    assert smallest_rate_difference([0.0] * 5, 0.05) is None
    assert smallest_rate_difference([0.0] * 6, 0.05) == pytest.approx(0.8 ** (1 / 6))


def test_cases_needed_are_one_more_at_least():
    """All of twenty gained: six would do, and what nobody needs more of is still not shown by these."""
    assert cases_needed([1.0] * 20, 0.05) == 21
    assert cases_needed([1.0] * 5, 0.05) == 6
    # sd 1 about 0.1: (1.96 sqrt(1.01 * 0.99...) + 0.84)^2 * 100
    differences = [0.1 + sqrt(0.99), 0.1 - sqrt(0.99)] * 50
    square = 0.99 + 0.01
    variance = 0.99 * 100 / 99
    wanted = ((Z * sqrt(square) + POWER_Z * sqrt(variance)) / 0.1) ** 2
    assert wanted <= cases_needed(differences, 0.05) < wanted + 1
    # three of thirty changed, all for the better: by the exact test six of a tenth of the cases
    few = [1.0] * 3 + [0.0] * 27
    assert cases_needed(few, 0.05) >= 6 + nbinom.ppf(0.8, 6, 0.1)


# -- agreement --------------------------------------------------------------------------


def test_alpha_of_two_units():
    """Squares within: 2 * 0.5 each; about the mean of 2.5 of 1, 2, 3, 4: 4/3 * 5. 1 - 2 / (20/3)."""
    assert krippendorff_alpha([[1, 2], [3, 4]]) == pytest.approx(1 - 2 / (20 / 3))
    assert krippendorff_alpha([[1, 2], [3, 4], [9]]) == pytest.approx(1 - 2 / (20 / 3))
    assert krippendorff_alpha([[1, 1, 1], [0, 0]]) == 1
    assert krippendorff_alpha([[1, 0], [1, 0]]) == pytest.approx(1 - 2 / (4 / 3))
    assert krippendorff_alpha([[1, 2, 3], [3, 3]]) == pytest.approx(1 - 3 / (5 / 4 * 3.2))
    assert krippendorff_alpha([[5, 5], [5]]) is krippendorff_alpha([[1], [2]]) is None


def test_the_spread_of_votes():
    """Squares 2 and 0.5 over 2 + 1 degrees of freedom."""
    assert within_sd([[1, 2, 3], [4, 5], [9]]) == pytest.approx(sqrt(2.5 / 3))
    assert within_sd([[1], []]) is None
    # population: sd sqrt(2/3) of 2, and 0.5 of 4.5
    assert cv_percent([[1, 2, 3], [4, 5], [9]]) == pytest.approx((100 * sqrt(2 / 3) / 2 + 100 * 0.5 / 4.5) / 2)
    assert cv_percent([[1, -1], [3]]) is None


def test_pairs_of_votes_that_come_to_the_same():
    """Of three votes one pair of three agrees, of two the only one does."""
    assert pairwise_agreement([[4, 6, 7], [1, 2], [9]], lambda vote: vote >= 5) == pytest.approx((1 / 3 + 1) / 2)
    assert pairwise_agreement([[4], []], bool) is None


def test_kappa_by_hand():
    """15 of 20 alike, half each by base rates 0.55 and 0.6: chance 0.51."""
    table = Table(both_passed=9, both_failed=6, only_people_passed=2, only_judge_passed=3)
    assert (table.n, table.agreed, table.people_passed, table.judge_passed) == (20, 15, 11, 12)
    assert table.by_chance == pytest.approx(0.55 * 0.6 + 0.45 * 0.4)
    assert table.kappa == pytest.approx((0.75 - 0.51) / 0.49)
    assert table.pabak == pytest.approx(0.5)
    assert table.prevalence_index == pytest.approx(3 / 20)
    assert abs(table.bias_index) == pytest.approx(1 / 20)


def test_kappa_of_two_cases_that_differ_has_an_interval():
    agree, differ = Verdicts(True, True), Verdicts(False, True)
    assert kappa_interval([[agree, Verdicts(False, False)], [differ, agree]]) is not None
    assert kappa_interval([[agree, differ, Verdicts(False, False)]]) is None


def test_weighted_kappa_of_three_pairs():
    """Squares of differences 0, 1, 1: 2/3; variances 2/3 and 2/9, means 2 and 4/3 off by 2/3: 12/9."""
    assert weighted_kappa([1, 2, 3], [1, 1, 2]) == pytest.approx(1 - (2 / 3) / (2 / 3 + 2 / 9 + 4 / 9))
    assert weighted_kappa([1, 2], [2, 1]) == pytest.approx(-1)
    assert weighted_kappa([1], [1]) is weighted_kappa([2, 2], [2, 2]) is None


def test_ranks_that_swap_two_of_three_correlate_by_a_half():
    assert rank_correlation([1, 2, 3], [10, 30, 20]) == pytest.approx(0.5)
    assert rank_correlation([1, 2], [1, 2]) is rank_correlation([1, 1, 1], [1, 2, 3]) is None
    assert rank_correlation([1, 2, 3], [2, 2, 2]) is None
    assert rank_correlation([1, 1, 2], [1, 2, 2]) == pytest.approx(0.5)
