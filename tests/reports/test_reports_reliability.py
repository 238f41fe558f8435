"""What repetitions say, by enumeration; standard errors and intervals, against statsmodels and scipy."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from reports_samples import make_row

from pytest_agentbench.reports.report import build_report
from pytest_agentbench.statistics.estimates import (
    by_k,
    flakiness,
    mean_interval,
    pass_at_k,
    pass_hat_k,
    standard_error,
)

values = st.integers(0, 100).map(lambda tenth: tenth / 10)
groups_of_values = st.lists(st.lists(values, min_size=1, max_size=5), min_size=2, max_size=15)


@given(st.integers(2, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_flakiness_is_the_share_of_pairs_of_runs_that_differ(drawn):
    n, passed = drawn
    pairs = list(combinations([True] * passed + [False] * (n - passed), 2))
    assert flakiness(n, passed) == pytest.approx(sum(one != other for one, other in pairs) / len(pairs))


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_pass_at_k_and_pass_hat_k_are_the_unbiased_estimates_for_each_k(drawn):
    n, passed = drawn
    found = by_k(n, passed)
    assert found["pass_at_k"] == pytest.approx({str(k): pass_at_k(n, passed, k) for k in range(1, n + 1)})
    assert found["pass_hat_k"] == pytest.approx({str(k): pass_hat_k(n, passed, k) for k in range(1, n + 1)})
    assert all(0 <= value <= 1 for by_figure in found.values() for value in by_figure.values())


@pytest.mark.parametrize(("n", "passed"), [(0, 0), (1, 0), (1, 1)])
def test_fewer_than_two_verdicts_have_no_flakiness(n, passed):
    assert flakiness(n, passed) is None


def rows_of(**outcomes):
    """Rows of cases by the letters of their runs: p, f, e, s."""
    names = {"p": "passed", "f": "failed", "e": "error", "s": "skipped"}
    return [
        make_row(names[letter], case_id, repetition=number)
        for case_id, letters in outcomes.items()
        for number, letter in enumerate(letters, 1)
    ]


def test_a_models_pass_at_k_is_the_mean_over_its_cases():
    (model,) = build_report(rows_of(steady="ppp", flaky="pff", lost="ee"), {})["models"]
    assert model["pass_at_k"] == pytest.approx({"1": 2 / 3, "2": (1 + 2 / 3) / 2, "3": 1.0})
    assert model["pass_hat_k"] == pytest.approx({"1": 2 / 3, "2": 0.5, "3": 0.5})
    assert model["flaky_cases"] == 1


def test_k_ends_where_a_case_has_no_more_verdicts():
    report = build_report(rows_of(full="ppp", short="pe"), {})
    assert report["models"][0]["pass_at_k"] == {"1": 1.0}
    assert [case["flakiness"] for case in report["cases"]] == [0.0, None]


@pytest.mark.parametrize("outcomes", [{"a": "e"}, {"a": "s", "b": "ee"}])
def test_without_a_verdict_nothing_is_said_of_reliability(outcomes):
    (model,) = build_report(rows_of(**outcomes), {})["models"]
    figures = ("pass_at_k", "pass_hat_k", "flaky_cases", "pass_rate_se", "score_se", "score_bootstrap_ci95")
    assert [model[name] for name in figures] == [None] * 6


def test_one_run_of_each_case_has_no_flakiness():
    (model,) = build_report(rows_of(a="p", b="f"), {})["models"]
    assert (model["pass_at_k"], model["flaky_cases"]) == ({"1": 0.5}, None)


def test_errors_count_in_no_rate_mean_or_interval():
    """Its row may hold figures: a metric was measured before the judge failed, a teardown broke after the verdict."""
    said = {"tags": ["geo"], "dataset": "capitals"}
    kept = [
        *(make_row("passed", "a", repetition=n, score=6.0 + n, metric=0.5, **said) for n in (1, 2)),
        make_row("failed", "b", score=1.0, metric=0.0, seconds=3.0, **said),
        make_row("passed", "c", score=9.0, metric=1.0, **said),
        make_row("passed", "d", score=5.0, metric=1.0, **said),
    ]
    voted = {"judge": "j", "source": "judge", "model": "gpt-4o", "scripted": False, "profile": "p", "pass_at": 5.0}
    kept = [{**row, "judge_votes": [{**voted, "scores": [row["final_score"], 5.0]}]} for row in kept]
    lost = {"judge_votes": [{**voted, "scores": [0.0, 10.0]}], "duration_seconds": 900.0}
    broken = [
        {**make_row("failed", case, repetition=3, score=0.0, metric=0.25, **said), "outcome": outcome, **lost}
        for case, outcome in (("a", "error"), ("b", "skipped"), ("c", "error"))
    ]
    without, with_them = build_report(kept, {}), build_report([*kept, *broken], {})
    counted = {"runs", "errors", "skipped", "completion", "cost_usd", "tokens", "at_least", "repetitions"}
    for part in ("models", "cases", "datasets", "judges"):
        for before, after in zip(without[part], with_them[part], strict=True):
            assert {name: value for name, value in before.items() if name not in counted} == {
                name: value for name, value in after.items() if name not in counted
            }
    assert with_them["models"][0]["errors"] == 2


def test_a_score_that_only_broken_runs_have_is_named_and_unknown():
    broken = {**make_row("passed", "a", score=8.0, metric=1.0, dataset="d"), "outcome": "error"}
    report = build_report([broken], {})
    (model,), (dataset,), (case,) = report["models"], report["datasets"], report["cases"]
    assert (model["metrics"], model["judge"]["task"], model["mean_score"]) == ({"exact_match": None}, None, None)
    assert dataset["metrics"] == {"exact_match": {"mean": None, "ci95": None}}
    assert case["mean_score"] is None


def test_cases_of_one_name_in_two_files_are_two_clusters():
    rows = rows_of(a="pp", b="ff")
    apart = [{**row, "case_id": "a", "nodeid": f"{row['case_id']}.yaml::a[gpt4o]"} for row in rows]
    (model,), (same,) = (build_report(each, {})["models"] for each in (apart, rows))
    assert model["pass_rate_se"] == same["pass_rate_se"] == pytest.approx(0.5)


@pytest.mark.slow
@given(groups_of_values)
def test_standard_errors_and_intervals_are_the_cluster_robust_ones_of_statsmodels(groups):
    from statsmodels.api import OLS

    assume(len({sum(group) / len(group) for group in groups}) > 1)
    values = [value for group in groups for value in group]
    clusters = [number for number, group in enumerate(groups) for _ in group]
    fit = OLS(values, [1.0] * len(values)).fit(cov_type="cluster", cov_kwds={"groups": clusters}, use_t=True)
    assume(fit.bse[0] > 1e-6)
    assert standard_error(groups) == pytest.approx(fit.bse[0])
    assert mean_interval(groups) == pytest.approx(tuple(fit.conf_int()[0]))


@pytest.mark.parametrize(
    "alike",
    [
        *([], [[1.0]], [[2.0], [2.0]], [[0.0, 1.0], [1.0, 0.0]], [[0.0], [5e-324]]),
        [[7.39] * 5, [7.39], [7.39] * 3],  # whose means differ by rounding
    ],
)
def test_equal_values_have_no_standard_error(alike):
    assert standard_error(alike) is None
    assert mean_interval(alike) is None
