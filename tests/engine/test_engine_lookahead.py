from __future__ import annotations

import asyncio
import gc
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_agentbench.engine.job import Job, Result
from pytest_agentbench.engine.lookahead import LookAhead


def jobs(count, group=None):
    return [Job(f"c{i}", (), lambda: None, None, start_group=group) for i in range(count)]


class Engine:
    """A LookAhead over a work function, closed at the end of the test."""

    def __init__(self, work, *, concurrency=4, window=8, **kw):
        self.look = LookAhead(work, concurrency=concurrency, window=window, **kw)
        self.look.grace = 0.2

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.look.close()

    def plan(self, jobs, suspects=()):
        self.look.post(self.look.extend, jobs, suspects)

    def result(self, job, runner="runner", *, shared=True, tick=lambda: None):
        return self.look.result(job, runner, shared=shared, tick=tick)

    def settled(self):
        """Waits until what the engine's thread was handed so far has started whatever it starts."""

        async def turns():
            for _ in range(5):
                await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(turns(), self.look.loop).result(5)


async def ok(job, runner):
    await asyncio.sleep(0)
    return Result(path=job.case_id)


@pytest.mark.slow
@given(
    count=st.integers(1, 40),
    concurrency=st.integers(1, 8),
    window=st.integers(1, 20),
    groups=st.integers(1, 3),
    suspects=st.sets(st.integers(0, 39)),
    naps=st.lists(st.integers(0, 3), min_size=40, max_size=40),
)
@settings(max_examples=40)
def test_every_job_runs_once_and_gives_its_own_result(count, concurrency, window, groups, suspects, naps):
    ran, most, runners = [], [0], [object(), object(), object()]

    async def work(job, runner):
        ran.append(job.case_id)
        most[0] = max(most[0], len(engine.look.running))
        for _ in range(naps[int(job.case_id[1:])]):
            await asyncio.sleep(0)
        return Result(path=job.case_id)

    all_jobs = jobs(count)
    for number, job in enumerate(all_jobs):
        job.start_group = number % groups
    with Engine(work, concurrency=concurrency, window=window) as engine:
        engine.plan(all_jobs, [job for number, job in enumerate(all_jobs) if number in suspects])
        for job in all_jobs:
            assert engine.result(job, runners[job.start_group]).path == job.case_id
    assert sorted(ran) == sorted(job.case_id for job in all_jobs)
    assert most[0] <= concurrency + 1  # the job that pytest is on starts whatever is in flight


def test_jobs_start_in_order_and_within_the_window():
    started, release = [], asyncio.Event()

    async def work(job, runner):
        started.append(job.case_id)
        if job.case_id != "c0":
            await release.wait()
        return Result()

    with Engine(work, concurrency=100, window=5) as engine:
        engine.plan(planned := jobs(50))
        engine.result(planned[0])
        engine.settled()
        assert started == ["c0", "c1", "c2", "c3", "c4", "c5"]


def test_the_window_counts_from_an_item_that_was_ranked_late():
    started, busy, release = [], threading.Event(), asyncio.Event()

    async def work(job, runner):
        started.append(job.case_id)
        if job.case_id != "c0":
            await release.wait()
        return Result()

    with Engine(work, concurrency=100, window=5) as engine:
        engine.look.post(busy.wait, 5)
        engine.plan(planned := jobs(50))
        engine.result(planned[0], tick=busy.set)  # it waits already when the plan reaches the engine
        engine.settled()
        assert started == ["c0", "c1", "c2", "c3", "c4", "c5"]


def test_nothing_starts_before_a_runner_is_known():
    started = []

    async def work(job, runner):
        started.append((job.case_id, runner))
        return Result()

    with Engine(work) as engine:
        first, second = jobs(2, group="a"), jobs(2, group="b")
        engine.plan(first + second)
        engine.result(first[0], "A")
        engine.settled()
        assert {runner for _, runner in started} == {"A"}
        engine.result(second[0], "B")
        assert ("c0", "B") in started


def test_a_runner_that_is_not_shared_opens_nothing():
    started = []

    async def work(job, runner):
        started.append(job.case_id)
        return Result()

    with Engine(work) as engine:
        engine.plan(planned := jobs(5))
        engine.result(planned[0], shared=False)
        engine.settled()
        assert started == ["c0"]


def test_a_job_that_ran_with_another_runner_is_run_again_with_its_own():
    async def work(job, runner):
        return Result(path=f"{job.case_id} by {runner}")

    with Engine(work) as engine:
        engine.plan(planned := jobs(3))
        engine.result(planned[0], "A")
        engine.settled()
        assert engine.result(planned[1], "B").path == "c1 by B"
        assert engine.result(planned[2], "A").path == "c2 by A"


