"""The tests of a comparison against reference implementations, published examples, and simulated campaigns."""

from __future__ import annotations

import random
from functools import cache
from math import sqrt

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binom, fisher_exact, nbinom, permutation_test
from statsmodels.stats.contingency_tables import mcnemar as reference_mcnemar
from statsmodels.stats.multitest import multipletests

from pytest_agentbench.statistics.paired import (
    ALPHA,
    FEWEST_CHANGED,
    SIGN_FLIP,
    SIGN_FLIP_DRAWN,
    SIGN_FLIP_LIMIT,
    cases_needed,
    difference_interval,
    fewest_changes,
    fisher,
    holm,
    mcnemar,
    rate_interval,
    sign_flip,
    single_run_interval,
    smallest_difference,
    smallest_rate_difference,
)

MAIZE = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]
"""Darwin's pairs of maize plants (Fisher 1935, The Design of Experiments, section 17)."""
differences_of = st.lists(st.floats(-1, 1, allow_subnormal=False).filter(lambda x: abs(x) > 1e-6), max_size=30)


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_that_of_statsmodels(worse, better):
    if worse + better:
        wanted = reference_mcnemar([[5, worse], [better, 7]], exact=True).pvalue
        assert mcnemar(worse, better) == pytest.approx(min(1.0, wanted))
    else:
        assert mcnemar(worse, better) == 1.0


def test_mcnemar_of_the_approval_ratings():
    assert mcnemar(86, 150) == pytest.approx(3.716e-05, rel=1e-3)  # Agresti 1990, p. 350; R, exact2x2::mcnemar.exact


def test_sign_flip_of_darwins_maize_is_fishers_own_figure():
    assert sign_flip(MAIZE) == (SIGN_FLIP, 2 * 863 / 2**15)


@pytest.mark.parametrize("scale", [1e-3, 1, 10])
def test_sign_flip_does_not_depend_on_the_unit(scale):
    assert sign_flip([value * scale for value in MAIZE])[1] == pytest.approx(2 * 863 / 2**15)


@given(st.integers(0, 8), st.integers(0, 8))
def test_sign_flip_of_single_runs_is_mcnemar(worse, better):
    _, p_value = sign_flip([-1.0] * worse + [1.0] * better + [0.0] * 3)
    assert p_value == pytest.approx(mcnemar(worse, better))


@settings(max_examples=40)
@given(differences_of)
def test_sign_flip_looks_alike_from_both_sides_and_past_unchanged_cases(differences):
    assert sign_flip([-value for value in differences]) == sign_flip(differences)
    assert sign_flip([*differences, 0.0, 0.0]) == sign_flip(differences)


@pytest.mark.slow
def test_drawn_patterns_and_the_normal_limit_agree_with_the_binomial():
    for worse, better, test in ((20, 10, SIGN_FLIP_DRAWN), (300, 250, SIGN_FLIP_DRAWN), (700, 610, SIGN_FLIP_LIMIT)):
        found = sign_flip([-1.0] * worse + [1.0] * better)
        assert found[0] == test
        assert found[1] == pytest.approx(mcnemar(worse, better), abs=0.012)


@pytest.mark.slow
@settings(max_examples=30)
@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_is_that_of_statsmodels(p_values):
    wanted = multipletests(p_values, method="holm")[1] if p_values else []
    assert holm(p_values) == pytest.approx(list(wanted))


def test_fisher_of_the_lady_tasting_tea():
    assert fisher((3, 1), (1, 3)) == pytest.approx(0.4857142857)  # R: fisher.test(TeaTasting)
    assert fisher((0, 0), (1, 3)) == 1.0


def test_six_changes_are_the_fewest_that_can_be_significant():
    assert [fewest_changes(alpha) for alpha in (0.05, 0.05 / 2, 0.05 / 3, 0.5)] == [6, 7, 7, 2]
    assert mcnemar(6, 0) <= ALPHA < mcnemar(5, 0)
    assert smallest_rate_difference([-1.0, 0.0, 0.0, 0.0, 0.0], ALPHA) is None
    assert smallest_difference([-1.0, 0.0, 0.0, 0.0, 0.0], ALPHA) is None
    assert fewest_changes(ALPHA) == FEWEST_CHANGED
    assert binom.sf(5, 100, smallest_rate_difference([0.0] * 100, ALPHA)) == pytest.approx(0.8)
    assert smallest_difference([0.0] * 100, ALPHA) is None
    assert smallest_rate_difference([1.0] * 8 + [-1.0] * 7, 1e-4) == 1.0


def test_millers_example_of_969_questions_that_show_three_points():
    half = 1 / 3 * sqrt(967 / 968)  # 968 differences whose variance is 1/9 (Miller 2024, section 5)
    assert smallest_difference([half, -half] * 484, ALPHA) == pytest.approx(0.03, rel=1e-3)
    assert cases_needed([0.03 + half, 0.03 - half] * 484, ALPHA) == pytest.approx(969, rel=0.01)


