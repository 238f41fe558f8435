"""Runs one command under limits and ends all its descendants. A script that uses the standard library only.

    python -I -S launcher.py PLAN_JSON ARGV...

The plan contains the limits, and `stdin`, the descriptor that the command reads. The launcher is a "child subreaper":
it adopts daemons of the command. It kills all descendants when the command ends, at SIGTERM, or when its own stdin is
closed. The caller closes that at a time limit, and the kernel closes it if the caller dies.

With `leave_running` in the plan it does not end with the command: it writes the command's exit code to its stderr,
which the command does not have, and waits for one of the other two.
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
"""Processes above its limit that a command can start, so that the watchdog sees the excess and ends the command."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_KILL_SECONDS = 5.0


def main(plan: dict[str, int], argv: list[str]) -> int:
    """Run `argv` and return its exit code, 128 + n for signal n, 127 if it cannot be started."""
    if sys.platform == "linux":
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    wake, wakened = os.pipe()
    os.set_blocking(wakened, False)
    signal.set_wakeup_fd(wakened, warn_on_full_buffer=False)
    # A handler, because an ignored SIGCHLD would not write to the wakeup descriptor
    signal.signal(signal.SIGCHLD, lambda *_: None)
    terminated = False

    def end(*_: object) -> None:
        nonlocal terminated
        terminated = True

    signal.signal(signal.SIGTERM, end)
    command = os.fork()
    if command == 0:
        _become(argv, plan)
    os.close(plan["stdin"])
    code = None
    while not terminated and 0 not in select.select([0, wake], [], [])[0]:
        os.read(wake, 4096)
        status = _reap(command)
        if status is None or code is not None:
            continue
        code = _exit_code(status)
        if not plan["leave_running"]:
            break
        os.write(2, f"{code}\n".encode())
    # A command that ended long ago has left its pid to others, so its group is killed only if nothing else finds it
    is_old = code is not None and plan["leave_running"] and sys.platform == "linux"
    _kill_descendants(None if is_old else command)
    return 128 + signal.SIGKILL if code is None else code


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    return 128 - code


def kill_session(session: int) -> None:
    """Kill the processes of a session whose launcher is gone, and wait until they have ended."""
    deadline = time.monotonic() + _KILL_SECONDS
    while time.monotonic() < deadline:
        pids = [pid for pid, _, of_session in _processes() if of_session == session]
        if not pids:
            return
        for pid in pids:
            _kill(pid)
        time.sleep(0.001)


def _become(argv: list[str], plan: dict[str, int]) -> None:
    try:
        os.setpgid(0, 0)  # `kill 0` in a script ends the command, not its launcher
        if sys.platform == "linux":
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if plan["leave_running"]:
            os.dup2(1, 2)
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
    # RLIMIT_AS would stop programs that only reserve address space (node, java, go). RLIMIT_DATA counts used memory.
    memory = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
    values = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: limits["cpu_seconds"],
        resource.RLIMIT_FSIZE: limits["file_bytes"],
        memory: limits["memory_bytes"],
    }
    if sys.platform == "linux":
        values[resource.RLIMIT_NPROC] = _own_threads() + limits["processes"] + SPARE_PROCESSES
    for limit, value in values.items():
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))


def _own_threads() -> int:
    """Return the number of this user's threads. The kernel counts all of them towards the limit of processes."""
    threads, user = 0, os.getuid()
    for pid, _, _ in _processes():
        try:
            if os.stat(f"/proc/{pid}").st_uid == user:
                threads += len(os.listdir(f"/proc/{pid}/task"))
        except OSError:  # it has ended
            continue
    return threads


def _reap(command: int) -> int | None:
    """Collect all ended children. Return the status of `command` if it is one of them."""
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


def _kill_descendants(group: int | None) -> None:
    """Kill all descendants, the group first. A process that loses its parent becomes a child of this process.

    All are stopped first, until no new ones appear: a process could otherwise fork faster than it is killed.
    """
    deadline = time.monotonic() + _KILL_SECONDS
    if group is not None:
        try:
            os.killpg(group, signal.SIGKILL)
        except OSError:  # the group is empty
            _reap(group)
    stopped: set[int] = set()
    while time.monotonic() < deadline:
        try:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
        alive = set(_descendants())
        for pid in alive - stopped:
            _kill(pid, signal.SIGSTOP)
        if alive <= stopped:
            for pid in alive:
                _kill(pid)
        stopped = alive
        time.sleep(0.001)


def _descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, parent, _ in _processes():
        children.setdefault(parent, []).append(pid)
    descendants, frontier = [], [os.getpid()]
    while frontier:
        below = children.get(frontier.pop(), [])
        descendants += below
        frontier += below
    return descendants


def _processes() -> Iterator[tuple[int, int, int]]:
    """Yield pid, parent and session of every process; nothing on a machine without /proc."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    for name in names:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:  # it has ended
                continue
            yield int(name), int(fields[1]), int(fields[3])


def _kill(pid: int, number: int = signal.SIGKILL) -> None:
    try:
        os.kill(pid, number)
    except OSError:  # it has ended, or has another user now
        return


def _prctl(option: int, value: int) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1]), sys.argv[2:]))
