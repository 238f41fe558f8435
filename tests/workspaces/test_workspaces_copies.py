"""Workspaces of sandboxes on another machine: which side's files count, and ends in bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.sandboxes import copies
from pytest_agentbench.workspaces.sandboxes.base import ExecResult, SandboxRequest, SandboxSession, SandboxSpec
from pytest_agentbench.workspaces.sandboxes.copies import WorkspaceCopies
from pytest_agentbench.workspaces.sandboxes.shared import SharedFolder
from pytest_agentbench.workspaces.sessions import Workspaces
from pytest_agentbench.workspaces.workspace import Workspace


class There(SharedFolder):
    """A sandbox in a folder elsewhere, whose commands are functions of that folder."""

    kind = "there"

    def __init__(self, session: Elsewhere, workspace: Workspace) -> None:
        self.workspace, self._session = workspace, session

    async def exec(self, argv: Sequence[Any], **options: Any) -> ExecResult:
        if argv[0] == "rm":
            for path in argv[3:]:
                self.workspace.remove(path)
        elif argv[0] == "hang":
            await asyncio.Event().wait()
        else:
            argv[0](self.workspace)
        return ExecResult(0, "", None, False, 0.0)

    async def upload(self, folder: Path, target: str) -> None:
        self._session.transfers.append("upload")
        await super().upload(folder, target)

    async def download(self, path: str, folder: Path) -> None:
        self._session.transfers.append("download")
        if self._session.is_lost:
            raise ConnectionResetError("lost")
        if path == "/tmp":
            self.workspace.private_tmp()
        await super().download(path, folder)

    async def stop(self) -> None:
        self._session.stopped += 1


class Elsewhere(SandboxSession):
    """Folders elsewhere, one for each workspace."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces, self._folders = workspaces, dict[Path, Workspace]()
        self.transfers: list[str] = []
        self.stopped, self.is_lost = 0, False

    async def start(self, request: SandboxRequest) -> Any:
        path = request.workspace.path
        if path not in self._folders:
            self._folders[path] = self._workspaces.create("there")
        return There(self, self._folders[path])


class Bench:
    """A workspace here and its copy there."""

    def __init__(self, workspaces: Workspaces) -> None:
        self.there, self._copies = Elsewhere(workspaces), WorkspaceCopies(workspaces)
        self.copies = self._copies.by_folder
        self.workspace = workspaces.create("here")

    async def start(self) -> Any:
        return await self._copies.start(self.there, SandboxRequest(SandboxSpec("there"), self.workspace))


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    workspaces = Workspaces(tmp_path)
    yield Bench(workspaces)
    workspaces.close()


async def change(sandbox: Any, path: str, text: str) -> None:
    """Let a command write a file."""
    await sandbox.exec([lambda folder: folder.write_text(path, text)], seconds=5)


def test_two_sandboxes_of_a_workspace_share_one_copy_until_the_last_stops(bench: Bench) -> None:
    async def main() -> None:
        bench.workspace.write_text("old.txt", "old")
        first, second = await asyncio.gather(bench.start(), bench.start())
        assert await second.get("old.txt", 9) == b"old"
        await change(first, "new.txt", "new")
        await first.stop()
        assert bench.workspace.kind("new.txt") is None
        await change(second, "old.txt", "newer")
        await second.stop()
        assert (bench.workspace.read_text("new.txt"), bench.workspace.read_text("old.txt")) == ("new", "newer")
        await second.stop()  # may be called twice
        assert bench.there.transfers == ["upload", "download", "download"]
        assert bench.there.stopped == 2

    asyncio.run(main())


def test_an_unchanged_copy_is_downloaded_once(bench: Bench) -> None:
    async def main() -> None:
        sandbox = await bench.start()
        copy = bench.copies[bench.workspace.path]
        await change(sandbox, "a", "a")
        for _ in range(3):
            await copy.bring_back()
        assert [entry.name for entry in await copy.entries(".")] == ["a"]
        await sandbox.stop()
        assert bench.there.transfers == ["download", "download"]  # the workspace, and its /tmp

    asyncio.run(main())


def test_a_lost_copy_is_an_error_at_its_next_use_and_the_sandbox_is_stopped(bench: Bench) -> None:
    async def main() -> None:
        sandbox = await bench.start()
        copy = bench.copies[bench.workspace.path]
        await change(sandbox, "a", "a")
        bench.there.is_lost = True
        await sandbox.stop()
        assert bench.there.stopped == 1
        with pytest.raises(SandboxError, match="sandbox there: the workspace cannot be copied from its sandbox: lost"):
            await copy.bring_back()

    asyncio.run(main())


def test_the_files_of_a_cancelled_command_come_back(bench: Bench) -> None:
    async def main() -> None:
        sandbox = await bench.start()
        begun = asyncio.Event()

        async def run() -> None:
            await change(sandbox, "made.txt", "made")
            begun.set()
            await sandbox.exec(["hang"], seconds=600)

        task = asyncio.ensure_future(run())
        await begun.wait()
        task.cancel()
        await asyncio.wait([task])
        await sandbox.stop()
        assert bench.workspace.read_text("made.txt") == "made"

    asyncio.run(main())


def test_a_machine_that_does_not_reply_is_lost_in_bounded_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "_SPARE_SECONDS", 0.05)

    async def main() -> None:
        sandbox = await bench.start()
        with pytest.raises(SandboxError, match=r"sandbox there: exec: no reply within 0\.1 s"):
            await sandbox.exec(["hang"], seconds=0.05)
        await sandbox.stop()
        assert bench.there.transfers == []
        with pytest.raises(SandboxError, match="no reply"):
            await bench.copies[bench.workspace.path].bring_back()

    asyncio.run(main())