def test_cases_needed_are_more_than_there_are_and_none_without_a_difference():
    assert cases_needed([0.0] * 10, ALPHA) is None
    assert cases_needed([1.0, -1.0, 0.1, -0.1], ALPHA) is None
    assert cases_needed([-1.0], ALPHA) == 6
    assert cases_needed([-1.0] + [0.0] * 9, ALPHA) == 79
    assert cases_needed([-0.5] * 5, ALPHA) == 6


def test_simulated_campaigns_without_a_difference_are_called_different_in_at_most_5_percent():
    assert share_significant(campaigns=1000, cases=120, worse=0.1, better=0.1) <= 0.05


@pytest.mark.parametrize(("cases", "changing"), [(20, 0), (50, 0.04), (100, 0.1), (400, 0.2)])
def test_simulated_campaigns_show_the_smallest_difference_in_about_80_percent(cases, changing):
    """Beside cases that change to and fro as they did before, so many more become worse."""
    each = round(cases * changing / 2)
    typical = [-1.0] * each + [1.0] * each + [0.0] * (cases - 2 * each)
    smallest = smallest_rate_difference(typical, ALPHA)
    shown = share_significant(campaigns=1000, cases=cases, worse=changing / 2 + smallest, better=changing / 2)
    assert 0.73 < shown < 0.85


@pytest.mark.slow
def test_simulated_repetitions_show_the_smallest_difference_whichever_cases_it_falls_on():
    """Of 60 cases that pass two of three runs so many break for good."""
    drawn = numpy.random.default_rng(5)

    def sessions(broken):
        rates = numpy.where(drawn.random((400, 60)) < broken, 0.0, 2 / 3)
        return (drawn.binomial(3, rates) - drawn.binomial(3, 2 / 3, rates.shape)) / 3

    smallest = numpy.mean([smallest_rate_difference([*map(float, each)], ALPHA) for each in sessions(0)])
    shown = [sign_flip([*map(float, each)])[1] <= ALPHA for each in sessions(smallest / (2 / 3))]
    assert numpy.mean(shown) > 0.8


@pytest.mark.parametrize(
    ("worse", "better"), [(3, 0), (6, 0), (3, 1), (6, 2), (7, 3)], ids=lambda changed: str(changed)
)
def test_simulated_campaigns_of_as_many_cases_as_are_needed_show_the_difference_in_about_80_percent(worse, better):
    needed = cases_needed([-1.0] * worse + [1.0] * better + [0.0] * (20 - worse - better), ALPHA)
    assert 0.73 < share_significant(campaigns=1500, cases=needed, worse=worse / 20, better=better / 20) < 0.87


@pytest.mark.slow
def test_simulated_repetitions_of_as_many_cases_as_are_needed_show_the_difference_in_about_80_percent():
    typical = [-2 / 3, -1 / 3, -1 / 3, 1 / 3, *[0.0] * 6]
    needed, drawn = cases_needed(typical, ALPHA), random.Random(5)
    shown = sum(sign_flip(drawn.choices(typical, k=needed))[1] <= ALPHA for _ in range(300))
    assert 0.73 < shown / 300 < 0.87


rates_of = st.lists(st.sampled_from([-1.0, -2 / 3, -1 / 3, 0.0, 0.0, 0.0, 1 / 3, 2 / 3, 1.0]), min_size=1, max_size=40)


@pytest.mark.slow
@settings(max_examples=60)
@given(rates_of | st.lists(st.sampled_from([-1.0, 0.0]), min_size=1, max_size=40))
def test_the_interval_of_a_rate_has_0_just_where_the_test_sees_no_difference(differences):
    ends, (_, p_value) = rate_interval(differences), sign_flip(differences)
    if ends is None:
        assert len(set(differences)) == 1
    else:
        assert (ends[0] <= 0 <= ends[1]) == (p_value > ALPHA)
        assert -1 <= ends[0] <= sum(differences) / len(differences) <= ends[1] <= 1
        assert rate_interval([-value for value in differences]) == pytest.approx((-ends[1], -ends[0]))


@pytest.mark.slow
@pytest.mark.parametrize("cases", [6, 12, 40])
def test_intervals_of_simulated_scores_cover_the_difference_in_95_percent(cases):
    """Where BCa, which `bootstrap_ci95` is, does in 80 to 92 %: costs and times with a long tail on either side."""
    drawn = numpy.random.default_rng(2)
    sides = drawn.lognormal(size=(2, 400, cases))
    found = [difference_interval([*map(float, row)]) for row in sides[1] - sides[0]]
    assert numpy.mean([low <= 0 <= high for low, high in found]) >= 0.925


@pytest.mark.slow
@pytest.mark.parametrize("changed", [6, 16, 17, 51, 53, 100, 999, 1500])
def test_the_interval_of_single_runs_has_0_just_where_mcnemar_sees_no_difference(changed):
    """Also where draws and the normal limit miss the exact p by a little: 34 gains of 53 changes, p = 0.053."""
    edge = binom.ppf(ALPHA / 2, changed, 0.5)
    for worse in {max(0, int(edge) + step) for step in (-2, -1, 0, 1)}:
        for unchanged in (1, 20):
            differences = [-1.0] * worse + [1.0] * (changed - worse) + [0.0] * unchanged
            p_value = mcnemar(worse, changed - worse)
            low, high = single_run_interval(differences, p_value)
            assert (low <= 0 <= high) == (p_value > ALPHA)
            assert low < sum(differences) / len(differences) < high


