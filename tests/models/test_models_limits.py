"""Adaptive concurrency and rates per minute, alone."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.models.limits import AdaptiveLimit, Admission, Rate, Throttle


def test_a_moved_ceiling_admits_waiters_and_keeps_what_a_429_has_lowered():
    async def scenario() -> None:
        limit = AdaptiveLimit(1)
        await limit.acquire()
        waiting = asyncio.create_task(limit.acquire())
        await asyncio.sleep(0)
        limit.move(2)
        await asyncio.wait_for(waiting, 5)
        limit.throttled(limit.ticket)
        lowered = limit.limit
        limit.move(10)
        assert (limit.limit, limit.ceiling) == (lowered, 10)

    asyncio.run(scenario())


def test_it_falls_once_for_one_overload_and_recovers_to_the_ceiling():
    async def main() -> None:
        limit = AdaptiveLimit(10)
        tickets = [await limit.acquire() for _ in range(10)]
        for ticket in tickets:  # all ten met the same overload
            limit.throttled(ticket)
        assert limit.limit == pytest.approx(6)
        for _ in tickets:
            limit.release()
        limit.throttled(await limit.acquire())
        assert limit.limit == pytest.approx(3.6)
        rounds = 0
        while limit.limit < 10:
            for _ in range(int(limit.limit)):
                limit.succeeded()
            rounds += 1
        assert 6 <= rounds <= 9  # about one more in flight each round

    asyncio.run(main())


def test_it_never_falls_below_one():
    async def main() -> None:
        limit = AdaptiveLimit(3)
        for _ in range(50):
            ticket = await limit.acquire()
            limit.throttled(ticket)
            limit.release()
        assert limit.limit == 1

    asyncio.run(main())


def test_waiters_are_served_in_order_and_one_that_gives_up_blocks_nobody():
    served = []

    async def use(limit: AdaptiveLimit, name: str) -> None:
        await limit.acquire()
        served.append(name)
        limit.release()

    async def main() -> None:
        limit = AdaptiveLimit(1)
        await limit.acquire()
        tasks = {name: asyncio.create_task(use(limit, name)) for name in "abcd"}
        await asyncio.sleep(0)
        tasks["a"].cancel()
        tasks["c"].cancel()
        await asyncio.sleep(0)
        limit.release()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        assert limit.in_flight == 0

    asyncio.run(main())
    assert served == ["b", "d"]


def test_a_slot_that_was_given_to_a_cancelled_waiter_is_handed_on():
    async def main() -> None:
        limit = AdaptiveLimit(1)
        await limit.acquire()
        first, second = asyncio.create_task(limit.acquire()), asyncio.create_task(limit.acquire())
        await asyncio.sleep(0)
        limit.release()  # wakes the first, which is cancelled before it runs
        first.cancel()
        await asyncio.wait_for(second, 1)
        assert limit.in_flight == 1

    asyncio.run(main())


def test_a_slot_is_free_after_everyone_gave_up():
    async def main() -> None:
        limit = AdaptiveLimit(1)
        await limit.acquire()
        waiter = asyncio.create_task(limit.acquire())
        await asyncio.sleep(0)
        waiter.cancel()
        await asyncio.sleep(0)
        limit.in_flight = 0
        await asyncio.wait_for(limit.acquire(), 1)

    asyncio.run(main())


@pytest.mark.slow
@given(st.integers(1, 8), st.lists(st.sampled_from(["ok", "429", "cancel", "error"]), max_size=40))
def test_slots_are_never_lost_and_never_exceeded(ceiling, fates):
    async def use(limit: AdaptiveLimit, fate: str) -> None:
        ticket = await limit.acquire()
        try:
            assert limit.in_flight <= ceiling
            await asyncio.sleep(0)
            if fate == "429":
                limit.throttled(ticket)
            elif fate == "ok":
                limit.succeeded()
        finally:
            limit.release()

    async def main() -> None:
        limit = AdaptiveLimit(ceiling)
        tasks = [asyncio.create_task(use(limit, fate)) for fate in fates]
        await asyncio.sleep(0)
        for task, fate in zip(tasks, fates, strict=True):
            if fate == "cancel":
                task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        assert limit.in_flight == 0
        assert 1 <= limit.limit <= ceiling

    asyncio.run(main())


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time runs as fast as everything waits: hours pass in no time."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:
            self.now = max(self.now, self._scheduled[0].when())
        super()._run_once()


def run_on_clock(main) -> None:
    with asyncio.Runner(loop_factory=Clock) as runner:
        runner.run(main())


@pytest.mark.slow
@given(st.integers(1, 600), st.integers(1, 300))
def test_no_minute_sees_more_than_the_rate_and_a_burst(per_minute, requests):
    times = []

    async def use(rate: Rate) -> None:
        await rate.take()
        times.append(asyncio.get_running_loop().time())

    async def main() -> None:
        rate = Rate(per_minute)
        await asyncio.gather(*(use(rate) for _ in range(requests)))

    run_on_clock(main)
    burst = max(1, per_minute / 60)
    for start in times:
        within = sum(start <= at < start + 59.999 for at in times)
        assert within <= per_minute + burst
    assert max(times) == pytest.approx(max(0, requests - burst) * 60 / per_minute, rel=1e-6, abs=1e-6)


def test_real_usage_is_charged_afterwards():
    async def main() -> None:
        rate = Rate(6000)  # 100 a second
        await rate.take(50)
        rate.charge(250)  # the reply was longer than thought: 200 in debt
        began = asyncio.get_running_loop().time()
        await rate.take(0)
        assert asyncio.get_running_loop().time() - began == pytest.approx(2)

    run_on_clock(main)


def test_a_cancelled_wait_gives_its_units_back():
    async def main() -> None:
        rate = Rate(60)
        await rate.take()
        waiting = asyncio.create_task(rate.take(1000))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        await rate.take()
        assert asyncio.get_running_loop().time() == pytest.approx(1)

    run_on_clock(main)


def sent_at(throttle_of, requests, *, seconds=lambda number: 0.0, tokens=0):
    """When each of so many requests began that were made at once and took `seconds(number)`."""
    times = []

    async def use(throttle, number):
        async with Admission(throttle, tokens):
            times.append(asyncio.get_running_loop().time())
            await asyncio.sleep(seconds(number))

    async def main() -> None:
        throttle = throttle_of()
        await asyncio.gather(*(use(throttle, number) for number in range(requests)))

    run_on_clock(main)
    return sorted(times)


@pytest.mark.slow
@given(st.integers(1, 2000), st.integers(1, 150), st.floats(0.1, 120), st.integers(1, 64), st.floats(0, 5))
def test_no_stretch_of_time_sees_more_requests_than_the_rate(rpm, requests, window, in_flight, seconds):
    times = sent_at(lambda: Throttle(in_flight, rpm), requests, seconds=lambda number: seconds)
    most = max(sum(start <= at < start + window - 1e-6 for at in times) for start in times)
    assert most <= math.ceil(window * rpm / 60)


def test_requests_do_not_pile_up_behind_slow_ones():
    slow = sent_at(lambda: Throttle(4, 600), 60, seconds=lambda number: 30.0 if number < 4 else 0.0)
    after = slow[4:]
    assert after[0] >= 30
    assert min(later - at for at, later in itertools.pairwise(after)) >= 0.1 - 1e-6


def test_requests_do_not_pile_up_behind_a_large_one():
    times = []

    async def use(throttle, tokens):
        async with Admission(throttle, tokens):
            times.append(asyncio.get_running_loop().time())

    async def main() -> None:
        throttle = Throttle(64, 600, 6000)  # 10 requests and 100 tokens a second
        await asyncio.gather(use(throttle, 3000), *(use(throttle, 1) for _ in range(30)))

    run_on_clock(main)
    assert min(later - at for at, later in itertools.pairwise(times)) >= 0.1 - 1e-6


def test_giving_up_returns_everything():
    async def main() -> None:
        throttle = Throttle(1, 60, 6000)
        first = await throttle.admit(100)
        throttle.release(first, "ok", 0)
        for waits_for in (1000, 0):  # tokens, then a request
            waiting = asyncio.create_task(throttle.admit(waits_for))
            await asyncio.sleep(0.1)
            waiting.cancel()
            await asyncio.wait([waiting])
        assert throttle.concurrency.in_flight == 0
        await throttle.admit(0)
        assert asyncio.get_running_loop().time() == pytest.approx(1)

    run_on_clock(main)
