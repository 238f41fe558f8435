"""The watchdog: measures a sandbox's use of this machine from outside, and ends a sandbox that exceeds a limit."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.sandboxes.base import ResourceLimits

_ENTRY_BYTES = 1024
_LOOKS = 5
"""Maximum walks for a folder that is renamed before it can be opened."""

_BLOCK = 512
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class _Task:
    pid: int
    parent: int
    threads: int
    resident_bytes: int


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """Bytes of deleted files that processes hold open: on the workspace's file system, and in memory.

    `hidden`: a process of this user does not allow inspection, so its files are unknown.
    """

    disk: int
    memory: int
    hidden: bool = False


class Processes:
    """A snapshot of this machine's processes, empty on a machine without /proc."""

    def __init__(self) -> None:
        self._tasks = {task.pid: task for task in _read_tasks()}
        self._children: dict[int, list[int]] = {}
        for task in self._tasks.values():
            self._children.setdefault(task.parent, []).append(task.pid)

    def below(self, roots: Iterable[int]) -> list[int]:
        """Return the pids of these processes and of all that descend from them."""
        pids: dict[int, None] = {}
        frontier = [pid for pid in roots if pid in self._tasks]
        while frontier:
            pid = frontier.pop()
            if pid not in pids:
                pids[pid] = None
                frontier += self._children.get(pid, [])
        return list(pids)

    def threads(self, pids: Iterable[int]) -> int:
        """Return the number of threads of the processes together."""
        return sum(self._tasks[pid].threads for pid in pids)

    def resident(self, pids: Iterable[int]) -> int:
        """Return the bytes of memory in use.

        Shared memory counts for each process, so the sum is an upper bound.
        """
        return sum(self._tasks[pid].resident_bytes for pid in pids)


def memory_bytes(pids: Iterable[int], nameless: int = 0) -> int:
    """Return memory and swap of these processes. Shared memory counts once, and pages of files do not count.

    `nameless` is the size of deleted files in memory that they hold open, and may have mapped too.
    """
    own, shared = 0, 0
    for pid in pids:
        sums = _read_memory_rollup(pid)
        own += sums.get(b"Pss_Anon", 0) + sums.get(b"SwapPss", 0)
        shared += sums.get(b"Pss_Shmem", 0)
    # A deleted file in memory that is mapped as well is in both sums, so the larger sum counts it once
    return own + max(shared, nameless)


def nameless_files(pids: Iterable[int], device: int) -> OpenFiles:
    """Return the bytes of deleted files that the processes hold open or mapped. `device` is the workspace's."""
    sizes: dict[tuple[int, int], int] = {}
    hidden = False
    for pid in pids:
        try:
            # Sizes by stat have precedence over those of mappings, which may cover a part of a file, or one part twice.
            sizes = _mapped_files(pid) | sizes
            for status in _open_files(pid):
                if status.st_nlink == 0 and stat.S_ISREG(status.st_mode):
                    sizes[status.st_dev, status.st_ino] = status.st_blocks * _BLOCK
        except PermissionError:
            hidden = hidden or _is_hidden(pid)
    disk = sum(size for (where, _), size in sizes.items() if where == device)
    return OpenFiles(disk, sum(sizes.values()) - disk, hidden)


def folder_bytes(path: str, enough: int) -> int:
    """Return the bytes that a folder's files take on disk, and 1 KiB for each entry. Counting ends above `enough`.

    A file with several names counts once. A folder that cannot be read, is nested too deeply for the system, or is
    renamed each time before it is opened counts as more than enough, because its content is unknown.
    """
    always: set[int] | None = None
    for _ in range(_LOOKS):
        total, missed = _count_once(path, enough)
        # A folder that is renamed during one walk is missed once. If every walk misses it, a program is hiding it
        always = missed if always is None else always & missed
        if total > enough or not always:
            return total
    return enough + 1


