"""What an agent leaves in its workspace leads nobody out of it who reads, writes or collects there."""

from __future__ import annotations

import asyncio
import io
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from attacks_support import SECRET, attack, shell, started

from pytest_agentbench.workspaces.archive import pack_workspace
from pytest_agentbench.workspaces.confined import PathRefusedError
from pytest_agentbench.workspaces.sandboxes.base import Sandbox


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder that no agent is to reach, with a secret."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text(SECRET)
    return folder


async def touch(sandbox: Sandbox, *paths: str) -> None:
    """Read and write at each path as the file tools do: nothing secret is to come of it."""
    for path in paths:
        with suppress(PathRefusedError, OSError):
            assert SECRET.encode() not in await sandbox.get(path, 1000)
        with suppress(PathRefusedError, OSError):
            await sandbox.put(path, b"gotcha")


def untouched(outside: Path) -> bool:
    return [(file.name, file.read_text()) for file in outside.iterdir()] == [("secret.txt", SECRET)]


@attack
def test_paths_that_climb(kind: str, isolated: bool, tmp_path: Path, outside: Path) -> None:
    async def attempt() -> None:
        async with started(kind, tmp_path) as sandbox:
            up = "../" * len(sandbox.workspace.path.relative_to(tmp_path).parts)
            for folder in (f"{up}outside", f"./a/../{up}outside", f"/workspace/{up}outside", f"/tmp/../{up}outside"):
                await touch(sandbox, f"{folder}/secret.txt", f"{folder}/new.txt")
                with pytest.raises(PathRefusedError):
                    await sandbox.get(f"{folder}/secret.txt", 1000)
            await touch(sandbox, f"{outside}/secret.txt", f"{outside}/new.txt", f"/{outside}/secret.txt")

    asyncio.run(attempt())
    assert untouched(outside) == isolated


@attack
def test_links_to_elsewhere(kind: str, isolated: bool, tmp_path: Path, outside: Path) -> None:
    async def attempt() -> bytes:
        async with started(kind, tmp_path) as sandbox:
            made = await shell(
                sandbox,
                f"ln -s {outside}/secret.txt file; ln -s {outside} folder; ln -s / root; ln -s {outside}/new.txt new;"
                f"mkdir -p .tmp; mv .tmp old; ln -s {outside} .tmp; ls -A",
            )
            assert {"file", "folder", "root"} <= set(made.output.split())
            await touch(sandbox, "file", "folder/secret.txt", "folder/new.txt", f"root{outside}/secret.txt", "new")
            await touch(sandbox, "/tmp/secret.txt", "/tmp/new.txt")
            collected = io.BytesIO()
            left_out = await asyncio.to_thread(pack_workspace, sandbox.workspace, collected)
            assert {"file", "folder", "root"} <= set(left_out)
            return collected.getvalue()

    assert (SECRET.encode() not in asyncio.run(attempt())) == isolated
    assert untouched(outside) == isolated


@attack
@pytest.mark.slow
def test_a_link_in_place_of_tmp(kind: str, isolated: bool, tmp_path: Path, outside: Path) -> None:
    """A sandbox that is set up anew, as after a time-out, shows the private folder, never what a link leads to."""
    looking = 'cd "${TMPDIR:-/tmp}"; cat secret.txt; echo gotcha > new.txt'

    async def attempt() -> str:
        async with started(kind, tmp_path) as sandbox:
            swapped = await shell(sandbox, f"mkdir -p .tmp; mv .tmp old; ln -sT {outside} .tmp; sleep 60", 1)
            assert swapped.killed == "time-out"
            with suppress(PathRefusedError):
                return (await shell(sandbox, looking)).output
            return ""

    assert (SECRET not in asyncio.run(attempt())) == isolated
    assert untouched(outside) == isolated


@attack
@pytest.mark.slow
def test_a_link_swapped_in(kind: str, isolated: bool, tmp_path: Path, outside: Path) -> None:
    swapping = f"while [ ! -e stop ]; do mkdir spot; rm -rf spot; ln -s {outside} spot; rm -f spot; done"

    async def attempt() -> Counter[str]:
        outcomes: Counter[str] = Counter()
        async with started(kind, tmp_path) as sandbox:
            swapper = asyncio.create_task(shell(sandbox, f"({swapping}) 2>/dev/null", 60))
            until = time.monotonic() + 50
            while min(outcomes["written"], outcomes["refused"]) < 20:
                assert time.monotonic() < until, f"the folder is not swapped: {outcomes}"
                assert not swapper.done(), swapper.result()
                try:
                    await sandbox.put("spot/new.txt", b"gotcha")
                    outcomes["written"] += 1
                    assert SECRET.encode() not in await sandbox.get("spot/secret.txt", 1000)
                except PathRefusedError:
                    outcomes["refused"] += 1
                except OSError:
                    outcomes["gone"] += 1
                await asyncio.sleep(0)
            await sandbox.put("stop", b"")
            assert (await swapper).killed is None
        return outcomes

    asyncio.run(attempt())
    assert untouched(outside) == isolated


@attack
def test_hard_links(kind: str, isolated: bool, tmp_path: Path, outside: Path) -> None:
    async def attempt() -> bytes:
        async with started(kind, tmp_path) as sandbox:
            await shell(sandbox, f"ln {outside}/secret.txt mine.txt; echo own > own.txt; ln own.txt twin.txt")
            await touch(sandbox, "mine.txt")
            with pytest.raises(PathRefusedError, match="hard links"):
                await sandbox.get("twin.txt", 1000)
            collected = io.BytesIO()
            await asyncio.to_thread(pack_workspace, sandbox.workspace, collected)
            return collected.getvalue()

    assert (SECRET.encode() not in asyncio.run(attempt())) == isolated
    assert untouched(outside) == isolated


@attack
def test_no_plain_files(kind: str, isolated: bool, tmp_path: Path) -> None:
    """Opening a FIFO would wait for ever, reading the device would never end."""
    making = "mkfifo fifo; mknod zero c 1 5; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'"

    async def attempt() -> bool:
        async with started(kind, tmp_path) as sandbox:
            made = set((await shell(sandbox, f"({making}) 2>/dev/null; ls")).output.split())
            assert made >= {"fifo", "socket"}
            for name in made:
                with pytest.raises(PathRefusedError, match="expected a regular file"):
                    await sandbox.get(name, 1000)
                with pytest.raises(PathRefusedError, match="expected a regular file"):
                    await sandbox.put(name, b"x")
            return set(await asyncio.to_thread(pack_workspace, sandbox.workspace, io.BytesIO())) == made

    assert asyncio.run(asyncio.wait_for(attempt(), 60)) == isolated
