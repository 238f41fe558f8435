"""Limits over several workers: each a thread with its own event loop, answered by one controller."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_agentbench.engine.limits import ControllerThrottles, WorkerThrottles
from pytest_agentbench.engine.lookahead import RunLimits
from pytest_agentbench.models.limits import Admission


class Worker:
    """A worker's throttles and the line that the controller answers it on."""

    def __init__(self, controller: ControllerThrottles) -> None:
        self.controller = controller
        self.throttles = WorkerThrottles(lambda message: controller.receive(self, message))

    def send(self, message) -> None:
        self.loop.call_soon_threadsafe(self.throttles.receive, message)

    def run(self, main) -> None:
        """In a thread: `main(throttles)` on a loop of its own."""

        async def on_loop():
            self.loop = asyncio.get_running_loop()
            return await asyncio.wait_for(main(self.throttles), 20)

        return asyncio.run(on_loop())


@pytest.fixture
def controller():
    throttles = ControllerThrottles()
    yield throttles
    throttles.close()


def at_once(workers, main):
    """What `main` returned in each worker."""
    with ThreadPoolExecutor(len(workers)) as pool:
        return list(pool.map(lambda worker: worker.run(main), workers))


class Busy:
    """How many are inside, over all threads."""

    def __init__(self) -> None:
        self.now = self.most = self.total = 0
        self.lock = threading.Lock()

    def __enter__(self) -> None:
        with self.lock:
            self.now += 1
            self.total += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.now -= 1


@pytest.mark.parametrize("in_flight", [1, 3, 10])
def test_no_more_than_the_limit_are_in_flight_over_all_workers(controller, in_flight):
    busy = Busy()

    async def use(throttle):
        async with Admission(throttle):
            with busy:
                await asyncio.sleep(0.001)

    async def main(throttles):
        throttle = throttles.throttle("model", (in_flight, None, None))
        await asyncio.gather(*(use(throttle) for _ in range(30)))

    at_once([Worker(controller) for _ in range(4)], main)
    assert busy.total == 120
    assert busy.most == in_flight


@settings(max_examples=20)
@given(st.integers(1, 4), st.lists(st.sampled_from(["ok", "error", "cancel"]), min_size=1, max_size=20))
def test_slots_come_back_however_a_request_ends(in_flight, fates):
    async def use(throttle, fate):
        async with Admission(throttle):
            await asyncio.sleep(0)
            if fate == "error":
                raise ValueError

    async def main(throttles):
        throttle = throttles.throttle("model", (in_flight, None, None))
        tasks = [asyncio.create_task(use(throttle, fate)) for fate in fates]
        await asyncio.sleep(0)
        for task, fate in zip(tasks, fates, strict=True):
            if fate == "cancel":
                task.cancel()
        await asyncio.wait(tasks)
        held = [await throttle.admit(0) for _ in range(in_flight)]  # all of them are free again
        for ticket in held:
            throttle.release(ticket, "ok", 0)

    controller = ControllerThrottles()
    at_once([Worker(controller)], main)
    controller.close()


def test_a_dead_worker_returns_its_slots_and_leaves_the_queues(controller):
    dead, alive = Worker(controller), Worker(controller)

    async def die(throttles):
        throttle = throttles.throttle("model", (2, None, None))
        await throttle.admit(0)
        await throttle.admit(0)
        waiting = asyncio.create_task(throttle.admit(0))
        await asyncio.sleep(0)
        controller.gone(dead)
        waiting.cancel()
        await asyncio.wait([waiting])

    async def go_on(throttles):
        throttle = throttles.throttle("model", (2, None, None))
        return await asyncio.gather(throttle.admit(0), throttle.admit(0))

    dead.run(die)
    assert len(alive.run(go_on)) == 2


@pytest.mark.slow
def test_one_worker_gets_the_whole_rate_when_the_others_are_idle(controller):
    async def main(throttles):
        throttle = throttles.throttle("model", (64, 6000, None))  # 100 a second
        began = time.perf_counter()
        await asyncio.gather(*(throttle.admit(0) for _ in range(41)))
        return time.perf_counter() - began

    idle, busy = Worker(controller), Worker(controller)
    at_once([idle], lambda throttles: asyncio.sleep(0))
    assert 0.4 <= busy.run(main) < 0.8


@pytest.mark.slow
def test_the_rate_holds_over_all_workers(controller):
    times = []

    async def main(throttles):
        throttle = throttles.throttle("model", (80, 12000, None))  # 200 a second
        for number in [asyncio.create_task(throttle.admit(0)) for _ in range(20)]:
            await number
            times.append(time.perf_counter())

    began = time.perf_counter()
    at_once([Worker(controller) for _ in range(4)], main)
    assert len(times) == 80
    assert 79 / 200 <= max(times) - began < 79 / 200 + 0.5


@pytest.mark.slow
def test_tokens_are_settled_in_the_controller(controller):
    async def main(throttles):
        throttle = throttles.throttle("model", (8, None, 6000))  # 100 a second, so many at once
        ticket = await throttle.admit(100)
        throttle.release(ticket, "ok", 50)  # it took half as much again
        began = time.perf_counter()
        await throttle.admit(0)
        return time.perf_counter() - began

    assert Worker(controller).run(main) >= 0.4


def test_a_limit_that_fails_in_the_controller_is_an_error_and_no_wait_for_ever(controller):
    async def main(throttles):
        await throttles.throttle("model", ("many", None, None)).admit(0)

    with pytest.raises(RuntimeError, match="the limits that all workers share failed: ValueError"):
        Worker(controller).run(main)


def test_closing_ends_the_thread_despite_pending_waits():
    controller = ControllerThrottles()

    async def main(throttles):
        throttle = throttles.throttle("model", (1, None, None))
        await throttle.admit(0)
        waiting = asyncio.create_task(throttle.admit(0))
        await asyncio.sleep(0)
        controller.close()
        waiting.cancel()
        await asyncio.wait([waiting])

    Worker(controller).run(main)
    assert not any(thread.name == "agentbench-limits" for thread in threading.enumerate())


class Asked:
    """Counts which limits a worker had to ask for."""

    def __init__(self) -> None:
        self.of_what = []
        self.numbers = itertools.count()

    def __call__(self, message) -> None:
        if message[0] == "admit":
            self.of_what.append(message[2])


@pytest.mark.parametrize(
    ("total", "workers", "share", "asks"), [(8, 4, 2, False), (10, 4, 3, True), (2, 4, 1, True), (5, 1, 5, False)]
)
def test_runs_are_shared_evenly_and_only_the_remainder_needs_requests(total, workers, share, asks):
    async def work(job, runner):
        return "done"

    limits = RunLimits(total, {"default": total}, workers)
    assert limits.concurrency == share
    assert (limits.within(work, WorkerThrottles(Asked())) is not work) == asks
