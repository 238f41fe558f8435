"""The watchdog: measures from outside what a sandbox takes of this machine, and ends one that takes too much."""

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
"""How often a folder is looked for that has another name whenever it is to be opened."""

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
    """Bytes of files that have no name any more, but are held open: on the workspace's file system, and in memory.

    `hidden`: a process of this user's does not let itself be looked into, so nobody knows what it holds.
    """

    disk: int
    memory: int
    hidden: bool = False


class Processes:
    """Processes of this machine as they were a moment ago; none where there is no /proc."""

    def __init__(self) -> None:
        self._tasks = {task.pid: task for task in _read_tasks()}
        self._children: dict[int, list[int]] = {}
        for task in self._tasks.values():
            self._children.setdefault(task.parent, []).append(task.pid)

    def below(self, roots: Iterable[int]) -> list[int]:
        """Return the pids of these processes and of all that descend from them."""
        found: dict[int, None] = {}
        frontier = [pid for pid in roots if pid in self._tasks]
        while frontier:
            pid = frontier.pop()
            if pid not in found:
                found[pid] = None
                frontier += self._children.get(pid, [])
        return list(found)

    def threads(self, pids: Iterable[int]) -> int:
        """Return how many threads they have together; a process with one thread counts one."""
        return sum(self._tasks[pid].threads for pid in pids)

    def resident(self, pids: Iterable[int]) -> int:
        """Return the bytes of memory that they have in use.

        What they share counts for each: at least as much as they take.
        """
        return sum(self._tasks[pid].resident_bytes for pid in pids)


def memory_bytes(pids: Iterable[int], nameless: int = 0) -> int:
    """Return memory and swap of these processes: what several share is counted once, files' pages are not.

    `nameless` are bytes of files in memory that they hold open, and may have mapped too.
    """
    own, shared = 0, 0
    for pid in pids:
        found = _read_memory_rollup(pid)
        own += found.get(b"Pss_Anon", 0) + found.get(b"SwapPss", 0)
        shared += found.get(b"Pss_Shmem", 0)
    # A nameless file in memory that is mapped as well is in both sums: the larger one counts it once.
    return own + max(shared, nameless)


def nameless_files(pids: Iterable[int], device: int) -> OpenFiles:
    """Return the bytes of files without a name that the processes hold open, or mapped; `device` is the workspace's."""
    sizes: dict[tuple[int, int], int] = {}
    hidden = False
    for pid in pids:
        try:
            # Sizes by stat win over those of mappings, which may cover a part of the file, or one part twice.
            sizes = _mapped_files(pid) | sizes
            for found in _open_files(pid):
                if found.st_nlink == 0 and stat.S_ISREG(found.st_mode):
                    sizes[found.st_dev, found.st_ino] = found.st_blocks * _BLOCK
        except PermissionError:
            hidden = hidden or _is_hidden(pid)
    disk = sum(size for (where, _), size in sizes.items() if where == device)
    return OpenFiles(disk, sum(sizes.values()) - disk, hidden)


def folder_bytes(path: str, enough: int) -> int:
    """Return the bytes that a folder's files take on disk, and 1 KiB for each entry. Counting ends above `enough`.

    A file with several names counts once. Folders that cannot be looked into, are nested deeper than the system can
    reach, or have another name each time they are opened count as more than enough: anything may be in them.
    """
    always: set[int] | None = None
    for _ in range(_LOOKS):
        total, missed = _count_once(path, enough)
        # A folder that is renamed during the walk is missed once; one that is missed at every look is moved to hide it.
        always = missed if always is None else always & missed
        if total > enough or not always:
            return total
    return enough + 1


