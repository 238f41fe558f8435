"""What a run may take of this machine, it takes from itself: each attack has a second bound around it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from attacks_support import attack, run_bounded
from support.outer_bound import Breached
from support.processes import running
from support.small_disk import small_disk

pytestmark = pytest.mark.slow
OF_ITS_OWN = 16
"""Processes that a sandbox may need beside the command's."""


@attack
def test_a_full_disk(kind: str, isolated: bool, tmp_path: Path) -> None:
    filling = "i=0; while head -c 1000000 /dev/zero > file$i; do i=$((i+1)); done; echo full; sleep 20"
    with small_disk(tmp_path / "disk", "700m"):
        result = run_bounded(kind, tmp_path / "disk", filling, workspace_mb=20)
    assert (result.killed == "disk") == isolated, result


@attack
def test_a_disk_full_of_deleted_files(kind: str, isolated: bool, tmp_path: Path) -> None:
    filling = 'for n in 3 4 5 6 7 8 9; do eval "exec $n>file"; rm file; head -c 9000000 /dev/zero >&$n; done; sleep 20'
    with small_disk(tmp_path / "disk", "700m"):
        result = run_bounded(kind, tmp_path / "disk", filling, workspace_mb=20)
    assert (result.killed == "disk") == isolated, result


HIDING = {
    "closed": "chmod 300 .",
    "closed behind": "cd $(mktemp -d); chmod 0 ..",
    "renamed": "mkdir a; cd a; python3 ../attack.py rename &",
    "deep": "python3 attack.py deep; exit",
    "mapped": "python3 attack.py map; exit",
    "not to be looked into": "python3 attack.py deny; exit",
    "holes": "python3 attack.py holes; exit",
    "small": "python3 attack.py small; exit",
}
HIDING_PROGRAM = """
import ctypes, mmap, os, sys, time
kind = sys.argv[1]
held = []
mapping = ctypes.CDLL(None).mmap  # mmap.mmap would hold the file open
mapping.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]

def deleted(number):
    file = open("file", "w+b")
    os.unlink("file")
    file.write(bytes(4000000))
    file.flush()
    return file

if kind == "rename":
    while True:
        os.rename("../a", "../b")
        os.rename("../b", "../a")
if kind == "deep":
    for _ in range(30):
        os.mkdir("d" * 250)
        os.chdir("d" * 250)
if kind == "deny":
    ctypes.CDLL(None).prctl(4, 0)  # PR_SET_DUMPABLE
for number in range(20000 if kind == "small" else 25):
    if kind == "map":
        with deleted(number) as file:
            mapping(None, 4000000, 3, 1, file.fileno(), 0)
    elif kind == "holes":
        with open(f"file{number}", "w+b") as file:
            file.truncate(10000000)
            with mmap.mmap(file.fileno(), 0) as block:
                for at in range(0, len(block), 4096):
                    block[at] = 1
    elif kind == "deny":
        held.append(deleted(number))
    elif kind == "small":
        open(f"file{number}", "w").close()
    elif kind == "deep":
        with open(f"file{number}", "wb") as file:
            file.write(bytes(1000000))
time.sleep(20)
"""


@attack
@pytest.mark.parametrize("hiding", HIDING)
def test_a_disk_full_of_hidden_files(kind: str, isolated: bool, tmp_path: Path, hiding: str) -> None:
    """Where the watchdog, as an ordinary user, may not look; where it was before, or cannot go."""
    filling = "i=0; while head -c 1000000 /dev/zero > file$i; do i=$((i+1)); [ $i -lt 100 ] || sleep 20; done; sleep 20"
    with small_disk(tmp_path / "disk", "700m"):
        command = f"{HIDING[hiding]}\n{filling}"
        result = run_bounded(kind, tmp_path / "disk", command, program=HIDING_PROGRAM, workspace_mb=16, seconds=15)
    assert (result.killed == "disk") == isolated, result


FORKING = """
import os, time
count = 0
while True:
    try:
        if os.fork() == 0:
            os.execlp("sleep", "sleep", "7431")
        count += 1
    except OSError as error:
        print("stopped at", count, error, flush=True)
        break
"""


@attack
def test_many_processes(kind: str, isolated: bool, tmp_path: Path) -> None:
    result = run_bounded(kind, tmp_path, program=FORKING, processes=64)
    stopped = re.search(r"stopped at (\d+)", result.output)
    held = int(stopped[1]) <= 64 + OF_ITS_OWN if stopped else result.killed == "processes"
    assert held == isolated, result
    assert not running("sleep 7431")


FORK_BOMB = """
import os, time
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(0.01)
"""


@attack
def test_a_fork_bomb(kind: str, isolated: bool, tmp_path: Path) -> None:
    """It never gives up: its processes are killed, or the time limit ends them, and none is left."""
    try:
        result = run_bounded(kind, tmp_path, "python3 attack.py 7432", program=FORK_BOMB, seconds=3, processes=64)
    except Breached:
        assert not isolated  # the kernel does not count root's processes: the watchdog may be too slow
    else:
        assert result.killed in ("processes", "time-out"), result
    assert not running("attack.py 7432")


HOGS = """
import os, time
count, ready, done = %d, *os.pipe()
for number in range(count):
    if os.fork() == 0:
        block = b"x" * (%d << 20)
        os.write(done, b".")
        time.sleep(5)
        os._exit(0)
os.close(done)
while count and os.read(ready, 1):
    count -= 1
time.sleep(2)
if not count and os.waitpid(-1, os.WNOHANG) == (0, 0):
    print("holds all")
"""


@attack
@pytest.mark.parametrize(("count", "each"), [(1, 800), (8, 100)], ids=["one", "many"])
def test_memory(kind: str, isolated: bool, tmp_path: Path, count: int, each: int) -> None:
    result = run_bounded(kind, tmp_path, program=HOGS % (count, each), memory_mb=300)
    assert ("holds all" not in result.output) == isolated, result
    assert (result.killed == "memory" or "MemoryError" in result.output) == isolated, result


@attack
@pytest.mark.parametrize("command", ["yes", "cat /dev/zero", "yes >&2"])
def test_endless_output(kind: str, isolated: bool, tmp_path: Path, command: str) -> None:
    result = run_bounded(kind, tmp_path, command)
    assert (result.killed == "output" and result.truncated) == isolated, result
    assert len(result.output) < 70_000


DAEMON = """
import os, signal, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.closerange(0, 256)
        open("started", "w").close()
        os.execlp("sleep", "sleep", "7441")
"""


@attack
@pytest.mark.parametrize(("end", "killed"), [("true", None), ("sleep 60", "time-out")], ids=["ends", "time-out"])
def test_a_daemon(kind: str, isolated: bool, tmp_path: Path, end: str, killed: str | None) -> None:
    command = f"setsid sleep 7442 & python3 attack.py; until [ -e started ]; do sleep 0.01; done; {end}"
    result = run_bounded(kind, tmp_path, command, program=DAEMON, seconds=3)
    assert (result.killed, result.output) == (killed, "")
    assert (not running("sleep 744")) == isolated