def test_a_run_under_way_with_another_runner_is_cancelled():
    events = []

    async def work(job, runner):
        if (job.case_id, runner) == ("c1", "A"):
            try:
                await asyncio.Event().wait()
            finally:
                events.append("cancelled")
        return Result(path=runner)

    with Engine(work) as engine:
        engine.plan(planned := jobs(2))
        engine.result(planned[0], "A")
        assert engine.result(planned[1], "B").path == "B"
        engine.settled()
        assert events == ["cancelled"]


def test_a_suspect_runs_alone_when_it_is_asked_for():
    started, together = [], []

    async def work(job, runner):
        started.append(job.case_id)
        if job.case_id in ("c2", "c3"):
            await asyncio.sleep(0)
            together.append(len(engine.look.running))
        return Result()

    with Engine(work) as engine:
        planned = jobs(6)
        engine.plan(planned, planned[2:4])
        engine.result(planned[0])
        engine.settled()
        assert started == ["c0", "c1"]  # nothing that comes after a suspect, lest it is blamed for that one's crash
        for job in planned[1:4]:
            engine.result(job)
        engine.settled()
        assert started == ["c0", "c1", "c2", "c3"]
        engine.result(planned[4])
        engine.settled()
        assert started == ["c0", "c1", "c2", "c3", "c4", "c5"]
        assert together == [1, 1]


def test_limits_of_a_group_hold():
    most = {"a": 0, "b": 0}

    async def work(job, runner):
        most[job.start_group] = max(most[job.start_group], engine.look.busy[job.start_group])
        for _ in range(5):
            await asyncio.sleep(0)
        return Result()

    with Engine(work, concurrency=10, window=100, limits={"a": 2, "b": 7}) as engine:
        planned = jobs(30, "a") + jobs(30, "b")
        engine.plan(planned)
        for job in planned:
            engine.result(job)
    assert most["a"] <= 3  # one more: the job that pytest is on
    assert 4 <= most["b"] <= 8


def test_an_exception_of_the_work_is_the_error_of_its_job():
    async def work(job, runner):
        raise {"c0": ValueError("no"), "c1": KeyboardInterrupt(), "c2": asyncio.CancelledError()}[job.case_id]

    with Engine(work) as engine:
        engine.plan(planned := jobs(3))
        errors = [engine.result(job).error for job in planned]
    assert [type(error) for error in errors] == [ValueError, KeyboardInterrupt, RuntimeError]


def test_halting_cancels_and_keeps_finished_results():
    async def work(job, runner):
        if job.case_id == "c2":
            await asyncio.Event().wait()
        return Result(path=job.case_id)

    with Engine(work) as engine:
        engine.plan(planned := jobs(4))
        engine.result(planned[0])
        engine.settled()
        engine.look.halt("enough")
        assert engine.result(planned[1]).path == "c1"
        assert engine.result(planned[2]).not_run == "enough"
        assert engine.result(planned[3]).path == "c3"


def test_an_exception_of_a_step_is_raised_for_every_waiter():
    with Engine(ok) as engine:
        engine.plan(planned := jobs(3))
        engine.result(planned[0])
        engine.look._pump = lambda: 1 / 0
        engine.look.post(engine.look._pump)
        engine.look.thread.join(5)
        fresh = jobs(2)
        for job in fresh:
            assert "the engine died: ZeroDivisionError" in str(engine.result(job).error)


def stop(loop):
    loop.stop()


def leave(loop):
    loop.call_soon(sys.exit, 3)


def leave_in_a_task(loop):
    async def task():
        raise KeyboardInterrupt

    loop.create_task(task())


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("end", "cause"),
    [(stop, "stopped from within"), (leave, "SystemExit(3)"), (leave_in_a_task, "KeyboardInterrupt()")],
)
def test_a_stopped_loop_is_an_error_of_every_pending_job(end, cause):
    async def work(job, runner):
        end(asyncio.get_running_loop())
        await asyncio.Event().wait()

    def told():
        with Engine(work) as engine:
            engine.plan(planned := jobs(6))
            results = [engine.result(job) for job in planned]
        assert {result.not_run for result in results} == {None}
        return [str(result.error) for result in results]

    errors = told()
    gc.collect()  # the loop's remains warn here, and not in whatever test is on when they are found
    assert all("the engine died" in error and cause in error for error in errors)
    assert "in flight were c0, c1, c2, 1 more" in errors[5]


def test_runs_that_an_agent_cancels_are_errors_even_while_draining():
    async def work(job, runner):
        engine.look.drain("enough")
        for task in asyncio.all_tasks():
            task.cancel()
        await asyncio.sleep(0)

    with Engine(work) as engine:
        engine.plan(planned := jobs(2))
        assert "cancelled from within" in str(engine.result(planned[0]).error)