def _count_once(path: str, enough: int) -> tuple[int, set[int]]:
    """Walk the folder once. Return the bytes, and the inodes of folders that were renamed before they were opened."""
    total, linked, folders, missed = 0, set[tuple[int, int]](), [(path, 0)], set[int]()
    while folders and total <= enough:
        folder, inode = folders.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    total += _ENTRY_BYTES
                    if entry.is_dir(follow_symlinks=False):
                        folders.append((entry.path, entry.inode()))
                        continue
                    status = entry.stat(follow_symlinks=False)
                    if status.st_nlink == 1 or (status.st_dev, status.st_ino) not in linked:
                        total += status.st_blocks * _BLOCK
                    if status.st_nlink > 1:
                        linked.add((status.st_dev, status.st_ino))
                    if total > enough:
                        break
        except (FileNotFoundError, NotADirectoryError):  # renamed, or usually removed
            missed.add(inode)
        except OSError:
            return enough + 1, missed
    return total, missed


def _read_tasks() -> Iterator[_Task]:
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    for name in names:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb", buffering=0) as file:
                    # The command's name may contain blanks and parentheses, so only the last one ends it
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:  # it has ended
                continue
            yield _Task(int(name), int(fields[1]), int(fields[17]), int(fields[21]) * _PAGE)


def _read_memory_rollup(pid: int) -> dict[bytes, int]:
    """Return the kernel's sums over the memory of a process, in bytes."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            lines = file.readlines()[1:]
    except PermissionError:  # not inspectable: count its whole resident memory
        if _is_hidden(pid):
            return {b"Pss_Anon": _resident_bytes(pid)}
        return {}
    except OSError:  # it has ended
        return {}
    return {name: int(value.split()[0]) * 1024 for name, _, value in (line.partition(b":") for line in lines)}


def _open_files(pid: int) -> Iterator[os.stat_result]:
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
    except PermissionError:
        raise
    except OSError:  # it has ended
        return
    for number in numbers:
        try:
            yield os.stat(f"/proc/{pid}/fd/{number}")
        except OSError:
            continue


def _mapped_files(pid: int) -> dict[tuple[int, int], int]:
    """Return the bytes of deleted files that a process has mapped, by device and inode.

    Their descriptors may be closed.
    """
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            lines = [line.split(maxsplit=5) for line in file if line.endswith(b" (deleted)\n")]
    except (ProcessLookupError, FileNotFoundError):
        return {}
    sizes: dict[tuple[int, int], int] = {}
    for addresses, _, _, device, inode, _ in lines:
        first, last = (int(number, 16) for number in addresses.split(b"-"))
        major, minor = (int(number, 16) for number in device.split(b":"))
        which = os.makedev(major, minor), int(inode)
        sizes[which] = sizes.get(which, 0) + last - first
    return sizes


def _is_hidden(pid: int) -> bool:
    """Return whether an uninspectable process is alive and belongs to this user.

    A process of another user is never inspectable, so it does not count.
    Processes of root do not run in a sandbox, except for a moment while a container starts.
    """
    if os.getuid() == 0:
        return False
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            fields = {name: value.split() for name, _, value in (line.partition(b":") for line in file)}
    except OSError:
        return False
    return fields[b"State"][0] not in (b"Z", b"X") and int(fields[b"Uid"][0]) == os.getuid()


def _resident_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except OSError:
        return 0


Broken = Literal["memory", "disk", "processes"]

_FIRST_LOOK_SECONDS = 0.2
_LOOK_SECONDS = 0.1
_SHARE_OF_TIME = 10
_IDLE_SECONDS = 5.0
_HIDDEN_LOOKS = 3
"""Consecutive checks with a hidden process that are no accident: a starting container is hidden for a moment."""

_RESERVE_BYTES = 64 * 2**20
_RESERVE_SHARE = 20


@dataclass(slots=True, eq=False)
class Watch:
    """A supervised sandbox. `roots` returns the pids of its first processes. They and their descendants run in it.

    `kill` ends all of them at once. Its argument is the reason: a broken limit, or this machine's lack of space. The
    watchdog's thread calls it, perhaps more than once. `hidden_looks` counts consecutive checks with a hidden process.
    `counts_processes` is false if the kernel limits the sandbox's processes.
    """

    folder: Path
    limits: ResourceLimits
    roots: Callable[[], Collection[int]]
    kill: Callable[[Broken | SandboxError], None]
    counts_processes: bool = True
    hidden_looks: int = 0


class Watchdog:
    """Supervises the sandboxes of one session in one thread, which runs while there is a sandbox.

    A sandbox is checked after 0.2 s and then every `look_seconds`, or less often, so that checks take at most a tenth
    of the time. `_changed` guards `_due` and `_thread`. Checks and kills run outside of the lock.
    """

    def __init__(self, look_seconds: float = _LOOK_SECONDS) -> None:
        self._look_seconds = look_seconds
        self._due: dict[Watch, float] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def begin(self, watch: Watch) -> None:
        """Start to supervise a sandbox."""
        with self._changed:
            self._due[watch] = time.monotonic() + _FIRST_LOOK_SECONDS
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="agentbench-watchdog", daemon=True)
                self._thread.start()
            self._changed.notify()

    def end(self, watch: Watch) -> None:
        """Stop supervising a sandbox. Does nothing for an unknown one."""
        with self._changed:
            self._due.pop(watch, None)

    def _run(self) -> None:
        while (watches := self._wait()) is not None:
            began = time.monotonic()
            processes = Processes()
            for watch in watches:
                if (broken := _find_broken_limit(watch, processes)) is not None:
                    watch.kill(broken)
            ended = time.monotonic()
            self._again(watches, ended + max(self._look_seconds, _SHARE_OF_TIME * (ended - began)))

    def _wait(self) -> list[Watch] | None:
        """Wait for the next sandboxes to check, and return them; None after a long time without any."""
        with self._changed:
            while True:
                # `_due` is read a second time, because `begin` may have run between the time-out and the lock
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
            # A sandbox that `end` removed during the check stays removed.
            self._due.update({watch: due for watch in watches if watch in self._due})


def exceeds_disk(folder: Path, limits: ResourceLimits) -> bool:
    """Return whether a workspace's files exceed its limit."""
    return folder_bytes(str(folder), limits.workspace_bytes) > limits.workspace_bytes


