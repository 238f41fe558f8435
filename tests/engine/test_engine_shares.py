from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.engine import Budget, ControllerLink
from pytest_agentbench.engine.shares import deal


@given(st.lists(st.integers(), max_size=300), st.integers(1, 20))
def test_every_index_is_dealt_once_and_evenly(indices, workers):
    shares = deal(indices, workers)
    assert len(shares) == workers
    assert sorted(index for share in shares for index in share) == sorted(indices)
    sizes = [len(share) for share in shares]
    block = max(1, len(indices) // (8 * workers))
    assert max(sizes) - min(sizes) <= block


@given(st.integers(0, 300), st.integers(1, 20))
def test_each_share_keeps_the_order(count, workers):
    for share in deal(range(count), workers):
        assert share == sorted(share)


def test_neighbours_stay_together():
    first, second = deal(range(160), 2)
    assert first[:10] == list(range(10))
    assert second[:10] == list(range(10, 20))


class Channel:
    def __init__(self, *, gone=False):
        self.sent, self.gone = [], gone

    def send(self, message):
        if self.gone:
            raise OSError("closed")
        self.sent.append(message)


def test_every_worker_is_told_once_and_a_dead_one_is_passed_over():
    link = ControllerLink(lambda cost: None)
    link.channels = [Channel(gone=True), Channel()]
    link.tell("stop", "enough")
    link.tell("stop", "again")
    assert link.channels[1].sent == [("stop", "enough")]


def test_a_used_up_budget_halts_the_workers():
    link = ControllerLink(Budget(1.0).spend)
    link.channels = [channel := Channel()]
    for cost in (0.4, None, 0.4, 0.4, 0.4):
        link._receive(("spent", cost))
    [(order, reason)] = channel.sent
    assert order == "halt"
    assert "1.2000 of 1.0000 USD" in reason


@given(st.lists(st.one_of(st.none(), st.floats(0, 10)), max_size=50), st.floats(0.1, 100))
def test_a_budget_adds_up_and_stops_at_its_limit(costs, limit):
    budget = Budget(limit)
    reasons = [budget.spend(cost) for cost in costs]
    known = [cost for cost in costs if cost is not None]
    assert budget.unknown == len(costs) - len(known)
    assert abs(budget.spent - sum(known)) < 1e-9
    assert (reasons[-1] is not None) == (budget.spent >= limit) if costs else True


def test_without_a_limit_nothing_stops():
    assert Budget().spend(1e9) is None


def test_a_budget_of_nothing_is_used_up_by_the_first_run():
    assert Budget(0.0).spend(0.0) is not None


def test_a_budget_is_right_from_many_threads():
    budget = Budget()
    threads = [threading.Thread(target=lambda: [budget.spend(1.0, None) for _ in range(500)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (budget.spent, budget.unknown) == (4000.0, 4000)
