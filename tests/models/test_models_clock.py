"""A run's clock: waits stop its limits, overlapping ones once, and the attempt that brought the answer counts."""

from __future__ import annotations

import asyncio
import math
import time

import pytest

from pytest_agentbench.models.clock import RUN_CLOCK, RunClock, Wait


def left(timer: asyncio.Timeout) -> float:
    when = timer.when()
    return math.inf if when is None else when - asyncio.get_running_loop().time()


def run(test) -> None:
    async def main() -> None:
        clock = RunClock()
        RUN_CLOCK.set(clock)
        async with clock.limit(100) as timer:
            await test(clock, timer)

    asyncio.run(main())


def test_overlapping_waits_are_given_back_once():
    async def test(clock, timer):
        now = time.monotonic()
        clock.stop(now - 30)
        clock.stop(now - 40)
        assert left(timer) == math.inf
        clock.go_on(now - 10)
        clock.go_on(now - 20)
        assert left(timer) == pytest.approx(130, abs=1)
        clock.stop(now - 30)  # the time before the end of the last wait has been given back
        clock.go_on(now)
        assert left(timer) == pytest.approx(140, abs=1)
        assert clock.stood == pytest.approx(40, abs=1)

    run(test)


@pytest.mark.parametrize(("longest", "expected"), [(300.0, 100), (math.inf, 100)])
def test_an_attempt_that_brings_the_answer_is_the_runs_time(longest, expected):
    async def test(clock, timer):
        with Wait(longest) as wait:
            wait.begin("HTTP 503")
            assert (left(timer) == math.inf) == (longest < math.inf)
            assert clock.trouble == "HTTP 503"
            wait.answered(50.0)
        assert left(timer) == pytest.approx(expected, abs=1)
        assert clock.trouble is None

    run(test)


def test_a_request_that_is_given_up_leaves_its_trouble():
    async def test(clock, timer):
        with Wait(300) as wait:
            wait.begin("HTTP 503")
        assert (clock.trouble, left(timer) < math.inf) == ("HTTP 503", True)
        assert clock.trouble_seconds < 1

    run(test)


def test_a_wait_outside_of_a_run_is_only_a_wait():
    with Wait(300) as wait:
        wait.begin("HTTP 503")
        wait.answered()
