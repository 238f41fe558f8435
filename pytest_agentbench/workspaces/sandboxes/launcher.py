"""Runs one command under limits and leaves nothing of it behind. A program of its own: standard library only.

    python -I -S launcher.py PLAN_JSON ARGV...

The plan holds the limits, and `stdin`, the descriptor that the command shall read. The launcher adopts whatever the
command leaves behind (a "child subreaper"), so that daemons are found too, and kills all of it when the command ends,
when it is told to by SIGTERM, or when its own stdin is closed: by the caller at a time limit, or by the caller's death.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Iterator

SPARE_PROCESSES = 8
"""How many more than its limit a command can start, so that the watchdog sees that it has too many, and ends it."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_KILL_SECONDS = 5.0


def main(plan: dict[str, int], argv: list[str]) -> int:
    """Run `argv` and return its exit code, 128 + n for signal n, 127 where it cannot be started."""
    if sys.platform == "linux":
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    wake, wakened = os.pipe()
    os.set_blocking(wakened, False)
    signal.set_wakeup_fd(wakened, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    told = False

    def end(*_: object) -> None:
        nonlocal told
        told = True

    signal.signal(signal.SIGTERM, end)
    command = os.fork()
    if command == 0:
        _become(argv, plan)
    os.close(plan["stdin"])
    status = None
    while status is None and not told and 0 not in select.select([0, wake], [], [])[0]:
        os.read(wake, 4096)
        status = _reap(command)
    _kill_descendants(command)
    code = -signal.SIGKILL if status is None else os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def kill_session(session: int) -> None:
    """Kill what is left of a session whose launcher is gone, and see it gone."""
    deadline = time.monotonic() + _KILL_SECONDS
    while time.monotonic() < deadline:
        left = [pid for pid, _, found in _processes() if found == session]
        if not left:
            return
        for pid in left:
            _kill(pid)
        time.sleep(0.001)


def _become(argv: list[str], plan: dict[str, int]) -> None:
    try:
        os.setpgid(0, 0)  # `kill 0` in a script ends the command, not its launcher
        if sys.platform == "linux":
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.dup2(plan["stdin"], 0)
        os.close(plan["stdin"])
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        _restrict(plan)
        os.execvp(argv[0], argv)  # noqa: S606 - an exec is the purpose
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _restrict(limits: dict[str, int]) -> None:
    # RLIMIT_AS would stop programs that only reserve address space (node, java, go); RLIMIT_DATA counts what they use
    memory = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: limits["cpu_seconds"],
        resource.RLIMIT_FSIZE: limits["file_bytes"],
        memory: limits["memory_bytes"],
    }
    if sys.platform == "linux":
        wanted[resource.RLIMIT_NPROC] = _own_threads() + limits["processes"] + SPARE_PROCESSES
    for limit, value in wanted.items():
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))


def _own_threads() -> int:
    """Return how many threads this user has: the kernel counts them all towards the limit of processes."""
    threads, user = 0, os.getuid()
    for pid, _, _ in _processes():
        try:
            if os.stat(f"/proc/{pid}").st_uid == user:
                threads += len(os.listdir(f"/proc/{pid}/task"))
        except OSError:  # it ended meanwhile
            continue
    return threads


def _reap(command: int) -> int | None:
    """Collect all that ended, and return the status of `command` if it is among them."""
    status = None
    while True:
        try:
            pid, ended = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == command:
            status = ended


def _kill_descendants(command: int) -> None:
    """Kill until no child is left: whoever loses a parent becomes a child of this process.

    All are stopped first, for as long as more are found: what forks faster than it is killed would never be gone.
    """
    deadline = time.monotonic() + _KILL_SECONDS
    try:
        os.killpg(command, signal.SIGKILL)
    except OSError:  # none left in it
        _reap(command)
    stopped: set[int] = set()
    while time.monotonic() < deadline:
        try:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
        found = set(_descendants())
        for pid in found - stopped:
            _kill(pid, signal.SIGSTOP)
        if found <= stopped:
            for pid in found:
                _kill(pid)
        stopped = found
        time.sleep(0.001)


def _descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, parent, _ in _processes():
        children.setdefault(parent, []).append(pid)
    found, frontier = [], [os.getpid()]
    while frontier:
        below = children.get(frontier.pop(), [])
        found += below
        frontier += below
    return found


def _processes() -> Iterator[tuple[int, int, int]]:
    """Yield pid, parent and session of every process; nothing where there is no /proc."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    for name in names:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:  # it ended meanwhile
                continue
            yield int(name), int(fields[1]), int(fields[3])


def _kill(pid: int, number: int = signal.SIGKILL) -> None:
    try:
        os.kill(pid, number)
    except OSError:  # it ended meanwhile, or became another user's
        return


def _prctl(option: int, value: int) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1]), sys.argv[2:]))
