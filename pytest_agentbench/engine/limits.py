"""Limits over all of xdist's workers, kept in the controller, and the lines over which it answers them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import queue
import socket
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_agentbench.models.client import Metered
    from pytest_agentbench.models.limits import Outcome, Throttle, Throttling
    from pytest_agentbench.records.case import Limits


SILENT_SECONDS = 120


class Line:
    """Sends over an execnet channel from its own thread, so that a receiver that does not read blocks nobody else."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._messages: queue.SimpleQueue[Sequence[Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="agentbench-line", daemon=True)
        self._thread.start()

    def send(self, message: Sequence[Any]) -> None:
        """Take a message, plain values only. It is dropped if the other end is gone."""
        self._messages.put(message)

    def close(self) -> None:
        """End the thread after all earlier messages are sent."""
        self._messages.put(None)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # the other end is gone
            while (message := self._messages.get()) is not None:
                self._channel.send(message)


def steady_socket(gateway: Any) -> None:
    """Mend two defects of execnet's gateways over sockets; other gateways are left unchanged.

    - Messages of two threads do not mix: execnet sends a long message in pieces without a lock.
    - A peer that disappears without closing is noticed after SILENT_SECONDS: execnet would wait for it for ever.
    """
    io: Any = getattr(gateway, "_io", None)
    if not hasattr(io, "sock") or "write" in vars(io):
        return
    lock, write = threading.Lock(), io.write

    def write_whole(data: bytes) -> None:
        with lock:
            write(data)

    io.write = write_whole
    probes = {"TCP_KEEPIDLE": SILENT_SECONDS // 2, "TCP_KEEPINTVL": max(1, SILENT_SECONDS // 8), "TCP_KEEPCNT": 4}
    io.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in {**probes, "TCP_USER_TIMEOUT": SILENT_SECONDS * 1000}.items():
        if hasattr(socket, option):  # not every platform has them all
            io.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


# Limits over all of xdist's workers, kept in the controller: workers ask it before each request (`asking`).
#
# What is said over the channel:
#
# - worker to controller: `("admit", number, of_what, limit, tokens)`; then, once that is over, `("release", number,
#   outcome, beyond)`, also where it gave up waiting
# - controller to worker: `("admitted", number)` once it may begin, or `("refused", number, reason)`


Limit = tuple[int, int | None, int | None]
"""In flight, requests per minute, tokens per minute."""


class ControllerThrottles:
    """Keeps the limits in the controller, on its own event loop. Slots of a lost worker are released.

    Its methods may be called from any thread; requests of all workers are served in order.
    """

    def __init__(self) -> None:
        self._throttles: dict[Hashable, Throttle] = {}
        self._waiting: dict[tuple[Line, int], asyncio.Task[None]] = {}
        self._held: dict[tuple[Line, int], tuple[Throttle, int]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()

    def receive(self, line: Line, message: Sequence[Any]) -> None:
        """Take a worker's `admit` or `release`."""
        kind, *rest = message
        self._post(self._admit if kind == "admit" else self._release, line, *rest)

    def gone(self, line: Line) -> None:
        """Release the slots of a lost worker."""
        if self._loop is not None:
            self._post(self._forget, line)

    def close(self) -> None:
        """End the thread; nobody is answered any more."""
        with self._lock:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join(5)

    def _post(self, step: Callable[..., None], *args: Any) -> None:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._serve, name="agentbench-limits", daemon=True)
                self._thread.start()
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(step, *args)

    def _serve(self) -> None:
        assert self._loop is not None
        self._loop.run_forever()
        for task in (tasks := asyncio.all_tasks(self._loop)):
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks))
        self._loop.close()

    # -- on the loop

    def _admit(self, line: Line, number: int, of_what: Hashable, limit: Limit, tokens: float) -> None:
        assert self._loop is not None
        asked = self._loop.create_task(self._answer(line, number, of_what, limit, tokens))
        asked.add_done_callback(lambda _: self._waiting.pop((line, number)))
        self._waiting[line, number] = asked

    async def _answer(self, line: Line, number: int, of_what: Hashable, limit: Limit, tokens: float) -> None:
        try:
            throttle = self._throttle(of_what, limit)
            self._held[line, number] = throttle, await throttle.admit(tokens)
            line.send(("admitted", number))
        except Exception as error:  # noqa: BLE001  # asyncio would only log it, and the worker wait for ever
            line.send(("refused", number, repr(error)))

    def _throttle(self, of_what: Hashable, limit: Limit) -> Throttle:
        from pytest_agentbench.models.limits import Throttle  # a session that limits nothing does not import it

        throttle = self._throttles.get(of_what)
        if throttle is None:
            throttle = self._throttles[of_what] = Throttle(*limit)
        return throttle

    def _release(self, line: Line, number: int, outcome: Outcome, beyond: float) -> None:
        if (held := self._held.pop((line, number), None)) is not None:
            throttle, ticket = held
            throttle.release(ticket, outcome, beyond)
        elif (asked := self._waiting.get((line, number))) is not None:
            asked.cancel()

    def _forget(self, line: Line) -> None:
        for one, number in [*self._waiting, *self._held]:
            if one is line:
                self._release(line, number, "failed", 0)


class WorkerThrottles:
    """A worker's way to limits that the controller keeps. For the engine's loop; `send` must not wait."""

    def __init__(self, send: Callable[[Sequence[Any]], None]) -> None:
        self._send = send
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[None]] = {}

    def throttle(self, of_what: Hashable, limit: Limit) -> Throttling:
        """Return the limit on `of_what`, which every worker calls the same."""
        return _AskingThrottle(self, of_what, limit)

    def of_model(self, concurrency: int, metered: Metered, limits: Limits) -> Throttling:
        """Return a model's own limits; `concurrency` is the default for the requests that all workers make at once."""
        in_flight = limits.max_concurrency if "max_concurrency" in limits.model_fields_set else concurrency
        return self.throttle(metered, (in_flight, limits.rpm, limits.tpm))

    async def admit(self, of_what: Hashable, limit: Limit, tokens: float) -> int:
        """Wait until the controller admits the request. Return the number for `release`."""
        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        self._send(("admit", number, of_what, limit, tokens))
        try:
            await answer
        except asyncio.CancelledError:
            self.release(number, "failed", 0)
            raise
        finally:
            del self._asked[number]
        return number

    def release(self, number: int, outcome: Outcome, beyond: float) -> None:
        """Report that an admitted request has ended."""
        self._send(("release", number, outcome, beyond))

    def receive(self, message: Sequence[Any]) -> None:
        """Take the controller's answer. One that comes after the asker gave up is for nobody: it has been released."""
        kind, number, *reason = message
        answer = self._asked.get(number)
        if answer is None or answer.done():
            return
        if kind == "admitted":
            answer.set_result(None)
        else:
            answer.set_exception(RuntimeError(f"the limits that all workers share failed: {reason[0]}"))


class _AskingThrottle:
    def __init__(self, throttles: WorkerThrottles, of_what: Hashable, limit: Limit) -> None:
        self._throttles, self._of_what, self._limit = throttles, of_what, limit

    async def admit(self, tokens: float) -> int:
        return await self._throttles.admit(self._of_what, self._limit, tokens)

    def release(self, ticket: int, outcome: Outcome, beyond: float) -> None:
        self._throttles.release(ticket, outcome, beyond)