def _find_broken_limit(watch: Watch, processes: Processes) -> Broken | SandboxError | None:
    """Return the limit that a sandbox has broken, or None. A failed check is a reason to end it, too."""
    try:
        return _check_limits(watch, processes)
    except Exception as error:  # noqa: BLE001  with any error the sandbox is unsupervised
        return SandboxError(f"a sandbox could not be checked, so it was ended: {type(error).__name__}: {error}")


def _check_limits(watch: Watch, processes: Processes) -> Broken | SandboxError | None:
    limits, roots = watch.limits, watch.roots()
    pids = processes.below(roots)
    # Each root is the sandbox's own process, one for each command, so roots do not count as the agent's.
    if watch.counts_processes and processes.threads(pids) - len(roots) > limits.processes:
        return "processes"
    nameless = nameless_files(pids, os.stat(watch.folder).st_dev)
    # smaps_rollup makes the kernel walk all page tables. It is read only if the cheap upper bound is near the limit.
    roughly = processes.resident(pids) + nameless.memory
    if 2 * roughly > limits.memory_bytes and memory_bytes(pids, nameless.memory) > limits.memory_bytes:
        return "memory"
    room = limits.workspace_bytes - nameless.disk
    watch.hidden_looks = watch.hidden_looks + 1 if nameless.hidden else 0
    if watch.hidden_looks >= _HIDDEN_LOOKS or folder_bytes(str(watch.folder), room) > room:
        return "disk"
    return _short_of_space(watch.folder)


def _short_of_space(folder: Path) -> SandboxError | None:
    status = os.statvfs(folder)
    reserve = min(_RESERVE_BYTES, status.f_blocks * status.f_frsize // _RESERVE_SHARE)
    free = status.f_bavail * status.f_frsize
    if free >= reserve:
        return None
    return SandboxError(
        f"{folder}: only {free:,} bytes are free there, so the sandbox was ended; free some space or set TMPDIR to "
        "another file system"
    )
