from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
from support.small_disk import small_disk

from pytest_agentbench.bounded.locks import allow_open_files
from pytest_agentbench.errors import InfrastructureError
from pytest_agentbench.identity.fingerprints import fingerprint
from pytest_agentbench.store.claims import _MOMENT, claim, close_claims, hold_write_lock, is_claimed, open_claims
from pytest_agentbench.store.maintenance import is_session_running
from pytest_agentbench.store.output_folder import LOCKS

KEY = "a" * 64
COUNT = """
import asyncio, sys
from pathlib import Path
from pytest_agentbench.store.claims import claim

output, rounds = sys.argv[1], int(sys.argv[2])

async def one(number):
    async with claim(output, f"{number % 3:x}" * 64):
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
from pytest_agentbench.store.claims import claim

async def main():
    async with claim(sys.argv[1], sys.argv[2]):
        print("held", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


IS_CLAIMED = "import sys; from pytest_agentbench.store.claims import is_claimed; print(is_claimed(sys.argv[1]))"


def is_claimed_elsewhere(output) -> bool:
    """Return what another process finds: whether one makes runs in the output folder."""
    asked = [sys.executable, "-c", IS_CLAIMED, str(output)]
    return subprocess.run(asked, check=True, capture_output=True, text=True, timeout=60).stdout == "True\n"


@contextlib.contextmanager
def holding(output, key):
    """Another process that holds a claim; it is killed at the end."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(output), key], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout.readline() == "held\n"
            yield holder
        finally:
            holder.kill()


def take(output, key) -> None:
    """Hold a claim once, and let go of it; TimeoutError where somebody else holds it."""

    async def main() -> None:
        async with asyncio.timeout(30), claim(str(output), key):
            pass

    asyncio.run(main())


@pytest.mark.slow
def test_one_process_and_one_task_at_a_time(tmp_path):
    counting = [subprocess.Popen([sys.executable, "-c", COUNT, str(tmp_path), "40"]) for _ in range(4)]
    assert [process.wait(60) for process in counting] == [0] * 4
    assert [(tmp_path / f"counter{number}").read_text() for number in range(3)] == [str(4 * 40 * 2)] * 3
    assert not is_claimed(str(tmp_path))


def test_a_claim_is_seen_while_it_is_held_by_this_process_and_by_others(tmp_path):
    output = str(tmp_path / "new/outputs")

    def look() -> tuple[bool, bool]:
        return is_claimed(output), is_claimed_elsewhere(output)

    async def main() -> None:
        async with claim(output, KEY):
            assert look() == (True, True)
            async with claim(output, "b" * 64):
                assert look() == (True, True)
            assert look() == (True, True)
        assert look() == (False, False)

    assert not is_claimed(output)
    assert not os.path.exists(output)  # who only asks makes nothing
    asyncio.run(main())
    assert os.listdir(f"{output}/{LOCKS}") == ["claims"]


def test_who_asks_lets_go_of_nothing(tmp_path):
    """Closing a file lets go of all locks that the process has on it: asking must not open and close another."""

    async def main() -> None:
        async with claim(str(tmp_path), KEY):
            assert is_claimed(str(tmp_path))
            assert is_session_running(tmp_path)
            assert is_claimed_elsewhere(tmp_path)

    asyncio.run(main())


def test_a_folder_is_one_however_it_is_spelled(tmp_path, monkeypatch):
    (tmp_path / "outputs").mkdir()
    (tmp_path / "link").symlink_to("outputs")
    monkeypatch.chdir(tmp_path)

    async def main() -> None:
        async with claim("outputs", KEY):
            for spelled in (str(tmp_path / "outputs"), "./outputs", "link"):
                assert is_claimed(spelled)
                assert not open_claims(spelled).take(KEY)
            for number in range(20):
                await claim(str(tmp_path / f"{number}"), KEY).__aenter__()
            assert is_claimed_elsewhere("outputs")
        assert not is_claimed_elsewhere("outputs")

    asyncio.run(main())


def test_who_closes_lets_go_of_nothing_that_is_held(tmp_path, monkeypatch):
    (tmp_path / "outputs").mkdir()
    monkeypatch.chdir(tmp_path)

    async def main() -> None:
        async with claim("outputs", KEY):
            assert is_claimed("./outputs")
            close_claims("outputs")
            assert is_claimed_elsewhere("outputs")
        claims = open_claims("outputs")
        close_claims("./outputs")
        with pytest.raises(OSError, match="Bad file descriptor"):
            claims.take(KEY)
        async with claim("outputs", KEY), claim("./outputs", KEY.replace("a", "b")):
            assert is_claimed_elsewhere("outputs")
        assert not is_claimed_elsewhere("outputs")

    asyncio.run(main())


