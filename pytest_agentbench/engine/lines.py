"""Channels that several threads may send over, whatever the state of the other end."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Sequence
from typing import Any

SILENT_SECONDS = 120


class Line:
    """Sends over an execnet channel from a thread of its own: one end that does not read holds up nobody else."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._messages: queue.SimpleQueue[Sequence[Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="agentbench-line", daemon=True)
        self._thread.start()

    def send(self, message: Sequence[Any]) -> None:
        """Takes a message, plain values only. It is dropped if the other end is gone."""
        self._messages.put(message)

    def close(self) -> None:
        """Ends the thread, after what was sent before."""
        self._messages.put(None)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # the other end is gone
            while (message := self._messages.get()) is not None:
                self._channel.send(message)


def steady_socket(gateway: Any) -> None:
    """Gives a gateway over a socket what execnet leaves out; others are left alone.

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
