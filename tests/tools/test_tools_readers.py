"""Readers of hostile pages: what hangs, crashes or is killed is replaced, and hurts no other page."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.tools.readers import Readers, Reading, UnreadableError

HANGS = b"<a " + b" ".join(b"a%d" % number for number in range(400_000)) + b">"


async def read(readers: Readers, body: bytes, site: str = "site") -> Reading:
    return await readers.read("html", body, site, charset="utf-8", limit=1000, links=False)


def running() -> dict[int, int]:
    """The readers' processes on this machine that are this one's descendants, with their parents."""
    parents = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        parents[int(pid)] = (int(fields[1]), b"-B" in words[:3] and any(w.endswith(b"page_reader.py") for w in words))
    return {pid: parent for pid, (parent, reads) in parents.items() if reads and _is_ours(pid, parents)}


def _is_ours(pid: int, parents: dict[int, tuple[int, bool]]) -> bool:
    while pid in parents and pid != os.getpid():
        pid = parents[pid][0]
    return pid == os.getpid()


def at_work() -> list[int]:
    """Those that look into pages: children of readers, and no readers themselves."""
    found = running()
    return [pid for pid, parent in found.items() if parent in found and pid not in found.values()]


def keepers() -> list[int]:
    found = running()
    return [parent for pid, parent in found.items() if parent in found]


async def until(condition: Callable[[], list[int]]) -> list[int]:
    def wait() -> list[int]:
        while not (found := condition()):
            time.sleep(0.01)
        return found

    return await asyncio.to_thread(wait)


@pytest.mark.slow
@pytest.mark.parametrize(("which", "reason"), [(at_work, "its reader crashed"), (keepers, "could not be read (")])
def test_a_reader_that_is_killed_is_replaced_and_its_page_an_error(which: Callable[[], list[int]], reason: str) -> None:
    async def kill() -> None:
        async with Readers(1) as readers:
            hanging = asyncio.create_task(read(readers, HANGS))
            for pid in await until(which):
                os.kill(pid, signal.SIGSEGV if which is at_work else signal.SIGKILL)
            with pytest.raises(UnreadableError) as error:
                await hanging
            assert reason in str(error.value)
            assert (await read(readers, b"<p>fine")).text == "fine"
        assert running() == {}

    asyncio.run(kill())


@pytest.mark.slow
def test_a_reader_that_was_killed_before_its_page_came_costs_the_page_nothing() -> None:
    async def kill() -> None:
        async with Readers(1) as readers:
            await read(readers, b"<p>first")
            for pid in keepers():
                os.kill(pid, signal.SIGKILL)
            assert (await read(readers, b"<p>second")).text == "second"

    asyncio.run(kill())


@pytest.mark.slow
def test_a_page_that_hangs_takes_its_time_and_no_other_pages() -> None:
    async def both() -> None:
        async with Readers(2) as readers:
            hanging = asyncio.create_task(read(readers, HANGS))
            await until(at_work)
            for number in range(20):
                assert (await read(readers, b"<p>%d" % number)).text == str(number)
            assert not hanging.done()
            with pytest.raises(UnreadableError, match="could not be read within 10 s"):
                await hanging
            assert (await read(readers, b"<p>fine")).text == "fine"

    asyncio.run(both())


@pytest.mark.slow
def test_each_site_has_a_process_of_its_own_and_a_failure_ends_it() -> None:
    async def pids(*bodies: tuple[str, bytes]) -> list[int]:
        seen = []
        async with Readers(1) as readers:
            for site, body in bodies:
                try:
                    await (
                        readers.read("pdf", body, site, charset="", limit=10)
                        if b"%PDF" in body
                        else read(readers, body, site)
                    )
                except UnreadableError:
                    assert b"%PDF" in body
                seen += at_work() or [0]
        return seen

    first, same, other, back = asyncio.run(pids(*((site, b"<p>x") for site in ("a", "a", "b", "a"))))
    assert first == same
    assert len({first, other, back}) == 3
    before, failed, after = asyncio.run(pids(("a", b"<p>x"), ("a", b"%PDF nonsense"), ("a", b"<p>x")))
    assert failed == 0
    assert before != after


@pytest.mark.slow
def test_cancelled_reading_leaves_no_process_and_a_pool_that_works() -> None:
    async def cancel() -> None:
        async with Readers(1) as readers:
            hanging = asyncio.create_task(read(readers, HANGS))
            await until(at_work)
            hanging.cancel()
            await asyncio.wait([hanging])
            assert (await read(readers, b"<p>fine")).text == "fine"
        assert running() == {}

    asyncio.run(cancel())


def test_a_reader_process_can_neither_write_files_nor_start_processes() -> None:
    async def limits() -> str:
        async with Readers(1) as readers:
            await read(readers, b"<p>x")
            [pid] = at_work()
            with open(f"/proc/{pid}/limits") as file:  # noqa: ASYNC230
                return file.read()

    rows = {line[:25].strip(): line[25:].split()[:2] for line in asyncio.run(limits()).splitlines()}
    assert rows["Max processes"] == ["0", "0"]
    assert rows["Max file size"] == ["0", "0"]
    assert rows["Max address space"] == [str(2**30)] * 2


def test_a_long_text_comes_with_its_length() -> None:
    async def ask() -> Reading:
        async with Readers(1) as readers:
            return await read(readers, b"<title>T</title><meta name=description content=D><p>" + b"x" * 5000)

    found = asyncio.run(ask())
    assert (found.title, found.description, found.text, found.length) == ("T", "D", "x" * 1000, 5000)


@pytest.mark.slow
def test_more_pages_than_readers_wait_for_each_other() -> None:
    async def ask() -> list[Reading]:
        async with Readers(2) as readers:
            return await asyncio.gather(
                *(read(readers, b"<p>%d" % number, f"site {number % 3}") for number in range(120))
            )

    assert [each.text for each in asyncio.run(ask())] == [str(number) for number in range(120)]


def stop_the_one_at_work() -> None:
    [pid] = at_work()
    os.kill(pid, signal.SIGSTOP)


async def handed_over(readers: Readers, pages: int) -> list[asyncio.Task[Reading]]:
    """So many readings of small pages that a process has in hand and does not finish."""
    await read(readers, b"<p>first")
    stop_the_one_at_work()
    tasks = [asyncio.create_task(read(readers, b"<p>%d" % number)) for number in range(pages)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


@pytest.mark.slow
def test_pages_that_were_handed_over_together_outlive_their_process() -> None:
    async def kill() -> list[str]:
        async with Readers(1) as readers:
            tasks = await handed_over(readers, 12)
            for pid in keepers():
                os.kill(pid, signal.SIGKILL)
            return [each.text for each in await asyncio.gather(*tasks)]

    assert asyncio.run(kill()) == [str(number) for number in range(12)]


def test_who_gives_up_costs_those_that_were_handed_over_with_it_nothing() -> None:
    async def cancel() -> list[str]:
        async with Readers(1) as readers:
            tasks = await handed_over(readers, 6)
            for task in tasks[::2]:
                task.cancel()
            found = [each.text for each in await asyncio.gather(*tasks[1::2])]
            assert all(task.cancelled() for task in tasks[::2])
        assert running() == {}
        return found

    assert asyncio.run(cancel()) == ["1", "3", "5"]


def test_a_pool_that_is_left_leaves_nobody_waiting_and_no_process() -> None:
    async def leave() -> list[bool]:
        async with Readers(1) as readers:
            tasks = await handed_over(readers, 30)
        await asyncio.wait(tasks)
        assert running() == {}
        return [task.cancelled() for task in tasks]

    assert asyncio.run(leave()) == [True] * 30


def test_a_failed_start_of_readers_raises_for_every_waiter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> list[Reading | BaseException]:
        async with Readers(2) as readers:
            readers.prepare()
            await asyncio.sleep(0)
            return await asyncio.gather(
                *(read(readers, b"<p>%d" % number) for number in range(5)), return_exceptions=True
            )

    (tmp_path / "file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    assert [type(error) for error in asyncio.run(ask())] == [SandboxError] * 5
