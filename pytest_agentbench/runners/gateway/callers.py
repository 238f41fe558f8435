"""Know which run of this process opened a connection to the session's listener."""

from __future__ import annotations

import contextlib
import socket
import sys
import weakref
from collections import deque
from typing import Any

from pytest_agentbench.runners.base import RUN, RunContext

_MOST_OPENED = 4096
"""Connections that are remembered until their request comes; idle ones are few and closed after seconds."""


class Callers:
    """The runs whose tasks and threads open connections to a port of this machine.

    A client that all runs share sends every request with the token of the run that created it. HTTP does not name the
    sender. Python's audit hook does: it reports each call of `connect` in the caller's context, which holds the run.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._opened: deque[tuple[weakref.ref[socket.socket], RunContext]] = deque(maxlen=_MOST_OPENED)
        _watch(self)

    def close(self) -> None:
        """Stop watching."""
        _WATCHING.pop(self._port, None)

    def note(self, connecting: socket.socket, run: RunContext) -> None:
        """Note a connection that is about to be made. In any thread."""
        # deque.append is atomic, so the audit hook needs no lock: a lock here could deadlock, because the hook runs
        # inside any connect call
        self._opened.append((weakref.ref(connecting), run))

    def take(self, client: Any) -> RunContext | None:
        """Return the run that opened the connection from the address `client`, or None if it is unknown.

        Connections of other processes, of threads that an agent started, and of code outside of runs are unknown.
        """
        # A copy, because other threads append. Dead and taken entries are removed on the way
        for opened in list(self._opened):
            connecting, address = opened[0](), None
            with contextlib.suppress(OSError):  # the socket is closed
                address = connecting.getsockname() if connecting is not None else None
            if address is None or address == client:
                with contextlib.suppress(ValueError):
                    self._opened.remove(opened)
            if address is not None and address == client:
                return opened[1]
        return None


# Python cannot remove an audit hook, so the process has one hook for all listeners. It looks up the port.
_WATCHING: dict[int, Callers] = {}
_installed = False


def _watch(callers: Callers) -> None:
    global _installed
    _WATCHING[callers._port] = callers
    if not _installed:
        _installed = True
        sys.addaudithook(_on_event)


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect" and _WATCHING and (run := RUN.get()) is not None:
        connecting, address = arguments
        if isinstance(address, tuple) and len(address) > 1 and isinstance(address[1], int):
            callers = _WATCHING.get(address[1])
            if callers is not None:
                callers.note(connecting, run)
