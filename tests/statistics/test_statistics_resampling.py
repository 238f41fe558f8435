"""Bootstrap intervals, against every resample of a few cases, and what they cost."""

from __future__ import annotations

import subprocess
import sys
from itertools import islice, product
from random import Random
from statistics import NormalDist, fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_agentbench.statistics.estimates import (
    FEWEST_JUDGED,
    mean_interval,
    standard_error,
)
from pytest_agentbench.statistics.resampling import (
    BOOTSTRAP,
    MOST_DRAWN,
    SUBSETS,
    UNCHANGED,
    CoinTosses,
    bootstrap_interval,
    draw_fractions,
    draw_indices,
    draw_words,
)

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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("cases", [100, MOST_DRAWN, MOST_DRAWN + 500])
def test_many_cases_give_nearly_students_interval(cases):
    groups = [[float(n * 37 % 101), float(n * 53 % 101)] for n in range(cases)]
    low, high = bootstrap_interval(groups)
    expected = mean_interval(groups)
    assert (low, high) == pytest.approx(expected, abs=0.2 * standard_error(groups))


@pytest.mark.slow
@given(st.lists(st.lists(st.floats(0, 10), min_size=1, max_size=3), max_size=8))
@settings(max_examples=50)
def test_an_interval_is_deterministic_and_within_the_range_of_cases(groups):
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


def test_intervals_and_tests_need_no_scipy():
    code = (
        "import sys; from pytest_agentbench.statistics import agreement, paired\n"
        "from pytest_agentbench.statistics.resampling import bootstrap_interval\n"
        "scores = [1.0, 2.0, 4.0, 8.0, 9.5]\n"
        "assert bootstrap_interval([[score] for score in scores]) and paired.rate_interval([0.5, 0.0])\n"
        "assert agreement.rank_correlation(scores, scores) == 1 and paired.sign_flip(scores)\n"
        "print([name for name in ('scipy', 'numpy') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(("seed", "state"), [(20_260_101, BOOTSTRAP), (20_240_411, SUBSETS), (20_240_412, UNCHANGED)])
def test_draws_are_those_of_numpys_default_generator(seed, state):
    numpy = pytest.importorskip("numpy")
    generator = numpy.random.default_rng
    known = generator(seed).bit_generator.state["state"]
    assert (known["state"], known["inc"]) == state
    assert list(islice(draw_words(state), 50)) == generator(seed).bit_generator.random_raw(50).tolist()
    assert list(islice(draw_fractions(state), 50)) == generator(seed).random(50).tolist()
    for below in (1, 2, 7, 1000, 3_000_000_000):  # of the last every third is refused
        assert list(islice(draw_indices(state, below), 99)) == generator(seed).integers(0, below, 99).tolist()
    tosses = CoinTosses(state)
    assert [*tosses.first(30)] == (generator(seed).random(30) < 0.5).tolist()
    assert [*tosses.first(50)] == (generator(seed).random(50) < 0.5).tolist()
    assert [*tosses.first(7)] == [*tosses.first(50)][:7]


@pytest.mark.parametrize("cases", [5, 20, 60])
@pytest.mark.parametrize("runs", [1, 3])
def test_the_interval_is_that_of_scipy(cases, runs):
    """Of scores whose resamples are equal to the sample only where they are its cases in another order, or never."""
    numpy, stats = pytest.importorskip("numpy"), pytest.importorskip("scipy.stats")
    drawn = Random(cases * runs)
    groups = [[drawn.randrange(0, 41) / 4 for _ in range(1 + at % runs)] for at in range(cases)]
    found = stats.bootstrap(
        (numpy.array([sum(group) for group in groups]), numpy.array([float(len(group)) for group in groups])),
        lambda sums, sizes, axis=-1: sums.sum(axis) / sizes.sum(axis),
        n_resamples=2000,
        vectorized=True,
        paired=True,
        method="BCa",
        rng=numpy.random.default_rng(20_260_101),
    ).confidence_interval
    assert bootstrap_interval(groups) == pytest.approx((found.low, found.high), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("draw", [Random.random, lambda r: r.expovariate(1), lambda r: float(r.random() < 0.01)])
def test_the_interval_of_many_cases_is_what_many_draws_come_to(draw):
    numpy = pytest.importorskip("numpy")
    scores = [draw(Random(at)) for at in range(MOST_DRAWN + 1)]
    generator, values = numpy.random.default_rng(1), numpy.array(scores)
    means = [generator.choice(values, len(values)).mean() for _ in range(40_000)]
    wanted = numpy.quantile(means, [0.025, 0.975])
    near = max(0.05 * numpy.std(means), 0.5 / len(scores))
    assert bootstrap_interval([[score] for score in scores]) == pytest.approx(wanted, abs=near)