def test_a_job_that_is_asked_for_after_a_pause_runs_on_a_new_loop():
    """pytest-rerunfailures sets the last item up again after its teardown."""
    closed, loops = [], []

    async def work(job, runner):
        loops.append(asyncio.get_running_loop())
        return Result(path=f"{job.case_id} by {runner}")

    async def close():
        closed.append(True)

    with Engine(work, on_close=close) as engine:
        engine.plan(planned := jobs(2))
        for runner in ("first", "second"):
            assert engine.result(planned[1], runner).path == f"c1 by {runner}"
            engine.look.pause()
            assert not engine.look.thread.is_alive()
        assert len({*loops}) == len(closed) == 2
        engine.look.close()
        assert "the session had ended" in str(engine.result(planned[0]).error)


def test_closing_ends_the_thread_and_awaits_on_close():
    closed = []

    async def close():
        closed.append(True)

    with Engine(ok, on_close=close) as engine:
        engine.plan(planned := jobs(3))
        engine.result(planned[0])
        engine.look.close()
        assert closed == [True]
        assert not engine.look.thread.is_alive()
        assert engine.look.loop.is_closed()
        lost = engine.result(jobs(1)[0])
        assert lost.not_run is None
        assert "the session had ended" in str(lost.error)


def test_an_engine_that_never_ran_is_closed_too():
    engine = LookAhead(ok, concurrency=1, window=1)
    engine.close()
    engine.close()
    assert engine.loop.is_closed()


def test_an_agent_that_swallows_cancellation_is_left_behind():
    free = threading.Event()

    async def work(job, runner):
        while not free.is_set():
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                continue

    with Engine(work) as engine:
        engine.plan(planned := jobs(2))
        waiting = threading.Thread(target=engine.result, args=(planned[0],), daemon=True)
        waiting.start()
        while not engine.look.running:
            engine.settled()
        engine.look.close()
        waiting.join(5)
        assert not waiting.is_alive()
        assert engine.look.loop.is_closed()
        free.set()


def test_jobs_that_end_at_once_are_all_served():
    async def work(job, runner):
        return Result(path=job.case_id)

    with Engine(work, concurrency=4, window=100_000) as engine:
        engine.plan(planned := jobs(3000))
        assert [engine.result(job).path for job in planned] == [job.case_id for job in planned]


def test_finished_results_are_served_after_the_end_of_the_engine():
    async def work(job, runner):
        if job.case_id == "c1":
            for _ in range(2):  # a turn after the other has ended, whose answer waits for more to end
                await asyncio.sleep(0)
            asyncio.get_running_loop().stop()
        return Result(path=job.case_id)

    with Engine(work) as engine:
        engine.plan(planned := jobs(2))
        assert engine.result(planned[0]).path == "c0"


def test_tick_is_called_while_pytest_waits():
    held, ticked = asyncio.Event(), threading.Event()

    async def work(job, runner):
        await held.wait()
        return Result()

    def tick():
        ticked.set()
        engine.look.post(held.set)

    with Engine(work) as engine:
        engine.plan(planned := jobs(1))
        engine.result(planned[0], tick=tick)
    assert ticked.is_set()


def test_an_engine_that_has_run_nothing_is_idle_at_once():
    idle = []
    with Engine(ok) as engine:
        engine.plan(planned := jobs(2))
        engine.look.finish("ended by SIGTERM", 60, lambda: idle.append(True))
        assert idle
        assert engine.result(planned[0]).not_run == "ended by SIGTERM"


def test_draining_finishes_jobs_in_flight_and_starts_nothing_more():
    started, go = [], asyncio.Event()

    async def work(job, runner):
        started.append(job.case_id)
        await go.wait()
        return Result(path=job.case_id)

    with Engine(work, concurrency=2) as engine:
        engine.plan(planned := jobs(5))
        engine.look.runners[None] = "runner"
        engine.look.thread.start()
        engine.settled()
        engine.look.drain("enough")
        engine.look.drain("more than enough")
        engine.look.post(go.set)
        results = [engine.result(job) for job in planned]
    assert started == ["c0", "c1"]
    assert [result.path for result in results[:2]] == started
    assert {result.not_run for result in results[2:]} == {"enough"}


def test_while_draining_no_run_is_made_again_with_another_runner():
    async def work(job, runner):
        return Result(path=f"{job.case_id} by {runner}")

    with Engine(work) as engine:
        engine.plan(planned := jobs(2))
        engine.result(planned[0], "one")
        engine.settled()
        engine.look.drain("enough")
        assert engine.result(planned[1], "two", shared=False).not_run == "enough"


def test_closing_cancels_runs_that_a_drain_would_have_awaited():
    ended = []

    async def work(job, runner):
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(job.case_id)

    with Engine(work) as engine:
        engine.plan(planned := jobs(2))
        waiter = threading.Thread(target=engine.result, args=[planned[0]])
        waiter.start()
        while len(engine.look.running) < 2:
            engine.settled()
        engine.look.drain("enough")
        engine.look.close()
        waiter.join(5)
    assert sorted(ended) == ["c0", "c1"]
