"""The rows of a stage, side by side: one that fails takes no other down."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Generic, TypeVar

from pytest_agentbench.errors import AgentbenchError

S = TypeVar("S")
T = TypeVar("T")


class Rows(Generic[S, T]):
    """The rows of a stage with what came of each; `ended` is told of each as soon as it has ended.

    `results` are in the rows' order: what `score` gave, why it gave nothing, or None where it has not ended, as after
    an interruption.
    """

    def __init__(self, rows: Sequence[S], ended: Callable[[S, T | AgentbenchError], None] = lambda row, result: None):
        self.rows = rows
        self.results: list[T | AgentbenchError | None] = [None] * len(rows)
        self._ended = ended

    async def score(self, score: Callable[[S], Awaitable[T]], workers: int) -> None:
        """Scores every row, at most `workers` at once. A row fails by an AgentbenchError; anything else ends it all."""
        waiting = iter(enumerate(self.rows))
        async with asyncio.TaskGroup() as group:
            for _ in range(min(workers, len(self.rows))):
                group.create_task(self._work(waiting, score))

    async def _work(self, waiting: Iterator[tuple[int, S]], score: Callable[[S], Awaitable[T]]) -> None:
        for number, row in waiting:
            try:
                result: T | AgentbenchError = await score(row)
            except AgentbenchError as error:
                result = error
            self.results[number] = result
            self._ended(row, result)
