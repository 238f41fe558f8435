from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import resource
import signal
import subprocess
import sys
import threading

import pytest

from pytest_agentbench.errors import InfrastructureError
from pytest_agentbench.store.files import LOCKS, allow_open_files, claim, hold_write_lock

KEY = "a" * 64
COUNT = """
import asyncio, sys
from pathlib import Path
from pytest_agentbench.store.files import claim

output, rounds = sys.argv[1], int(sys.argv[2])

async def one(number):
    async with claim(output, f"{number % 3:064x}"):
        counter = Path(output, f"counter{number % 3}")
        read = int(counter.read_text()) if counter.exists() else 0
        await asyncio.sleep(0)
        counter.write_text(str(read + 1))

async def main():
    for _ in range(rounds):
        await asyncio.gather(*map(one, range(6)))

asyncio.run(main())
"""
HOLD = """
import asyncio, sys
from pytest_agentbench.store.files import claim

async def main():
    async with claim(sys.argv[1], sys.argv[2]):
        print("held", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def held(output) -> list[str]:
    folder = output / LOCKS
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


@pytest.mark.slow
def test_one_process_and_one_task_at_a_time(tmp_path):
    counting = [subprocess.Popen([sys.executable, "-c", COUNT, str(tmp_path), "40"]) for _ in range(4)]
    assert [process.wait(60) for process in counting] == [0] * 4
    assert [(tmp_path / f"counter{number}").read_text() for number in range(3)] == [str(4 * 40 * 2)] * 3
    assert not held(tmp_path)


def test_a_lock_is_there_while_it_is_held_and_names_its_process(tmp_path):
    async def main() -> None:
        async with claim(str(tmp_path / "new/outputs"), KEY):
            assert held(tmp_path / "new/outputs") == [f"{KEY}.lock"]
            assert (tmp_path / f"new/outputs/{LOCKS}/{KEY}.lock").read_text() == f"{os.getpid()}\n"
            async with claim(str(tmp_path / "new/outputs"), "b" * 64):
                assert len(held(tmp_path / "new/outputs")) == 2
        assert not held(tmp_path / "new/outputs")

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_killed_holder_lets_go(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path), KEY], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "held\n"

        async def main() -> None:
            async with asyncio.timeout(30), claim(str(tmp_path), KEY):
                assert holder.poll() is not None

        async def kill_then_wait() -> None:
            waiting = asyncio.create_task(main())
            await asyncio.sleep(0)
            assert held(tmp_path) == [f"{KEY}.lock"]
            holder.send_signal(signal.SIGKILL)
            holder.wait(30)
            await waiting

        asyncio.run(kill_then_wait())
    assert not held(tmp_path)


def test_whoever_may_write_in_the_folder_may_lock(tmp_path):
    """The umask alone says who that is: sessions of several people may share an output folder."""

    async def mode():
        async with claim(str(tmp_path), KEY):
            return (tmp_path / LOCKS / f"{KEY}.lock").stat().st_mode & 0o777

    before = os.umask(0o002)
    try:
        assert asyncio.run(mode()) == 0o664
    finally:
        os.umask(before)


def test_who_writes_is_waited_for(tmp_path):
    wrote = []

    def write():
        with hold_write_lock(str(tmp_path)):
            wrote.append("second")

    second = threading.Thread(target=write)
    with hold_write_lock(str(tmp_path)):
        second.start()
        second.join(0.05)
        wrote.append("first")
    second.join()
    assert wrote == ["first", "second"]


def test_who_is_cancelled_holds_nothing(tmp_path):
    async def hold(inside: asyncio.Event) -> None:
        async with claim(str(tmp_path), KEY):
            inside.set()
            await asyncio.Event().wait()

    async def main() -> None:
        inside = asyncio.Event()
        holder = asyncio.create_task(hold(inside))
        await inside.wait()
        waiter = asyncio.create_task(hold(asyncio.Event()))
        await asyncio.sleep(0)
        for task in (waiter, holder):
            task.cancel()
        await asyncio.wait([waiter, holder])
        async with asyncio.timeout(30), claim(str(tmp_path), KEY):
            pass

    asyncio.run(main())
    assert not held(tmp_path)


def test_a_file_that_a_dead_session_left_is_no_lock(tmp_path):
    (tmp_path / LOCKS).mkdir()
    (tmp_path / LOCKS / f"{KEY}.lock").write_text("1\n")

    async def main() -> None:
        async with asyncio.timeout(30), claim(str(tmp_path), KEY):
            pass

    asyncio.run(main())
    assert not held(tmp_path)


def test_a_folder_that_takes_no_file_is_said_before_anything_is_paid(tmp_path):
    (tmp_path / "outputs").write_text("a file")

    async def main() -> None:
        async with claim(str(tmp_path / "outputs"), KEY):
            pytest.fail("it holds nothing")

    with pytest.raises(InfrastructureError, match=r"cannot write to .*outputs: .*--agentbench-output"):
        asyncio.run(main())


def test_a_file_system_without_locks_is_said_once(tmp_path, monkeypatch, caplog):
    def none_here(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", none_here)

    async def main() -> None:
        for _ in range(2):
            async with claim(str(tmp_path), KEY):
                pass

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert ["has no locks" in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs limits of processes")
def test_a_thousand_runs_hold_a_thousand_locks(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] != resource.RLIM_INFINITY and limits[1] < 2_000:
        pytest.skip("this user may not open as many files")
    ready = 0

    async def one(number: int, everybody: asyncio.Event) -> None:
        nonlocal ready
        async with claim(str(tmp_path), f"{number:064x}"):
            ready += 1
            if ready == 1_200:
                everybody.set()
            await everybody.wait()

    async def main() -> None:
        everybody = asyncio.Event()
        async with asyncio.timeout(60):
            await asyncio.gather(*(one(number, everybody) for number in range(1_200)))

    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, limits[1]))
        with pytest.raises(InfrastructureError, match="ulimit -n"):
            asyncio.run(main())
        ready = 0
        assert allow_open_files(1_500) == 1_500
        asyncio.run(main())
        assert allow_open_files(100) == 1_500
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 1_500
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert ready == 1_200
    assert not held(tmp_path)