def test_three_changed_cases_of_seventeen_do_not_exclude_0():
    for change in (1.0, 1 / 3):
        low, high = rate_interval([change] * 3 + [0.0] * 14)
        assert low < 0 < 3 * change / 17 < high


@pytest.mark.parametrize(
    ("better", "cases"),
    [(0, 1), (0, 12), (1, 12), (3, 17), (5, 100), pytest.param(2, 10_000, marks=pytest.mark.slow)],
)
def test_the_interval_of_few_gains_ends_where_the_exact_binomial_does(better, cases):
    _, high = rate_interval([1.0] * better + [0.0] * (cases - better))
    assert high == pytest.approx(beta.ppf(0.975, better + 1, cases - better), rel=1e-9)  # Clopper and Pearson 1934


@pytest.mark.parametrize("changed", [[], [1 / 3], [-1.0, 0.5, 0.5], [2 / 3, -1 / 3, 1.0, 1.0, 0.1]])
def test_the_interval_of_few_changed_cases_is_gaffkes(changed):
    """Of means under weights drawn 400,000 times."""
    weights = numpy.random.default_rng(3).dirichlet([1.0] * (len(changed) + 1) + [8.0], 400_000)
    ends = [weights[:, 1:-1] @ numpy.array(changed) + most * weights[:, 0] for most in (-1.0, 1.0)]
    wanted = numpy.quantile(ends[0], 0.025), numpy.quantile(ends[1], 0.975)
    assert rate_interval([*changed, *[0.0] * 8]) == pytest.approx(wanted, abs=0.003)


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 12), st.integers(0, 12))
def test_fisher_is_that_of_scipy(a, b, c, d):
    assert fisher((a, b), (c, d)) == pytest.approx(fisher_exact([[a, b], [c, d]]).pvalue, rel=1e-9)


@pytest.mark.parametrize(("changed", "cases"), [(1, 10), (6, 20), (20, 20), (3, 1000)])
def test_as_many_cases_are_needed_as_change_in_enough(changed, cases):
    needed = cases_needed([-1.0] * changed + [0.0] * (cases - changed), ALPHA)
    by_test = 6 + nbinom.ppf(0.8, 6, changed / cases)
    assert max(cases + 1, by_test) <= needed <= max(cases + 1, by_test * 1.02)  # the power of the limit asks for more


def test_the_interval_of_many_changed_cases_is_the_normal_one():
    differences = [-1.0] * 700 + [1.0] * 610 + [0.0] * 690
    low, high = rate_interval(differences)
    error = numpy.std(differences) / sqrt(2000)
    assert (low, high) == pytest.approx((-0.045 - 1.96 * error, -0.045 + 1.96 * error), abs=1e-4)


@settings(max_examples=30)
@given(differences_of.filter(lambda differences: 2 <= len(differences) <= 12))
def test_sign_flip_is_that_of_scipy(differences):
    wanted = permutation_test((numpy.array(differences),), numpy.mean, permutation_type="samples", n_resamples=2**12)
    assert sign_flip(differences)[1] == pytest.approx(min(1.0, wanted.pvalue))


@pytest.mark.slow
@pytest.mark.parametrize("cases", [20, 100])
@pytest.mark.parametrize("changing", [0.05, 0.2])
@pytest.mark.parametrize("runs", [1, 3])
def test_intervals_of_simulated_campaigns_cover_the_difference_in_95_percent(cases, changing, runs):
    """Where resampling covers it in as little as half of them: worse cases three times as likely as better ones."""
    drawn, covered = random.Random(11), 0
    sizes = [(n + 1) / runs for n in range(runs)]
    wanted = -changing / 2 * sum(sizes) / runs
    for _ in range(200):
        changes = [drawn.random() for _ in range(cases)]
        ends = rate_interval(
            [0.0 if x > changing else drawn.choice(sizes) * (-1 if x < 0.75 * changing else 1) for x in changes]
        )
        covered += ends[0] <= wanted <= ends[1]
    assert covered / 200 >= 0.925


def share_significant(campaigns, cases, worse, better):
    """How many of simulated pairs of campaigns are called different: each case becomes worse or better by chance."""
    drawn, significant, p_value = random.Random(7), 0, cache(mcnemar)
    for _ in range(campaigns):
        changes = [drawn.random() for _ in range(cases)]
        lost, won = sum(x < worse for x in changes), sum(worse <= x < worse + better for x in changes)
        significant += p_value(lost, won) <= ALPHA
    return significant / campaigns


@pytest.mark.parametrize("scale", [2.0**-50, 2.0**50])
def test_an_interval_has_the_scale_of_its_differences(scale):
    # A bound for rounding that did not grow with the differences would call small ones 0 and large ones more than that
    differences = [0.1, -0.3, 0.2, 0.7, 0.6, -0.1, 0.9, 0.0]
    low, high = difference_interval(differences)
    assert difference_interval([each * scale for each in differences]) == (low * scale, high * scale)