def test_claims_of_many_folders_keep_each_other(tmp_path):
    async def main() -> None:
        async with claim(str(tmp_path / "first"), KEY):
            for number in range(20):
                async with claim(str(tmp_path / f"{number}"), KEY):
                    pass
            assert is_claimed_elsewhere(tmp_path / "first")
        assert not is_claimed_elsewhere(tmp_path / "first")

    asyncio.run(main())


def test_a_claim_on_one_is_none_on_another(tmp_path):
    with holding(tmp_path, KEY):
        take(tmp_path, "a" * 14 + "b" * 50)
        take(tmp_path, fingerprint("another"))


def test_a_folder_made_anew_under_a_process_is_claimed_anew(tmp_path):
    take(tmp_path / "outputs", KEY)
    shutil.rmtree(tmp_path / "outputs")
    with holding(tmp_path / "outputs", KEY):
        assert is_claimed(str(tmp_path / "outputs"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_holds_nothing_of_its_parents(tmp_path):
    output = str(tmp_path)

    def ask_child() -> int:
        if not (child := os.fork()):
            with contextlib.suppress(BaseException):
                os._exit(0 if not open_claims(output).take(KEY) and is_claimed(output) else 1)
            os._exit(2)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    async def main() -> None:
        async with claim(output, KEY):
            assert ask_child() == 0
            assert is_claimed_elsewhere(output)  # what the child has closed at its end were its own locks

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_killed_holder_lets_go(tmp_path):
    with holding(tmp_path, KEY) as holder:

        async def main() -> None:
            async with asyncio.timeout(30), claim(str(tmp_path), KEY):
                assert holder.poll() is not None

        async def kill_then_wait() -> None:
            waiting = asyncio.create_task(main())
            await asyncio.sleep(0)
            assert is_claimed(str(tmp_path))
            assert not waiting.done()
            holder.send_signal(signal.SIGKILL)
            holder.wait(30)
            await waiting

        asyncio.run(kill_then_wait())
    assert not is_claimed(str(tmp_path))


def test_lock_files_are_writable_as_the_umask_permits(tmp_path):
    """The umask alone says who that is: sessions of several people may share an output folder."""

    async def mode():
        async with claim(str(tmp_path), KEY):
            return (tmp_path / LOCKS / "claims").stat().st_mode & 0o777

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
    assert not is_claimed(str(tmp_path))


def test_a_disk_without_room_is_said_before_anything_is_paid(tmp_path):
    with small_disk(tmp_path / "disk") as remount:
        take(tmp_path / "disk", KEY)
        remount("size=48k")
        time.sleep(_MOMENT)
        with pytest.raises(InfrastructureError, match=os.strerror(errno.ENOSPC)):
            take(tmp_path / "disk", KEY)


def test_a_folder_that_takes_no_file_is_said_before_anything_is_paid(tmp_path):
    (tmp_path / "outputs").write_text("a file")

    async def main() -> None:
        async with claim(str(tmp_path / "outputs"), KEY):
            pytest.fail("it holds nothing")

    with pytest.raises(InfrastructureError, match=r"cannot write to .*outputs: .*--agentbench-output"):
        asyncio.run(main())


def test_a_file_system_without_locks_is_said_once(tmp_path, monkeypatch, caplog):
    def none_here(*args: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "lockf", none_here)

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
    """They are one open file, whatever the limit of open files is."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    ready = 0

    async def one(number: int, everybody: asyncio.Event) -> None:
        nonlocal ready
        async with claim(str(tmp_path), fingerprint(number)):
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
        asyncio.run(main())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert ready == 1_200
    assert not is_claimed(str(tmp_path))


@pytest.mark.skipif(os.name != "posix", reason="needs limits of processes")
def test_a_process_may_open_more_files():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] != resource.RLIM_INFINITY and limits[1] < 2_000:
        pytest.skip("this user may not open as many files")
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, limits[1]))
        assert allow_open_files(1_500) == 1_500
        assert allow_open_files(100) == 1_500
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 1_500
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.skipif(os.name != "posix", reason="needs limits of processes")
def test_a_process_out_of_file_descriptors_gets_an_error_that_names_ulimit(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def main() -> None:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
            with pytest.raises(InfrastructureError, match="ulimit -n"):
                await claim(str(tmp_path), KEY).__aenter__()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    asyncio.run(main())
