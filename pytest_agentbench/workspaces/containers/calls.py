"""Calls that wait for a container engine, made off the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class Calls:
    """Threads that make calls, started as they are needed; the end of the process waits for none of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads = self._busy = 0

    @property
    def is_used(self) -> bool:
        """Whether anything was called yet."""
        return self._threads > 0

    def submit(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """A function that waits, on one of the threads. The future has what `failure` makes of its exception."""
        future: Future[T] = Future()
        self._calls.put(partial(self._work, future, function, args))
        with self._lock:
            self._busy += 1
            if self._busy <= self._threads:
                return future
            self._threads += 1
        threading.Thread(target=self._serve, name="agentbench-docker", daemon=True).start()
        return future

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        """The same, awaited. It runs to its end, though its caller be cancelled."""
        return await asyncio.wrap_future(self.submit(function, *args))

    def failure(self, error: BaseException) -> BaseException:
        """What a caller is told of an exception."""
        return error

    def close(self) -> None:
        """Ends threads that are idle. A later call has a thread of its own."""
        with self._lock:
            ended, self._threads = self._threads, 0
        for _ in range(ended):
            self._calls.put(None)

    def _serve(self) -> None:
        for work in iter(self._calls.get, None):
            work()
            with self._lock:
                self._busy -= 1

    def _work(self, future: Future[T], function: Callable[..., T], args: tuple[Any, ...]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(function(*args))
        except BaseException as error:  # noqa: BLE001 - whoever waits for the future is told
            future.set_exception(self.failure(error))
