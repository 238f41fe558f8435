"""Threads for agents that are plain functions."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from pytest_agentbench.engine.raised import as_raised

T = TypeVar("T")


class DaemonThreads:
    """Runs functions off the event loop, like `asyncio.to_thread`, but on daemon threads.

    An executor joins its threads at exit, where an agent that never returns would hang the session; a function cannot
    be cancelled, so a stuck one is left behind. A thread counts as busy until its function is back.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads = 0
        self._busy = 0

    def run(self, function: Callable[[], T]) -> Awaitable[T]:
        """The function's value or exception, awaited on the running loop. The context's variables travel along."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()

        def back(value: Any, error: BaseException | None) -> None:
            self._busy -= 1
            if future.done():  # cancelled meanwhile
                return
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(as_raised(error))  # no future carries StopIteration

        def call() -> None:
            value, error = None, None
            try:
                value = context.run(function)
            except BaseException as caught:  # noqa: BLE001  # SystemExit too: the agent's, not this thread's
                error = caught
            if not loop.is_closed():
                loop.call_soon_threadsafe(back, value, error)

        self._busy += 1
        if self._busy > self._threads:
            self._threads += 1
            threading.Thread(target=self._serve, name=f"agentbench-agent-{self._threads}", daemon=True).start()
        self._calls.put(call)
        return future

    def close(self) -> None:
        """Lets idle threads end."""
        for _ in range(self._threads):
            self._calls.put(None)

    def _serve(self) -> None:
        for call in iter(self._calls.get, None):
            call()
