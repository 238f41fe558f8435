"""What commands take of this machine: processes, memory, and bytes in a workspace, all measured from outside."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

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
    """All processes of this machine as they were a moment ago; none where there is no /proc."""

    def __init__(self) -> None:
        self._tasks = {task.pid: task for task in _tasks()}
        self._children: dict[int, list[int]] = {}
        for task in self._tasks.values():
            self._children.setdefault(task.parent, []).append(task.pid)

    def below(self, roots: Iterable[int]) -> list[int]:
        """The pids of these processes and of all that descend from them."""
        found: dict[int, None] = {}
        frontier = [pid for pid in roots if pid in self._tasks]
        while frontier:
            pid = frontier.pop()
            if pid not in found:
                found[pid] = None
                frontier += self._children.get(pid, [])
        return list(found)

    def threads(self, pids: Iterable[int]) -> int:
        """How many threads they have together; a process with one thread counts one."""
        return sum(self._tasks[pid].threads for pid in pids)

    def resident(self, pids: Iterable[int]) -> int:
        """Bytes of memory that they have in use, what they share counted for each: at least as much as they take."""
        return sum(self._tasks[pid].resident_bytes for pid in pids)


def memory_bytes(pids: Iterable[int], nameless: int = 0) -> int:
    """Memory and swap that these processes take together: what several share is counted once, files' pages are not.

    `nameless` are bytes of files in memory that they hold open, and may have mapped too.
    """
    own, shared = 0, 0
    for pid in pids:
        found = _rollup(pid)
        own += found.get(b"Pss_Anon", 0) + found.get(b"SwapPss", 0)
        shared += found.get(b"Pss_Shmem", 0)
    return own + max(shared, nameless)


def nameless_files(pids: Iterable[int], device: int) -> OpenFiles:
    """What the processes hold open, or mapped, that has no name; `device` is the workspace's."""
    sizes: dict[tuple[int, int], int] = {}
    hidden = False
    for pid in pids:
        try:
            sizes = _mapped_files(pid) | sizes
            for found in _open_files(pid):
                if found.st_nlink == 0 and stat.S_ISREG(found.st_mode):
                    sizes[found.st_dev, found.st_ino] = found.st_blocks * _BLOCK
        except PermissionError:
            hidden = hidden or _hides(pid)
    disk = sum(size for (where, _), size in sizes.items() if where == device)
    return OpenFiles(disk, sum(sizes.values()) - disk, hidden)


def folder_bytes(path: str, enough: int) -> int:
    """What a folder's files take on disk, and 1 KiB for each entry; counting ends where it is more than `enough`.

    A file with several names counts once. Folders that cannot be looked into, are nested deeper than the system can
    reach, or have another name each time they are opened count as more than enough: anything may be in them.
    """
    always: set[int] | None = None
    for _ in range(_LOOKS):
        total, missed = _counted(path, enough)
        always = missed if always is None else always & missed
        if total > enough or not always:
            return total
    return enough + 1


def _counted(path: str, enough: int) -> tuple[int, set[int]]:
    """What one walk through it finds, and the inodes of folders that had another name when they were to be opened."""
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


def _tasks() -> Iterator[_Task]:
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    for name in names:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb", buffering=0) as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:  # it ended meanwhile
                continue
            yield _Task(int(name), int(fields[1]), int(fields[17]), int(fields[21]) * _PAGE)


def _rollup(pid: int) -> dict[bytes, int]:
    """The kernel's sums over the memory of a process, in bytes."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            lines = file.readlines()[1:]
    except PermissionError:  # nobody may look into it: the least that is known is too much
        return {b"Pss_Anon": _resident(pid)} if _hides(pid) else {}
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
    """The bytes that a process has mapped of files without a name, by device and inode: their holders may be closed."""
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


def _hides(pid: int) -> bool:
    """Whether a process that lets nobody look into it lives, and is this user's: others' never do.

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


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except OSError:
        return 0
