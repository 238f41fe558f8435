from __future__ import annotations

from itertools import combinations
from math import exp, lgamma, log, pi, sqrt
from random import Random
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.statistics.estimates import (
    FEWEST_JUDGED,
    JUDGED_SCALE,
    difference_interval,
    mean,
    mean_interval,
    pass_at_k,
    pass_hat_k,
    pass_rate_interval,
    score_interval,
    sd,
    t_quantile,
    wilson_interval,
)

samples = st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(samples)
def test_the_wilson_interval_is_in_0_to_1_and_contains_the_rate(sample):
    passed, n = sample
    low, high = wilson_interval(passed, n)
    assert 0 <= low <= passed / n <= high <= 1
    assert low < high


def test_wilson_gives_the_published_figures():
    # Brown, Cai, DasGupta 2001; and the extremes, z^2 / (n + z^2).
    assert wilson_interval(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson_interval(0, 20) == pytest.approx((0, 0.1611), abs=1e-4)
    assert wilson_interval(0, 0) is None


@given(st.lists(st.booleans(), min_size=1, max_size=200))
def test_one_run_per_case_gives_the_plain_wilson_interval(outcomes):
    assert pass_rate_interval([(int(ok), 1) for ok in outcomes]) == wilson_interval(sum(outcomes), len(outcomes))


@pytest.mark.slow
@given(st.lists(st.integers(1, 5).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), min_size=1))
def test_repetitions_never_count_for_more_than_runs_or_less_than_where_they_always_agree(groups):
    passed, n = sum(c for c, _ in groups), sum(m for _, m in groups)
    low, high = pass_rate_interval(groups)
    alike = n**2 / sum(m**2 for _, m in groups)
    runs, cases = wilson_interval(passed, n), wilson_interval(passed / n * alike, alike)
    assert low <= passed / n <= high
    assert low <= runs[0] + 1e-12
    assert high >= runs[1] - 1e-12
    assert len(groups) == 1 or (low >= cases[0] - 1e-12 and high <= cases[1] + 1e-12)


@pytest.mark.slow
def test_the_effective_number_of_unequally_repeated_runs_is_that_of_statsmodels():
    from statsmodels.api import OLS
    from statsmodels.stats.proportion import proportion_confint

    groups = [(3, 3), (1, 4), (0, 2), (5, 5), (2, 5), (0, 0), (1, 1)]
    verdicts = [float(run < passed) for passed, n in groups for run in range(n)]
    cases = [case for case, (_, n) in enumerate(groups) for _ in range(n)]
    fit = OLS(verdicts, [1.0] * len(verdicts)).fit(cov_type="cluster", cov_kwds={"groups": cases})
    rate = fit.params[0]
    effective = rate * (1 - rate) / fit.bse[0] ** 2
    assert 20 > effective > 5
    expected = proportion_confint(rate * effective, effective, method="wilson")
    assert pass_rate_interval(groups) == pytest.approx(expected)


def test_a_case_that_ran_far_more_often_is_still_one_case():
    """Its 30 runs and 3 others are worth 33^2 / (30^2 + 3) = 1.2 runs where those of a case agree, and not four."""
    worth = 33**2 / 903
    assert pass_rate_interval([(30, 30), (1, 1), (1, 1), (1, 1)]) == pytest.approx(wilson_interval(worth, worth))


def test_repetitions_that_always_agree_count_once():
    assert pass_rate_interval([(10, 10), (0, 10)]) == pytest.approx(wilson_interval(1, 2))
    assert pass_rate_interval([(7, 10), (0, 0)]) == wilson_interval(7, 10)
    assert pass_rate_interval([]) is None


def t_density(t: float, df: int) -> float:
    scale = exp(lgamma((df + 1) / 2) - lgamma(df / 2)) / sqrt(df * pi)
    return scale * (1 + t * t / df) ** (-(df + 1) / 2)


@pytest.mark.parametrize("df", [1, 2, 3, 4, 5, 6, 7, 12, 30, 200])
def test_t_quantile_leaves_a_fortieth_above(df):
    end, steps = t_quantile(df), 20_000
    width = end / steps
    below = sum(t_density((step + 0.5) * width, df) for step in range(steps)) * width
    assert 0.5 + below == pytest.approx(0.975, abs=2e-5)


@pytest.mark.parametrize(
    ("df", "comparisons", "quantile"),
    [(1, 5, 63.656741), (2, 5, 9.924843), (4, 25, 7.173182), (10, 5, 3.169273), (60, 5, 2.660283), (8, 2, 2.751524)],
)
def test_t_quantile_of_several_comparisons_leaves_its_part_above(df, comparisons, quantile):
    assert t_quantile(df, comparisons) == pytest.approx(quantile, abs=1e-5)


