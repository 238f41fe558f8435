"""The watchdog: ends a sandbox that takes more than it may, of what no limit of the system counts for all together."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.sandboxes.base import ResourceLimits
from pytest_agentbench.workspaces.sandboxes.usage import Processes, folder_bytes, memory_bytes, nameless_files

Broken = Literal["memory", "disk", "processes"]

_FIRST_LOOK_SECONDS = 0.2
_LOOK_SECONDS = 0.1
_SHARE_OF_TIME = 10
_IDLE_SECONDS = 5.0
_HIDDEN_LOOKS = 3
"""As many in a row are no accident: what starts a command in a container is not to be looked into for a moment."""

_RESERVE_BYTES = 64 * 2**20
_RESERVE_SHARE = 20


@dataclass(slots=True, eq=False)
class Watch:
    """A sandbox that is looked after. `roots` gives the pids whose descendants, and they, are what runs in it.

    `kill` ends all of that, at once, and is told why: a limit that is broken, or that this machine is short of space.
    It is called from the watchdog's thread, and may be called again. `hidden_looks` counts looks in a row at which a
    process did not let itself be looked into.
    """

    folder: Path
    limits: ResourceLimits
    roots: Callable[[], Collection[int]]
    kill: Callable[[Broken | SandboxError], None]
    hidden_looks: int = 0


class Watchdog:
    """Looks after the sandboxes of one session, from one thread, which lives while there is anything to look after.

    Looks at a sandbox after 0.2 s and then every `look_seconds`, less often where looking takes long: a tenth of the
    time at most.
    """

    def __init__(self, look_seconds: float = _LOOK_SECONDS) -> None:
        self._look_seconds = look_seconds
        self._due: dict[Watch, float] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def begin(self, watch: Watch) -> None:
        """Looks after it from now on."""
        with self._changed:
            self._due[watch] = time.monotonic() + _FIRST_LOOK_SECONDS
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="agentbench-watchdog", daemon=True)
                self._thread.start()
            self._changed.notify()

    def end(self, watch: Watch) -> None:
        """Not any longer; nothing where it never did."""
        with self._changed:
            self._due.pop(watch, None)

    def _run(self) -> None:
        while (watches := self._wait()) is not None:
            began = time.monotonic()
            processes = Processes()
            for watch in watches:
                if (broken := _broken(watch, processes)) is not None:
                    watch.kill(broken)
            ended = time.monotonic()
            self._again(watches, ended + max(self._look_seconds, _SHARE_OF_TIME * (ended - began)))

    def _wait(self) -> list[Watch] | None:
        """Those whose time has come; None where nothing was looked after for long."""
        with self._changed:
            while True:
                if not self._due and not self._changed.wait(_IDLE_SECONDS) and not self._due:
                    self._thread = None
                    return None
                now = time.monotonic()
                if watches := [watch for watch, due in self._due.items() if due <= now]:
                    return watches
                if self._due:
                    self._changed.wait(min(self._due.values()) - now)

    def _again(self, watches: list[Watch], due: float) -> None:
        with self._changed:
            self._due.update({watch: due for watch in watches if watch in self._due})


def over_disk(folder: Path, limits: ResourceLimits) -> bool:
    """Whether the files that lie in a workspace take more than it may hold."""
    return folder_bytes(str(folder), limits.workspace_bytes) > limits.workspace_bytes


def _broken(watch: Watch, processes: Processes) -> Broken | SandboxError | None:
    """What the sandbox has too much of. A failure to look is a reason to end it: nothing else would."""
    try:
        return _found(watch, processes)
    except Exception as error:  # noqa: BLE001  whatever it is, the sandbox cannot be looked after
        return SandboxError(f"a sandbox could not be looked after, so it was ended: {type(error).__name__}: {error}")


def _found(watch: Watch, processes: Processes) -> Broken | SandboxError | None:
    limits, roots = watch.limits, watch.roots()
    pids = processes.below(roots)
    if processes.threads(pids) - len(roots) > limits.processes:
        return "processes"
    nameless = nameless_files(pids, os.stat(watch.folder).st_dev)
    roughly = processes.resident(pids) + nameless.memory
    if 2 * roughly > limits.memory_bytes and memory_bytes(pids, nameless.memory) > limits.memory_bytes:
        return "memory"
    room = limits.workspace_bytes - nameless.disk
    watch.hidden_looks = watch.hidden_looks + 1 if nameless.hidden else 0
    if watch.hidden_looks >= _HIDDEN_LOOKS or folder_bytes(str(watch.folder), room) > room:
        return "disk"
    return _short_of_space(watch.folder)


def _short_of_space(folder: Path) -> SandboxError | None:
    found = os.statvfs(folder)
    reserve = min(_RESERVE_BYTES, found.f_blocks * found.f_frsize // _RESERVE_SHARE)
    free = found.f_bavail * found.f_frsize
    if free >= reserve:
        return None
    return SandboxError(
        f"{folder}: only {free:,} bytes are free there, so the sandbox was ended; free some space or set TMPDIR to "
        "another file system"
    )
