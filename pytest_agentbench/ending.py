"""The end of a session by a signal: each run's requests in flight may end, and it asks no model for anything more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar


class RunCalls:
    """The calls of one run to models. For one event loop.

    Once the session ends, the run is cancelled as soon as it waits to send a request, but not before the last request
    of the run that was sent is answered: that one is paid for. A run that needs no further request goes on.
    """

    def __init__(self) -> None:
        self.task: asyncio.Task[Any] | None = None
        self._ending = False
        self._cancelled = False
        self._calls: dict[_Call, bool] = {}
        """The calls that have not returned, and whether the request of each is sent."""

    def end(self, *, is_free: bool = False) -> None:
        """Let no further request be sent; a free run, of which nothing is in flight, is cancelled."""
        self._ending = True
        if is_free and not any(self._calls.values()):
            self._cancel()
        self._look()

    async def send(self, call: _Call) -> None:
        """Note that the call sends its request now; wait to be cancelled if it may not."""
        if self._ending:
            self._look()
            await asyncio.get_running_loop().create_future()
        self._calls[call] = True

    def wait(self, call: _Call) -> None:
        """Note that the call waits until it may send a request."""
        self._calls[call] = False
        self._look()

    def leave(self, call: _Call) -> None:
        """Forget a call that has returned."""
        self._calls.pop(call, None)
        self._look()

    def _look(self) -> None:
        stuck = self._calls and not any(self._calls.values())
        if self._ending and stuck:
            self._cancel()

    def _cancel(self) -> None:
        if not self._cancelled and self.task is not None:
            self._cancelled = True  # once: a second time would interrupt the cleaning up after the first
            self.task.cancel()


class _Call:
    """One call to a model, with its retries."""

    def __init__(self, run: RunCalls) -> None:
        self.run = run


RUN: ContextVar[RunCalls | None] = ContextVar("RUN", default=None)
"""The calls of the run that the code is a part of."""
_CALL: ContextVar[_Call | None] = ContextVar("CALL", default=None)


_P = ParamSpec("_P")
_T = TypeVar("_T")


def counted(function: Callable[_P, Coroutine[Any, Any, _T]]) -> Callable[_P, Coroutine[Any, Any, _T]]:
    """Count a function that sends requests as one call of its run."""

    @wraps(function)
    async def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        run = RUN.get()
        if run is None or _CALL.get() is not None:
            return await function(*args, **kwargs)
        token = _CALL.set(made := _Call(run))
        try:
            run.wait(made)
            return await function(*args, **kwargs)
        finally:
            run.leave(made)
            _CALL.reset(token)

    return call


async def before_sending() -> None:
    """Note that the call sends a request, or wait for the run's end if the session ends."""
    if (call := _CALL.get()) is not None:
        await call.run.send(call)


def before_waiting() -> None:
    """Note that the call has no request in flight, and is to send another."""
    if (call := _CALL.get()) is not None:
        call.run.wait(call)
