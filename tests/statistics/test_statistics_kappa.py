from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr
from statsmodels.stats.inter_rater import cohens_kappa

from pytest_agentbench.statistics.agreement import Table, Verdicts, kappa_interval, rank_correlation, weighted_kappa
from pytest_agentbench.statistics.estimates import t_quantile

verdicts = st.builds(Verdicts, st.booleans(), st.booleans())
pairs = st.lists(verdicts, max_size=40)
scores = st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), min_size=2, max_size=30)


def pairs_of(both_passed, both_failed, only_people, only_judge):
    counts = {(True, True): both_passed, (False, False): both_failed, (True, False): only_people}
    counts[False, True] = only_judge
    return [Verdicts(*kind) for kind, count in counts.items() for _ in range(count)]


def alone(found):
    """Each pair a case of its own."""
    return [[pair] for pair in found]


@pytest.mark.parametrize(
    ("counts", "kappa"),
    [
        ((40, 45, 9, 6), 0.70),  # Feinstein & Cicchetti 1990, J. Clinical Epidemiology 43:543, table 1
        ((80, 5, 10, 5), 0.32),  # the same agreement of 0.85 with other base rates
        ((45, 15, 15, 25), 0.1304),  # 60 of 100 alike: the raters' base rates are alike too
        ((25, 35, 35, 5), 0.2593),  # and here they are far apart
        ((20, 15, 5, 10), 0.40),
        ((0, 0, 5, 5), -1.0),
    ],
)
def test_published_tables_have_their_kappa(counts, kappa):
    assert Table(*counts).kappa == pytest.approx(kappa, abs=0.005)


@pytest.mark.parametrize("counts", [(0, 0, 0, 0), (7, 0, 0, 0), (0, 7, 0, 0)])
def test_kappa_of_one_thing_said_throughout_is_unknown(counts):
    assert Table(*counts).kappa is None
    assert kappa_interval(alone(pairs_of(*counts))) is None


@pytest.mark.parametrize("counts", [(40, 45, 9, 6), (80, 5, 10, 5), (45, 15, 15, 25), (13, 14, 4, 2)])
def test_with_a_pair_for_each_case_the_interval_is_that_of_fleiss_cohen_and_everitt(counts):
    table = Table(*counts)
    reference = cohens_kappa(np.array([[counts[0], counts[2]], [counts[3], counts[1]]]), return_results=True)
    low, high = kappa_interval(alone(pairs_of(*counts)))
    n = table.n
    assert table.kappa == pytest.approx(reference.kappa)
    assert (low + high) / 2 == pytest.approx(reference.kappa)
    half = t_quantile(n - 1) * reference.std_kappa * (n / (n - 1)) ** 0.5
    assert (high - low) / 2 == pytest.approx(half)


def test_repetitions_that_say_the_same_again_tell_nothing_new():
    found = pairs_of(8, 7, 2, 3)
    once = kappa_interval(alone(found))
    assert kappa_interval([[pair] * 5 for pair in found]) == pytest.approx(once)
    low, high = kappa_interval(alone(found * 5))
    assert low > once[0]
    assert high < once[1]


def test_a_clustered_interval_is_the_spread_of_kappa_over_samples_of_cases():
    """Against the bootstrap over cases, which needs no formula."""
    random = np.random.default_rng(4)
    groups = []
    for _ in range(120):
        people = bool(random.random() < 0.6)
        hard = random.random() < 0.3
        groups.append([Verdicts(people, people != bool(random.random() < (0.5 if hard else 0.05))) for _ in range(4)])
    drawn = []
    for _ in range(400):
        sample = [groups[at] for at in random.integers(0, len(groups), len(groups))]
        drawn.append(Table.of([pair for group in sample for pair in group]).kappa)
    low, high = kappa_interval(groups)
    assert (high - low) / 2 == pytest.approx(1.98 * np.std(drawn), rel=0.1)


def test_one_case_or_no_spread_has_no_interval():
    assert kappa_interval([pairs_of(3, 3, 1, 1)]) is None
    assert kappa_interval(alone(pairs_of(5, 5, 0, 0))) is None
    assert kappa_interval([]) is None


@given(pairs)
def test_kappa_is_what_byrt_bishop_and_carlin_make_of_agreement_bias_and_prevalence(found):
    table = Table.of(found)
    assert table.n == len(found)
    if table.kappa is not None:
        bias, prevalence = table.bias_index**2, table.prevalence_index**2
        assert table.kappa == pytest.approx((table.pabak - prevalence + bias) / (1 - prevalence + bias))


@given(st.lists(st.lists(verdicts, max_size=5), max_size=8))
def test_an_interval_holds_its_kappa_whichever_rater_and_verdict_comes_first(groups):
    interval = kappa_interval(groups)
    kappa = Table.of([pair for group in groups for pair in group]).kappa
    if interval is None:
        return
    assert -1 <= interval[0] <= kappa <= interval[1] <= 1
    others = [[Verdicts(judge, people) for people, judge in group] for group in groups]
    inverted = [[Verdicts(not people, not judge) for people, judge in group] for group in groups]
    assert kappa_interval(others) == pytest.approx(interval)
    assert kappa_interval(inverted) == pytest.approx(interval)


@given(scores)
def test_weighted_kappa_of_whole_points_is_cohens(found):
    table = np.zeros((11, 11))
    for one, other in found:
        table[one, other] += 1
    ours = weighted_kappa([one for one, _ in found], [other for _, other in found])
    if len({value for pair in found for value in pair}) == 1:
        assert ours is None
        return
    assert ours == pytest.approx(cohens_kappa(table, wt="quadratic", return_results=False), abs=1e-9)


def test_scores_need_something_to_differ_in():
    assert weighted_kappa([], []) is None
    assert weighted_kappa([5.0], [6.0]) is None
    assert weighted_kappa([5.0, 5.0], [5.0, 5.0]) is None
    assert rank_correlation([1.0, 2.0], [1.0, 2.0]) is None
    assert rank_correlation([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) is None


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=3, max_size=12))
def test_rank_correlation_is_that_of_scipy(pairs):
    one, other = zip(*pairs, strict=True)
    found = rank_correlation(one, other)
    if len(set(one)) > 1 and len(set(other)) > 1:
        assert found == pytest.approx(spearmanr(one, other).statistic, rel=1e-9, abs=1e-12)
    else:
        assert found is None


def test_ranks_count_and_not_distances():
    """Spearman's own example of ties in the middle: 1 - 6 x sum(d^2) / (n (n^2 - 1)) without any."""
    assert rank_correlation([1.0, 2.0, 3.0, 9.0, 4.0], [2.0, 1.0, 3.0, 5.0, 4.0]) == pytest.approx(1 - 6 * 2 / 120)


def test_a_table_counts_every_kind_of_pair():
    for people, judge in product((True, False), repeat=2):
        table = Table.of([Verdicts(people, judge)])
        assert (table.people_passed, table.judge_passed, table.agreed) == (people, judge, people == judge)
