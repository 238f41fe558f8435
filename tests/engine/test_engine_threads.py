from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest

from pytest_agentbench.engine.user_code import DaemonThreads

WORD = contextvars.ContextVar("word", default="outside")


@pytest.fixture
def threads():
    made = DaemonThreads()
    yield made
    made.close()


def test_values_and_context_travel(threads):
    async def main():
        WORD.set("inside")
        return await threads.run(lambda: (WORD.get(), threading.current_thread().daemon))

    assert asyncio.run(main()) == ("inside", True)


@pytest.mark.parametrize("raised", [ValueError("x"), asyncio.CancelledError()])
def test_exceptions_come_back_as_they_are(threads, raised):
    def fail():
        raise raised

    async def main():
        with pytest.raises(type(raised)):
            await threads.run(fail)

    asyncio.run(main())


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), StopIteration(1), GeneratorExit()])
def test_an_exception_that_would_end_the_loop_is_the_cause_of_an_error(threads, raised):
    def fail():
        raise raised

    async def main():
        with pytest.raises(RuntimeError, match=type(raised).__name__) as caught:
            await threads.run(fail)
        assert caught.value.__cause__ is raised
        return await threads.run(lambda: "the thread lives on")

    assert asyncio.run(main()) == "the thread lives on"


def test_threads_are_used_again(threads):
    async def main():
        names = [await threads.run(lambda: threading.current_thread().name) for _ in range(20)]
        return set(names)

    assert len(asyncio.run(main())) == 1


def test_as_many_threads_as_calls_at_once(threads):
    async def main():
        barrier = threading.Barrier(30)  # passes only when all thirty are there
        await asyncio.gather(*(threads.run(lambda: barrier.wait(5)) for _ in range(30)))

    asyncio.run(main())


def test_a_stuck_call_takes_no_thread_from_others(threads):
    free = threading.Event()

    async def main():
        stuck = asyncio.ensure_future(threads.run(free.wait))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(stuck), 0.01)
        stuck.cancel()
        assert await threads.run(lambda: "another") == "another"
        free.set()

    asyncio.run(main())


def test_a_call_may_come_back_after_its_loop_is_closed(threads):
    free, back = threading.Event(), threading.Event()

    def late():
        free.wait(5)
        back.set()

    async def main():
        threads.run(late)
        await asyncio.sleep(0)

    asyncio.run(main())
    free.set()
    assert back.wait(5)
