"""One judge's entry by hand: votes, failures, agreement, and what the order of the material changed."""

from __future__ import annotations

import pytest
from reports_samples import make_row

from pytest_agentbench.reports.judges import judge_results


def votes(*scores: float | None, judge: str = "strict", pass_at: float | None = 5.0, **fields: object) -> dict:
    source = {"source": "judge", "model": "m", "scripted": False, "profile": "p", **fields}
    return {"judge": judge, "scores": list(scores), "pass_at": pass_at, **source}


def row(case: str, *asked: dict) -> dict:
    return {**make_row("passed", case), "judge_votes": list(asked)}


def entry(*rows: dict) -> dict:
    return judge_results(rows)[0]


def test_votes_failures_and_agreement():
    """4, 6 | 8, 8 | 2: pairs agree in one of two runs; squares 2 and 0 over two degrees of freedom."""
    found = entry(row("a", votes(4.0, 6.0, None)), row("b", votes(8.0, 8.0, same_family="Maker")), row("c", votes(2.0)))
    assert [found[name] for name in ("runs", "repeated", "votes", "failed", "same_family")] == [3, 2, 5, 1, 1]
    assert found["mean_score"] == pytest.approx(28 / 5)
    assert found["agreement"] == pytest.approx(1 / 2)
    assert found["spread"] == pytest.approx(1)
    assert found["cv_percent"] == pytest.approx((100 * 1 / 5 + 0) / 2)
    assert found["alpha"] == pytest.approx(1 - 4 / (4 / 3 * (2.5**2 + 0.5**2 + 2 * 1.5**2)))
    assert (found["order_swap"], found["between"], found["reasons"]) == (None, None, {})


def test_a_bar_that_differs_between_runs_leaves_no_agreement():
    assert entry(row("a", votes(4.0, 6.0)), row("b", votes(4.0, 6.0, pass_at=6.0)))["agreement"] is None


def test_why_there_is_no_alpha():
    assert entry(row("a", votes(4.0)), row("b", votes(5.0)))["reasons"] == {"alpha": "no run has two votes of it"}
    equal = "all votes are the same, so no disagreement is to be expected"
    assert entry(row("a", votes(4.0, 4.0)))["reasons"] == {"alpha": equal}


def test_orders_that_were_swapped_go_in_pairs():
    """0.6 then 0.4 changes the verdict, 0.7 then 0.55 does not, a tie with the reference is one of its own."""
    swapped = votes(0.6, 0.4, 0.7, 0.55, pass_at=0.5, order="swapped", source="research")
    found = entry(row("a", swapped), row("b", votes(0.5, 0.6, pass_at=0.5, order="swapped", source="research")))
    told = found["order_swap"]
    assert (told["order"], told["runs"], told["pairs"], told["changed"]) == ("swapped", 2, 3, 2)
    assert told["changed_rate"] == pytest.approx(2 / 3)
    assert told["mean_difference"] == pytest.approx((0.2 + 0.15 - 0.1) / 3)
    assert told["mean_abs_difference"] == pytest.approx((0.2 + 0.15 + 0.1) / 3)


def test_shuffled_orders_go_each_with_each_and_have_no_sign():
    """Of 4, 6, 7 two pairs of three cross the bar of 5; a failure pairs with none."""
    told = entry(row("a", votes(4.0, 6.0, None, 7.0, order="shuffled")))["order_swap"]
    assert (told["order"], told["runs"], told["pairs"], told["changed"]) == ("shuffled", 1, 3, 2)
    assert told["mean_difference"] is None
    assert told["mean_abs_difference"] == pytest.approx((2 + 3 + 1) / 3)
    assert entry(row("a", votes(5.0, 6.0, order="shuffled")))["order_swap"]["changed"] == 0
    assert entry(row("a", votes(5.0, None, order="shuffled")))["order_swap"] is None
    assert entry(row("a", votes(5.0, 1.0, order="shuffled", pass_at=None)))["order_swap"] is None


def test_judges_of_one_profile_are_compared_by_their_means():
    """Means 5 and 7, 8 and 8 on two runs; the third run has but one of them."""
    rows = [
        row("a", votes(4.0, 6.0), votes(7.0, judge="mild", model="n")),
        row("b", votes(8.0), votes(8.0, judge="mild", model="n")),
        row("c", votes(1.0)),
    ]
    strict, mild = judge_results(rows)
    between = strict["between"]
    assert (between["judges"], between["runs"]) == (["strict (m)", "mild (n)"], 2)
    assert between["alpha"] == pytest.approx(1 - 4 / (4 / 3 * 6))
    assert between["cv_percent"] == pytest.approx((100 * 1 / 6 + 0) / 2)
    assert mild["between"] == between
    alone = judge_results([row("a", votes(4.0), votes(4.0, judge="mild", model="n"))])[0]["between"]
    assert (alone["alpha"], set(alone["reasons"])) == (None, {"alpha"})


def test_runs_without_a_verdict_count_for_nothing():
    assert judge_results([{**row("a", votes(4.0)), "outcome": "error"}]) == []
