from __future__ import annotations

import asyncio

import pytest

from pytest_agentbench.errors import AgentbenchError
from pytest_agentbench.packs.research.call import Rows


class Lost(AgentbenchError):
    pass


async def half(row: int) -> float:
    await asyncio.sleep(0)
    if row % 3 == 0:
        raise Lost(f"row {row}")
    return row / 2


def test_results_are_in_the_rows_order_and_a_failure_takes_no_other_down() -> None:
    ended: list[int] = []
    table: Rows[int, float] = Rows(range(10), lambda row, result: ended.append(row))
    asyncio.run(table.score(half, 4))
    assert [str(each) if isinstance(each, Lost) else each for each in table.results] == [
        f"row {row}" if row % 3 == 0 else row / 2 for row in range(10)
    ]
    assert sorted(ended) == list(range(10))


@pytest.mark.parametrize("workers", [1, 3, 50])
def test_no_more_rows_at_once_than_workers(workers) -> None:
    running: set[int] = set()
    most = 0

    async def score(row: int) -> None:
        nonlocal most
        running.add(row)
        most = max(most, len(running))
        await asyncio.sleep(0)
        running.remove(row)

    asyncio.run(Rows(range(20)).score(score, workers))
    assert most == min(workers, 20)


def test_no_rows_are_no_work() -> None:
    table: Rows[int, float] = Rows([])
    asyncio.run(table.score(half, 3))
    assert table.results == []


def test_a_bug_ends_the_stage_and_finished_rows_stay() -> None:
    async def score(row: int) -> int:
        await asyncio.sleep(0)
        return 1 // (3 - row)

    table: Rows[int, int] = Rows(range(6))
    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(table.score(score, 1))
    assert caught.group_contains(ZeroDivisionError)
    assert table.results == [0, 0, 1, None, None, None]


def test_an_interruption_keeps_finished_rows() -> None:
    async def interrupted() -> list[float | AgentbenchError | None]:
        reached = asyncio.Event()

        async def score(row: int) -> float:
            if row == 2:
                reached.set()
                await asyncio.Event().wait()
            return float(row)

        table: Rows[int, float] = Rows(range(5))
        work = asyncio.create_task(table.score(score, 1))
        await reached.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        return table.results

    assert asyncio.run(interrupted()) == [0.0, 1.0, None, None, None]
