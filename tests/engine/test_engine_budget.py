from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.engine.budget import Budget, spending
from pytest_agentbench.records.run import Usage

PARTS = st.sampled_from(["run", "judge"])
SPENDINGS = st.tuples(st.none() | st.floats(0, 10), st.none() | st.integers(0, 10_000))


@pytest.mark.slow
@given(st.lists(st.tuples(PARTS, SPENDINGS), min_size=1, max_size=50), st.floats(0.1, 100))
def test_a_budget_adds_up_and_stops_at_its_limit(booked, limit):
    budget = Budget(limit)
    reasons = [budget.book(part, [each]) for part, each in booked]
    costs = [cost for _, (cost, _) in booked]
    assert budget.unknown == costs.count(None)
    assert budget.spent == pytest.approx(sum(cost for cost in costs if cost is not None))
    assert (reasons[-1] is not None) == (budget.spent >= limit)
    for part in ("run", "judge"):
        of_part = [cost for each, (cost, _) in booked if each == part]
        expected = None if None in of_part else pytest.approx(sum(of_part))
        assert budget.spent_usd[part] == expected


@given(st.lists(SPENDINGS, min_size=1, max_size=50), st.integers(1, 50_000))
def test_tokens_have_a_limit_of_their_own(booked, limit):
    budget = Budget(max_tokens=limit)
    reason = budget.book("run", booked)
    tokens = [each for _, each in booked]
    assert budget.tokens == sum(each or 0 for each in tokens)
    assert budget.unknown_tokens == tokens.count(None)
    assert (reason is not None) == (budget.tokens >= limit)
    assert reason is None or f"{budget.tokens} of {limit} tokens (--agentbench-max-tokens)" in reason


def test_without_a_limit_nothing_stops_and_nothing_is_missed():
    budget = Budget()
    assert budget.book("run", [(1e9, 10**9), (None, None)]) is None
    assert list(budget.gaps()) == []


def test_requests_of_unknown_cost_or_tokens_are_reported():
    budget = Budget(5.0, 100)
    budget.book("judge", [(None, 1), (None, None), (1.0, None)])
    cost, tokens = budget.gaps()
    assert "the cost of 2 requests is unknown" in cost
    assert "the tokens of 2 requests are unknown" in tokens


def test_a_budget_of_nothing_is_used_up_by_the_first_run():
    assert Budget(0.0).book("run", [(0.0, None)]) is not None


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (Usage(input_tokens=10, output_tokens=5, total_tokens=99), 15),
        (Usage(total_tokens=99), 99),
        (Usage(input_tokens=10), None),
        (Usage(), None),
    ],
)
def test_tokens_are_input_and_output_or_the_total_of_the_provider(usage, tokens):
    assert spending(usage) == (None, tokens)


def test_a_budget_is_right_from_many_threads():
    budget = Budget()
    book = [(1.0, 1), (None, None)]
    threads = [threading.Thread(target=lambda: [budget.book("run", book) for _ in range(500)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (budget.spent, budget.unknown) == (4000.0, 4000)
    assert (budget.tokens, budget.unknown_tokens) == (4000, 4000)


@pytest.mark.parametrize("cost", [float("nan"), float("inf"), 1e308, -5.0])
def test_impossible_costs_count_as_unknown(cost):
    """An agent's own figures neither refund a budget nor make a sum that report.json cannot hold."""
    budget = Budget(1.0)
    assert budget.book("run", [spending(Usage(cost_usd=cost, total_tokens=-7))] * 2) is None
    assert (budget.spent, budget.unknown, budget.tokens, budget.unknown_tokens) == (0.0, 2, 0, 2)
