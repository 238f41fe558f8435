"""Run code within a second limit, because it would bring the machine down if the sandbox under test failed.

    output = bounded(attack, "bubblewrap", processes=500)   # `attack` is a function of the test's module

Needs root and cgroups v1. Files are bounded by small_disk.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pytest

P = ParamSpec("P")
T = TypeVar("T")

_CGROUPS = Path("/sys/fs/cgroup")
_PIDS, _MEMORY = "pids.max", "memory.limit_in_bytes"
PROCESSES = 4_000
MEMORY_BYTES = 3 * 2**29
SECONDS = 90
"""Limits of `bounded`: processes and threads, bytes, wall-clock seconds; far above the limits of the tested
sandboxes.

"""


BOUNDED = "AGENTBENCH_TEST_BOUNDED"
"""Variable that is set if the whole session runs below such a limit, on a small disk."""


class Breached(AssertionError):
    """The outer bound stopped the attack: the sandbox did not contain it."""


def bounded(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function of a module in a new process with these limits, which also cover its children.

    Return its result, or raise its exception; both must be picklable. Raise Breached if a limit was reached. Containers
    are not counted, see `bound_containers`. Skip the test on machines without writable cgroups v1.
    """
    if os.environ.get(BOUNDED):
        return function(*args, **kwargs)
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_answer, args=(there,))
    with ExitStack() as stack:
        stack.enter_context(here)
        group = stack.enter_context(_group())
        process.start()
        there.close()
        group.join(process.pid or 0)
        here.send((function, args, kwargs))
        try:
            answered = here.poll(SECONDS)
            ok, value = here.recv() if answered else (False, Breached(f"not done within {SECONDS} s"))
        except EOFError:
            ok, value = False, Breached("its process was killed")
        finally:
            breaches = group.breaches()
            group.kill()
            process.join()
            process.close()
    if breaches:
        raise Breached(f"the sandbox let it reach the outer bound: {', '.join(breaches)}")
    if not ok:
        raise value
    return value


@contextmanager
def bound_containers(pid: int) -> Iterator[None]:
    """Bound all containers of the daemon together for the block; `pid` is a process of one of them on this machine."""
    with ExitStack() as stack:
        for controller, limit, value in (("pids", _PIDS, 2 * PROCESSES), ("memory", _MEMORY, 5 * MEMORY_BYTES)):
            parent = _cgroup_of(pid, controller).parent
            assert parent != _CGROUPS / controller, f"the daemon's containers have no cgroup of their own: {parent}"
            stack.enter_context(_lowered(parent / limit, value))
        yield


class _Group:
    """A cgroup of each controller, with limits."""

    def __init__(self, name: str) -> None:
        self._pids, self._memory = _CGROUPS / "pids" / name, _CGROUPS / "memory" / name
        self._folders = (self._pids, self._memory)
        for folder in self._folders:
            folder.mkdir()
        (self._pids / _PIDS).write_text(str(PROCESSES))
        (self._memory / _MEMORY).write_text(str(MEMORY_BYTES))

    def join(self, pid: int) -> None:
        for folder in self._folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def breaches(self) -> list[str]:
        """Return the limits that were reached."""
        refused = int((self._pids / "pids.events").read_text().split()[1])
        killed = int((self._memory / "memory.oom_control").read_text().split()[-1])
        return [f"{PROCESSES} processes"] * bool(refused) + [f"{MEMORY_BYTES >> 20} MB"] * bool(killed)

    def kill(self) -> None:
        """Kill processes until the group is empty."""
        (self._pids / _PIDS).write_text("0")
        until = time.monotonic() + 20
        while pids := (self._pids / "cgroup.procs").read_text().split():
            assert time.monotonic() < until, f"{len(pids)} processes of {self._pids.name} cannot be killed"
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.01)

    def remove(self) -> None:
        for folder in self._folders:
            until = time.monotonic() + 20
            while folder.exists():
                try:
                    folder.rmdir()
                except OSError:  # its last process is not yet buried
                    assert time.monotonic() < until
                    time.sleep(0.01)


@contextmanager
def _group() -> Iterator[_Group]:
    if not all(os.access(_CGROUPS / name, os.W_OK) for name in ("pids/cgroup.procs", "memory/cgroup.procs")):
        pytest.skip("an outer bound around dangerous commands needs root and cgroups v1")
    group = _Group(f"agentbench-test-{uuid.uuid4().hex[:12]}")
    try:
        yield group
    finally:
        group.kill()
        group.remove()


def _answer(connection: Connection) -> None:
    """Call the function that comes through the pipe, and send its result back."""
    function, args, kwargs = connection.recv()
    answer: tuple[bool, Any]
    try:
        answer = True, function(*args, **kwargs)
    except Exception as error:
        answer = False, error
    connection.send(answer)


def _cgroup_of(pid: int, controller: str) -> Path:
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return _CGROUPS / controller / path.lstrip("/")
    raise AssertionError(f"process {pid} is in no cgroup of {controller}")


@contextmanager
def _lowered(limit: Path, value: int) -> Iterator[None]:
    before = limit.read_text().strip()
    if before != "max" and int(before) <= value:
        yield
        return
    limit.write_text(str(value))
    try:
        yield
    finally:
        limit.write_text(before)
