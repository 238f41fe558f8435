"""Limits over all of xdist's workers, kept in the controller, and the lines over which it answers them."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import socket
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_agentbench.models.limits import Outcome, Throttle


SILENT_SECONDS = 120


class Line:
    """Sends over an execnet channel from a thread of its own: one end that does not read holds up nobody else."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._messages: queue.SimpleQueue[Sequence[Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="agentbench-line", daemon=True)
        self._thread.start()

    def send(self, message: Sequence[Any]) -> None:
        """Take a message, plain values only. It is dropped if the other end is gone."""
        self._messages.put(message)

    def close(self) -> None:
        """End the thread, after what was sent before."""
        self._messages.put(None)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # the other end is gone
            while (message := self._messages.get()) is not None:
                self._channel.send(message)


def steady_socket(gateway: Any) -> None:
    """Give a gateway over a socket what execnet leaves out; others are left alone.

    - Messages of two threads do not mix: a long one leaves in pieces, and execnet takes no lock meanwhile.
    - Another end that is gone without a word is noticed after SILENT_SECONDS: execnet would wait for it for ever.
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
    """Keeps the limits in the controller, on an event loop of their own. A worker that is gone gives back what it held.

    Its methods may be called from any thread; those who ask are served in order, whichever worker they are in.
    """

    def __init__(self) -> None:
        self._throttles: dict[Hashable, Throttle] = {}
        self._waiting: dict[tuple[Line, int], asyncio.Task[None]] = {}
        self._held: dict[tuple[Line, int], tuple[Throttle, int]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()

    def receive(self, line: Line, message: Sequence[Any]) -> None:
        """A worker's `admit` or `release`."""
        kind, *rest = message
        self._post(self._admit if kind == "admit" else self._release, line, *rest)

    def gone(self, line: Line) -> None:
        """That worker is no more."""
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
