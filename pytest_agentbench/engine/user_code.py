"""Isolate agents in the session's process: their threads, exceptions, logs, streams, and steps that block the loop."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import errno
import io
import logging
import os
import queue
import sys
import sysconfig
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from importlib.machinery import PathFinder
from types import FrameType, ModuleType, TracebackType
from typing import Any, Literal, NoReturn, TypeVar


def as_raised(error: BaseException, source: str = "the agent") -> BaseException:
    """Return the error with the frames of its source only. An error that would end the loop or pytest becomes the
    cause of a RuntimeError.
    """
    error = error.with_traceback(_agent_frames(error.__traceback__))
    if not isinstance(error, StopIteration | KeyboardInterrupt | SystemExit | GeneratorExit):
        return error
    wrapped = RuntimeError(f"{source} raised {error!r}")
    wrapped.__cause__ = error
    return wrapped


def _agent_frames(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback from the first frame that is neither ours nor asyncio's, else all of it."""
    kept = trace
    while kept is not None and kept.tb_frame.f_globals.get("__name__", "").startswith(
        ("pytest_agentbench.", "asyncio.")
    ):
        kept = kept.tb_next
    return kept or trace


T = TypeVar("T")


class DaemonThreads:
    """Runs functions off the event loop, like `asyncio.to_thread`, but on daemon threads.

    An executor joins its threads at exit, so that an agent that never returns would hang the session. A function cannot
    be cancelled: a stuck one keeps its thread, which counts as busy until the function returns.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads = 0
        self._busy = 0

    def run(self, function: Callable[[], T]) -> Awaitable[T]:
        """Return the function's value or exception, awaited on the running loop.

        The context's variables travel along.
        """
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
        """Let idle threads end."""
        for _ in range(self._threads):
            self._calls.put(None)

    def _serve(self) -> None:
        for call in iter(self._calls.get, None):
            call()


_LONGEST_STEP = 1.0
"""Seconds of a step after which it is reported."""
_CALLERS = frozenset(
    {
        "pytest_agentbench.checks.run",
        "pytest_agentbench.engine.running",
        "pytest_agentbench.metrics.registry",
        "pytest_agentbench.runners.subjects",
        "pytest_agentbench.tools.toolbox",
    }
)
"""Modules that call agents, runners, tools, metrics and checks: the packages that they call are the user's code."""
_INSTALLED, _PYTHON = (
    tuple({f"{os.path.realpath(sysconfig.get_path(name))}{os.sep}" for name in names})
    for names in (("purelib", "platlib"), ("stdlib",))
)


class LoopWatch:
    """Checks whether the loop still turns while pytest waits for a run, and finds the step that blocks it.

    Runs pay nothing for it. `runs()` maps tasks to names of runs. `tell(text)` is called once a slow step has ended, or
    at `end`; once for each place in the code.
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
        """Report a step that has not ended."""
        if self._found is not None:
            self._live()

    def _live(self) -> None:
        asked, found, self._asked, self._found = self._asked, self._found, None, None
        if found is None or asked is None or found[1] in self._told:
            return
        name, place = found
        self._told.add(place)
        self._tell(
            f"{name} blocked the event loop for {time.perf_counter() - asked:.1f} s at {place}: no other run went "
            "on; await slow calls, or make the agent a plain function, which gets a thread"
        )

    def _culprit(self) -> tuple[str, str] | None:
        """Return the run of the step, and the place in the agent's code; None if the step runs no code of an agent."""
        frame = _agent_frame(sys._current_frames().get(self._thread.ident or 0))
        if frame is None:
            return None
        task = asyncio.current_task(self._loop)
        name = self._runs().get(task) if task is not None else None
        place = f"{frame.f_code.co_filename}:{frame.f_lineno}, in {frame.f_code.co_name}"
        return name or "a task that an agent has started", place


def _agent_frame(frame: FrameType | None) -> FrameType | None:
    """Return the outermost frame of a user's code: the project's, or that of a package that one of _CALLERS calls."""
    outermost = None
    # The frames run on another thread: one that returns has no caller any more, so each is read once
    while frame is not None and (caller := frame.f_back) is not None:
        owner = _owner(frame)
        if owner == "project" or (owner == "installed" and caller.f_globals.get("__name__") in _CALLERS):
            outermost = frame
        frame = caller
    return outermost


def _owner(frame: FrameType) -> Literal["project", "installed", "other"]:
    """Return whose code a frame runs; `other` is this package and Python itself."""
    file = frame.f_code.co_filename
    # <string> is code that dataclasses and pydantic write: modules that are imported on the loop are no agent's fault
    if frame.f_globals.get("__name__", "").startswith("pytest_agentbench.") or file.startswith(("<frozen", "<string>")):
        return "other"
    path = os.path.realpath(file)
    if path.startswith(_INSTALLED):  # first: where Python is no virtual environment, this folder is below Python's own
        return "installed"
    if path.startswith(_PYTHON):
        return "other"
    return "project"


class PlainImports:
    """A finder of modules before pytest's: imports on other threads than pytest's are not rewritten.

    pytest's loader makes syntax trees, which two threads must not do at once (CPython 3.11.7, gh-106905): one of them
    gets "SystemError: AST constructor recursion depth mismatch". pytest rewrites all modules of plugins, for example
    anyio, which openai and mcp import.
    """

    def __init__(self) -> None:
        self._pytests = threading.get_ident()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        """Return the spec of a module, or None to ask the next finder."""
        if threading.get_ident() == self._pytests:
            return None
        return PathFinder.find_spec(name, path, target)

    def install(self) -> Callable[[], None]:
        """Insert it before all other finders; return a function that removes it."""
        sys.meta_path.insert(0, self)
        return partial(sys.meta_path.remove, self)


