"""Agreement of votes, against the krippendorff library and published figures."""

from __future__ import annotations

from itertools import combinations
from math import nan

import krippendorff
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_agentbench.packs.mcp_bench.judge import cv_percent as cv_of_one
from pytest_agentbench.statistics.agreement import cv_percent, krippendorff_alpha, pairwise_agreement, within_sd

# Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability", example C: four observers, twelve units.
OBSERVERS = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
    [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
]
PUBLISHED = [[float(vote) for vote in unit if vote is not None] for unit in zip(*OBSERVERS, strict=True)]

votes = st.integers(0, 20).map(lambda half: half / 2)
units = st.lists(st.lists(votes, max_size=5), min_size=1, max_size=12)


def by_library(units, level="interval"):
    widest = max(map(len, units))
    return krippendorff.alpha(
        [[unit[n] if n < len(unit) else nan for unit in units] for n in range(widest)], level_of_measurement=level
    )


def test_alpha_is_the_published_one():
    assert krippendorff_alpha(PUBLISHED) == pytest.approx(0.849, abs=5e-4)


@given(units)
def test_alpha_is_the_librarys_however_many_votes_are_missing(units):
    paired = [unit for unit in units if len(unit) > 1]
    assume(len({vote for unit in paired for vote in unit}) > 1)
    assert krippendorff_alpha(units) == pytest.approx(by_library(paired), abs=1e-9)


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=5), min_size=1, max_size=12))
def test_alpha_of_verdicts_is_that_of_the_nominal_level(units):
    assume(len({vote for unit in units for vote in unit}) > 1)
    assert krippendorff_alpha(units) == pytest.approx(by_library(units, "nominal"), abs=1e-9)


@given(units, st.permutations(range(5)))
def test_alpha_does_not_depend_on_who_voted_first(units, order):
    shuffled = [[unit[n] for n in order if n < len(unit)] for unit in units]
    assert krippendorff_alpha(shuffled) == pytest.approx(krippendorff_alpha(units))


@pytest.mark.parametrize("units", [[], [[]], [[3.0], [4.0]], [[7.0, 7.0], [7.0, 7.0], [2.0]]])
def test_alpha_is_undefined_where_no_disagreement_is_to_be_expected(units):
    assert krippendorff_alpha(units) is None


@pytest.mark.slow
@given(units)
def test_the_spread_within_units_is_the_residual_of_an_analysis_of_variance(units):
    paired = [unit for unit in units if len(unit) > 1]
    free = sum(len(unit) - 1 for unit in paired)
    if not free:
        assert within_sd(units) is None
        return
    from statsmodels.api import OLS

    rows = [(vote, n) for n, unit in enumerate(paired) for vote in unit]
    dummies = [[float(n == column) for column in range(len(paired))] for _, n in rows]
    assert within_sd(units) == pytest.approx(OLS([vote for vote, _ in rows], dummies).fit().mse_resid ** 0.5, abs=1e-7)


@given(st.lists(votes, min_size=2, max_size=6))
def test_the_cv_of_one_unit_is_that_of_mcp_bench(unit):
    assert cv_percent([unit, [5.0]]) == pytest.approx(cv_of_one(unit))


def test_the_cv_of_several_units_is_the_mean():
    assert cv_percent([[4.0, 6.0], [9.0, 9.0], [0.0, 0.0], [1.0]]) == pytest.approx((20 + 0) / 2)
    assert cv_percent([[0.0, 0.0], [1.0], []]) is None


@given(st.lists(st.lists(votes, max_size=4), max_size=6))
def test_agreement_is_the_share_of_pairs_with_one_verdict(units):
    shares = [
        sum((one >= 5) == (other >= 5) for one, other in pairs) / len(pairs)
        for unit in units
        if (pairs := list(combinations(unit, 2)))
    ]
    expected = sum(shares) / len(shares) if shares else None
    assert pairwise_agreement(units, lambda vote: vote >= 5) == pytest.approx(expected)
