"""Which run keeps the event loop from all others: an `async def` agent that computes, or waits without `await`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

_LONGEST_STEP = 1.0
"""Seconds that a step may take before it is told."""
_CALLER = "pytest_agentbench.engine.run"
"""What calls agents: what it calls is theirs wherever it was installed."""
_LIBRARIES = tuple(
    {f"{os.path.realpath(sysconfig.get_path(name))}{os.sep}" for name in ("stdlib", "purelib", "platlib")}
)


class LoopWatch:
    """Asks the loop for a sign of life while pytest waits for a run, and looks at what it is at where none comes.

    Runs pay nothing for it. `runs()` are the names of runs by their tasks, `tell(text)` hears of a step that was too
    long once it has ended, or at the `end`; of steps at one place once.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        thread: threading.Thread,
        runs: Callable[[], Mapping[asyncio.Task[Any], str]],
        tell: Callable[[str], None],
    ) -> None:
        self._loop, self._thread, self._runs, self._tell = loop, thread, runs, tell
        self._asked: float | None = None
        self._found: tuple[str, str] | None = None
        self._told: set[str] = set()

    def look(self) -> None:
        """Called by pytest's thread several times a second while it waits."""
        if self._asked is None:
            self._asked = time.perf_counter()
            with contextlib.suppress(RuntimeError):  # it has just been closed
                self._loop.call_soon_threadsafe(self._live)
        elif self._found is None and time.perf_counter() - self._asked > _LONGEST_STEP:
            self._found = self._culprit()

    def end(self) -> None:
        """Tells of a step that never ends."""
        if self._found is not None:
            self._live()

    def _live(self) -> None:
        asked, found, self._asked, self._found = self._asked, self._found, None, None
        if found is None or asked is None or found[1] in self._told:
            return
        name, place = found
        self._told.add(place)
        self._tell(
            f"{name} blocked the event loop for {time.perf_counter() - asked:.1f} s at {place}: all other runs stood "
            "still; await what takes long, or make the agent a plain function, which gets a thread"
        )

    def _culprit(self) -> tuple[str, str] | None:
        """The run whose step it is, and where in the agent's code it is; None where it is in none of an agent's."""
        frame = _agent_frame(sys._current_frames().get(self._thread.ident or 0))
        if frame is None:
            return None
        task = asyncio.current_task(self._loop)
        name = self._runs().get(task) if task is not None else None
        place = f"{frame.f_code.co_filename}:{frame.f_lineno}, in {frame.f_code.co_name}"
        return name or "a task that an agent has started", place


def _agent_frame(frame: FrameType | None) -> FrameType | None:
    """The outermost frame that is an agent's."""
    found = None
    while frame is not None and frame.f_back is not None:
        caller = frame.f_back.f_globals.get("__name__", "")
        own = frame.f_globals.get("__name__", "").startswith("pytest_agentbench.")
        if not own and (caller == _CALLER or not _is_library(frame.f_code.co_filename)):
            found = frame
        frame = frame.f_back
    return found


def _is_library(file: str) -> bool:
    return file.startswith("<frozen") or os.path.realpath(file).startswith(_LIBRARIES)