class RunTexts:
    """The first characters of a run's logs and prints, for the sections of its item's report."""

    def __init__(self) -> None:
        self._parts: dict[str, io.StringIO] = {}

    def add(self, kind: str, text: str) -> None:
        """Keep a text of a kind: `log`, `stdout`, `stderr`."""
        part = self._parts.setdefault(kind, io.StringIO())
        part.write(text[: max(0, _MOST - part.tell())])

    def items(self) -> list[tuple[str, str]]:
        """Return kinds and texts. A thread that a run has left behind may still add to them."""
        return [(kind, part.getvalue().removesuffix("\n")) for kind, part in [*self._parts.items()]]


_MOST = 65_536
RUN_TEXTS: contextvars.ContextVar[RunTexts | None] = contextvars.ContextVar("agentbench_run_texts", default=None)
"""The texts of the run that the current thread or task belongs to."""
_FORMAT = logging.Formatter("%(levelname)-8s %(name)s:%(filename)s:%(lineno)d %(message)s")


class RunLogHandler(logging.Handler):
    """Gives each run its records, on the root logger while a session with cases runs."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write to the run that the record's thread or task belongs to, if any."""
        if (texts := RUN_TEXTS.get()) is not None:
            texts.add("log", f"{_FORMAT.format(record)}\n")


def outside_runs(record: logging.LogRecord) -> bool:
    """Return a filter for pytest's own handlers that drops records of runs ahead."""
    return RUN_TEXTS.get() is None


def filter_capture_handlers() -> None:
    """Put the filter on pytest's capturing handlers, which come and go with the phases of an item."""
    for handler in logging.getLogger().handlers:
        if type(handler).__module__ == "_pytest.logging" and outside_runs not in handler.filters:
            handler.addFilter(outside_runs)


_NUMBERS = (1, 2)


class Streams:
    """Keeps `sys.stdout` and `sys.stderr`, also pytest's capturing ones, open: only pytest's own thread can close them.

    An agent can still close their descriptors by number, between any two calls of pytest: the next writer finds them
    open again. With capturing, the prints of a run belong to the run: pytest captures only while an item runs, which is
    another run's item, and not between items.
    """

    def __init__(self, *, captured: bool) -> None:
        self._captured = captured
        self._guarded: dict[int, Any] = {}
        self._saved = {number: os.dup(number) for number in _NUMBERS if _is_open(number)}

    def guard(self) -> None:
        """Have calls of `close` and `detach` refused, in the thread of the run that makes them; mend on writing."""
        for name in ("stdout", "stderr", "__stdout__", "__stderr__"):
            stream = getattr(sys, name)
            if stream is None or id(stream) in self._guarded:
                continue
            buffer = getattr(stream, "buffer", None)
            self._guarded[id(stream)] = stream
            for each in (stream, buffer, getattr(buffer, "raw", None)):
                for method in ("close", "detach"):
                    _refuse_elsewhere(each, method, f"sys.{name.strip('_')}")
            self._write_after_mending(name.strip("_"), stream)

    def mend(self) -> None:
        """Open descriptors again that an agent has closed by number, before the next write."""
        for number, saved in self._saved.items():
            if not _is_open(number):
                os.dup2(saved, number)

    def _write_after_mending(self, name: str, stream: Any) -> None:
        """Have `write` and `flush` of a stream go on after `mend` where its descriptor turns out to be closed."""
        if not hasattr(stream, "__dict__"):
            return
        write: Callable[[str], int] = stream.write
        flush: Callable[[], None] = stream.flush

        def mended(call: Callable[..., Any], *args: Any) -> Any:
            try:
                return call(*args)
            except OSError as problem:
                if problem.errno != errno.EBADF:
                    raise
                self.mend()
                # A buffer has kept the text that it failed to pass on; without one (PYTHONUNBUFFERED) it is lost
                if isinstance(getattr(stream, "buffer", None), io.BufferedIOBase):
                    return flush()
                return call(*args)

        def told(text: str, *more: Any) -> Any:
            if self._captured and isinstance(text, str) and (texts := RUN_TEXTS.get()) is not None:
                texts.add(name, text)
                return len(text)
            return mended(write, text, *more)

        stream.write, stream.flush = told, partial(mended, flush)

    def close(self) -> None:
        """Let go of the streams."""
        self.mend()
        for saved in self._saved.values():
            os.close(saved)
        for stream in self._guarded.values():
            buffer = getattr(stream, "buffer", None) if not stream.closed else None
            for each in (stream, buffer, getattr(buffer, "raw", None)):
                for method in ("close", "detach", "write", "flush"):
                    getattr(each, "__dict__", {}).pop(method, None)


def _refuse_elsewhere(stream: Any, method: str, name: str) -> None:
    """Replace a method of one stream by a method for the main thread only, if the stream allows it."""
    call: Callable[..., Any] | None = getattr(stream, method, None)
    if call is None or not hasattr(stream, "__dict__"):
        return

    def guarded(*args: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            return call(*args)
        return _refuse(f"{name}.{method}()")

    setattr(stream, method, guarded)


def _refuse(call: str) -> NoReturn:
    raise RuntimeError(f"{call}: the stream is the whole session's, and stays as it is")


def _is_open(number: int) -> bool:
    try:
        os.get_inheritable(number)  # fstat would hand the GIL over to the engine's thread, six times an item
    except OSError:
        return False
    return True