def _count_once(path: str, enough: int) -> tuple[int, set[int]]:
    """Return what one walk through it finds, and the inodes of folders that had another name when they were opened."""
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
                    found = entry.stat(follow_symlinks=False)
                    if found.st_nlink == 1 or (found.st_dev, found.st_ino) not in linked:
                        total += found.st_blocks * _BLOCK
                    if found.st_nlink > 1:
                        linked.add((found.st_dev, found.st_ino))
                    if total > enough:
                        break
        except (FileNotFoundError, NotADirectoryError):  # changed meanwhile: removed as a rule
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
                    # The command's name may hold blanks and parentheses: only the last one ends it.
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:  # it ended meanwhile
                continue
            yield _Task(int(name), int(fields[1]), int(fields[17]), int(fields[21]) * _PAGE)


def _read_memory_rollup(pid: int) -> dict[bytes, int]:
    """Return the kernel's sums over the memory of a process, in bytes."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            lines = file.readlines()[1:]
    except PermissionError:  # nobody may look into it: the least that is known is too much
        return {b"Pss_Anon": _resident_bytes(pid)} if _is_hidden(pid) else {}
    except OSError:  # it ended meanwhile
        return {}
    return {name: int(value.split()[0]) * 1024 for name, _, value in (line.partition(b":") for line in lines)}


def _open_files(pid: int) -> Iterator[os.stat_result]:
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
    except PermissionError:
        raise
    except OSError:  # it ended meanwhile
        return
    for number in numbers:
        try:
            yield os.stat(f"/proc/{pid}/fd/{number}")
        except OSError:
            continue


def _mapped_files(pid: int) -> dict[tuple[int, int], int]:
    """Return the bytes of nameless files that a process has mapped, by device and inode: their descriptors may be
    closed.
    """
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            lines = [line.split(maxsplit=5) for line in file if line.endswith(b" (deleted)\n")]
    except (ProcessLookupError, FileNotFoundError):
        return {}
    sizes: dict[tuple[int, int], int] = {}
    for addresses, _, _, device, inode, _ in lines:
        first, last = (int(each, 16) for each in addresses.split(b"-"))
        major, minor = (int(each, 16) for each in device.split(b":"))
        which = os.makedev(major, minor), int(inode)
        sizes[which] = sizes.get(which, 0) + last - first
    return sizes


def _is_hidden(pid: int) -> bool:
    """Return whether a process that lets nobody look into it lives, and is this user's: others' never do.

    Nothing that is root's runs in a sandbox, but for a moment of a container's start.
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
        """Begin to look after a sandbox."""
        with self._changed:
            self._due[watch] = time.monotonic() + _FIRST_LOOK_SECONDS
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="agentbench-watchdog", daemon=True)
                self._thread.start()
            self._changed.notify()

    def end(self, watch: Watch) -> None:
        """Stop looking after it; do nothing where it never began."""
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
        """Wait for the next sandboxes to look at, and return them; None where nothing was looked after for long."""
        with self._changed:
            while True:
                # `_due` is asked a second time: `begin` may have come between the time-out and the lock.
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
            # What `end` has taken out while it was looked at stays out.
            self._due.update({watch: due for watch in watches if watch in self._due})


def exceeds_disk(folder: Path, limits: ResourceLimits) -> bool:
    """Return whether the files that lie in a workspace take more than it may hold."""
    return folder_bytes(str(folder), limits.workspace_bytes) > limits.workspace_bytes


def _find_broken_limit(watch: Watch, processes: Processes) -> Broken | SandboxError | None:
    """Return which limit a sandbox has broken. A failure to look is a reason to end it: nothing else would."""
    try:
        return _check_limits(watch, processes)
    except Exception as error:  # noqa: BLE001  whatever it is, the sandbox cannot be looked after
        return SandboxError(f"a sandbox could not be looked after, so it was ended: {type(error).__name__}: {error}")


def _check_limits(watch: Watch, processes: Processes) -> Broken | SandboxError | None:
    limits, roots = watch.limits, watch.roots()
    pids = processes.below(roots)
    # Each root is the sandbox's own process, one for each command, and none of the agent's.
    if processes.threads(pids) - len(roots) > limits.processes:
        return "processes"
    nameless = nameless_files(pids, os.stat(watch.folder).st_dev)
    # smaps_rollup makes the kernel walk all page tables: it is read only where the cheap upper bound is near the limit.
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