def test_difference_interval_is_welchs():
    # variances 2.5 and 10, n = 5 each: df = 2.5^2 / (0.25/4 + 4/4) = 5.88, t(5) = 2.570582
    half = 2.570582 * sqrt(0.5 + 2.0)
    one, other = [1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 4.0, 6.0, 8.0, 10.0]
    assert difference_interval(one, other) == pytest.approx((-3 - half, -3 + half))


@pytest.mark.parametrize("sample", [[], [1.0], [1.0, 1.0], [0.0, 5e-324]])
def test_samples_without_spread_have_no_difference_interval(sample):
    assert difference_interval(sample, sample) is None


def test_mean_interval_is_students_where_each_case_ran_once():
    # n = 5, mean 3, sd sqrt(2.5), t(4) = 2.776445
    half = 2.776445 * sqrt(2.5 / 5)
    assert mean_interval([[1.0], [2.0], [3.0], [4.0], [5.0]]) == pytest.approx((3 - half, 3 + half))
    assert mean_interval([[1.0, 2.0, 3.0, 4.0, 5.0]]) == pytest.approx((3 - half, 3 + half))


def test_mean_interval_of_equal_repetitions_is_that_of_the_cases():
    once, thrice = [[2.0], [5.0], [9.0]], [[2.0] * 3, [5.0] * 3, [9.0] * 3]
    assert mean_interval(thrice) == pytest.approx(mean_interval(once))


@pytest.mark.parametrize("equal", [[[1.0]] * 3, [[0.1]] * 3, [[8.0, 8.0]], [[0.0, 1.0], [1.0, 0.0]]])
def test_cases_that_do_not_differ_have_no_interval_of_the_mean(equal):
    """Three perfect answers do not say that all are perfect."""
    assert mean_interval(equal) is None


@pytest.mark.parametrize("few", [[], [[]], [[4.0]], [[4.0], []]])
def test_fewer_than_two_values_have_no_interval(few):
    assert mean_interval(few) is None


@given(st.lists(st.lists(st.floats(0, 10), min_size=1, max_size=3), max_size=12))
def test_the_interval_of_a_score_holds_its_mean_and_stays_on_the_scale(groups):
    found, scores = score_interval(groups, JUDGED_SCALE), [value for group in groups for value in group]
    if found is not None:
        low, high = found
        assert 0 <= low <= fmean(scores) + 1e-9
        assert fmean(scores) - 1e-9 <= high <= 10
    assert found is None or len(groups) == 1 or len(groups) >= FEWEST_JUDGED


def test_the_interval_of_a_score_is_that_of_its_logit():
    scores, t = [9.0, 10.0, 10.0, 6.0, 10.0], 2.776445
    middle, error = fmean(scores) / 10, stdev(scores) / sqrt(5) / 10
    logit, half = log(middle / (1 - middle)), t * error / (middle * (1 - middle))
    expected = [10 / (1 + exp(-end)) for end in (logit - half, logit + half)]
    assert score_interval([[score] for score in scores], JUDGED_SCALE) == pytest.approx(expected)
    assert score_interval([[score / 10] for score in scores]) == pytest.approx([end / 10 for end in expected])
    assert score_interval([[score] for score in scores[:4]], JUDGED_SCALE) is None
    beyond = [[score * 1000] for score in scores]  # tokens, say: they have no scale
    assert score_interval(beyond) == mean_interval(beyond)


@pytest.mark.parametrize(
    ("draw", "true"),
    [
        (lambda random: random.betavariate(8, 1) * 10, 80 / 9),  # crowded at the upper end
        (lambda random: 10.0 if random.random() < 0.7 else float(random.randrange(10)), 8.35),
        (lambda random: random.uniform(0, 10), 5.0),
    ],
)
@pytest.mark.parametrize("cases", [5, 10, 30])
def test_intervals_of_scores_have_their_nominal_coverage(draw, true, cases):
    random, held, sessions = Random(4), 0, 0
    for _ in range(2_000):
        found = score_interval([[draw(random)] for _ in range(cases)], JUDGED_SCALE)
        if found is not None:
            sessions += 1
            held += found[0] <= true <= found[1]
    assert held / sessions >= 0.92


def test_mean_and_sd_are_none_where_undefined():
    assert (mean([]), sd([]), sd([1.0])) == (None, None, None)
    assert sd([1.0, 3.0]) == pytest.approx(sqrt(2))


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_and_pass_hat_k_equal_the_share_of_all_draws(drawn):
    n, passed, k = drawn
    draws = list(combinations([True] * passed + [False] * (n - passed), k))
    assert pass_at_k(n, passed, k) == pytest.approx(sum(map(any, draws)) / len(draws))
    assert pass_hat_k(n, passed, k) == pytest.approx(sum(map(all, draws)) / len(draws))


@pytest.mark.parametrize(("n", "k"), [(0, 1), (3, 0), (3, 4)])
def test_pass_k_is_none_beyond_the_runs(n, k):
    assert pass_at_k(n, 0, k) is None
    assert pass_hat_k(n, 0, k) is None
