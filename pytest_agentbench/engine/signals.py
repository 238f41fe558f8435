"""SIGTERM and SIGHUP end a session as Ctrl-C does: a cancelled CI job, Slurm, Kubernetes, a terminal that closes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

import pytest

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Ended(KeyboardInterrupt):
    """Raised where pytest's main thread is, so that everything ends which Ctrl-C ends."""


class Signals:
    """A plugin, in every process of the session. `tell(number)` hears which signal ended this one.

    `applies()` says that there are runs to end; without any, a signal does what it does without this plugin. So does a
    second signal, always: it ends the process at once.
    """

    def __init__(self, tell: Callable[[int], None], applies: Callable[[], bool] = lambda: True) -> None:
        self._tell, self._applies = tell, applies
        self._session: pytest.Session | None = None
        self._number: int | None = None

    def install(self, session: pytest.Session) -> None:
        """Handles signals until the session is over, but none that are ignored (nohup) or have a handler already."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._session = session
        session.config.pluginmanager.register(self)
        session.config.add_cleanup(self._restore)
        for number in _SIGNALS:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._end)

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        """Tells it here and not in the handler, which may have interrupted somebody who holds the channel's lock."""
        if self._number is not None:
            self._tell(self._number)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """The report is about to be written; a first signal that comes now keeps nobody from it."""
        self._session = None

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._restore()
        if not self._applies():
            os.kill(os.getpid(), number)
            return
        if self._session is not None:
            self._number = number
            name = signal.Signals(number).name
            self._session.shouldstop = f"ended by {name}"  # should what is raised get lost, in a weakref's callback
            raise Ended(name)

    def _restore(self) -> None:
        for number in _SIGNALS:
            if signal.getsignal(number) == self._end:
                signal.signal(number, signal.SIG_DFL)
