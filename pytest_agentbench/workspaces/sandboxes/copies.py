"""Workspaces of sandboxes on another machine, which work in a copy of the run's folder.

- The folder is uploaded when the first sandbox of the workspace starts. From then on commands change the copy, and file
  tools use it by `put` and `get`.
- Files that this machine changes meanwhile are uploaded before the next command and before a download. They replace
  files of the copy, also changed ones.
- The copy is downloaded before this machine reads the folder as a whole, and when the workspace's last sandbox stops. A
  download replaces the folder's content.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.records.base import SandboxKind
from pytest_agentbench.workspaces.confined import PathRefusedError, open_folder, remove_entry
from pytest_agentbench.workspaces.sandboxes.base import (
    Answer,
    ExecResult,
    Process,
    Sandbox,
    SandboxRequest,
    SandboxSession,
)
from pytest_agentbench.workspaces.sessions import Workspaces
from pytest_agentbench.workspaces.workspace import PRIVATE_TMP, WORKSPACE, Entry, TreeError, Workspace, walk_tree

_TRANSFER_SECONDS = 600.0
"""Maximum seconds of an upload or download."""

_SPARE_SECONDS = 60.0
"""Seconds after a command's own limit until its sandbox counts as lost."""

_TMP = "/tmp"  # noqa: S108 - the sandbox's own

FileStates = Mapping[str, tuple[int, ...]]
"""Facts that a changed file or link changes, by the paths in a workspace. Folders have none."""


class WorkspaceCopies:
    """The copies of a session, by the folders of their workspaces on this machine."""

    def __init__(self, workspaces: Workspaces) -> None:
        self.workspaces = workspaces
        self.by_folder: dict[Path, WorkspaceCopy] = {}

    async def start(self, session: SandboxSession, request: SandboxRequest) -> Sandbox:
        """Return a sandbox with the workspace's files. Raises SandboxError."""
        path = request.workspace.path
        if path not in self.by_folder:
            self.by_folder[path] = WorkspaceCopy(request.workspace, self)
        return await self.by_folder[path].start(session, request)


class WorkspaceCopy:
    """The copy of one workspace. It exists while sandboxes use it; without any, the folder of this machine counts.

    `_lock` orders starts, stops and transfers, so that nobody works in a copy before its upload has ended.
    """

    def __init__(self, workspace: Workspace, copies: WorkspaceCopies) -> None:
        self._workspace, self._copies = workspace, copies
        self._lock = asyncio.Lock()
        self._sandboxes: list[CopiedSandbox] = []
        self._is_ahead = False
        self._uploaded: FileStates | None = None
        self._failure: SandboxError | None = None

    def note_use(self) -> None:
        """Note that a command or program may have changed the copy."""
        self._is_ahead = True

    def note_loss(self, failure: SandboxError) -> None:
        """Note that the machine does not reply any more, so that nothing waits for it again."""
        self._failure = failure

    async def start(self, session: SandboxSession, request: SandboxRequest) -> CopiedSandbox:
        """Return a sandbox with the workspace's files. Raises SandboxError."""
        async with self._lock:
            sandbox = CopiedSandbox(await session.start(request), self)
            try:
                if not self._sandboxes:
                    await self._upload(sandbox)
            except BaseException:
                await sandbox.end()
                raise
            self._sandboxes.append(sandbox)
            return sandbox

    async def stop(self, sandbox: CopiedSandbox) -> None:
        """Stop a sandbox. The last one's files are downloaded before; the next `bring_back` raises if that fails."""
        async with self._lock:
            if sandbox not in self._sandboxes:
                return
            try:
                if self._sandboxes == [sandbox] and self._failure is None:
                    await self._download()
            except SandboxError as error:
                self._failure = error
            finally:
                self._sandboxes.remove(sandbox)
                await sandbox.end()

    async def bring_back(self) -> None:
        """Replace the content of the folder on this machine by the copy's. Raises SandboxError."""
        async with self._lock:
            if self._failure is not None:
                raise self._failure
            if self._sandboxes:
                await self._download()

    async def push(self) -> None:
        """Upload the files that this machine has changed. Raises SandboxError."""
        async with self._lock:
            if self._sandboxes:
                await self._push(self._sandboxes[0])

    async def put(self, path: str, content: bytes) -> None:
        """Write a file of the workspace. Raises the exceptions of `Sandbox.put`."""
        async with self._lock:
            if not self._sandboxes:
                self._workspace.write_bytes(path, content)
                return
            await self._sandboxes[0].put(path, content)

    async def get(self, path: str, limit: int) -> bytes:
        """Return a file of the workspace. Raises the exceptions of `Sandbox.get`."""
        async with self._lock:
            if not self._sandboxes:
                return self._workspace.read_bytes(path, limit)
            return await self._sandboxes[0].get(path, limit)

    async def entries(self, path: str) -> list[Entry]:
        """Return the entries of a folder, as `Workspace.entries`."""
        await self.bring_back()
        return self._workspace.entries(path)

    async def _upload(self, sandbox: CopiedSandbox) -> None:
        folder = self._workspace.path
        async with _transferring(sandbox.kind, "copied to its sandbox"):
            if os.listdir(folder):
                await sandbox.upload(folder, WORKSPACE)
            if (folder / PRIVATE_TMP).is_dir():
                await sandbox.upload(folder / PRIVATE_TMP, _TMP)
            self._uploaded = await asyncio.to_thread(_read_states, folder)
        self._is_ahead = False

    async def _push(self, sandbox: CopiedSandbox) -> None:
        folder = self._workspace.path
        async with _transferring(sandbox.kind, "copied to its sandbox"):
            states = await asyncio.to_thread(_read_states, folder)
            if states is None or self._uploaded is None:
                return
            # A removed file may have become a folder
            removed = [path for path in self._uploaded if path not in states and not (folder / path).is_dir()]
            if removed:
                await sandbox.remove([f"/{_seen_path(path)}" for path in removed])
            changed = [path for path, state in states.items() if self._uploaded.get(path) != state]
            if changed:
                with self._make_room() as room:
                    await asyncio.to_thread(_copy_files, folder, changed, room)
                    for name in os.listdir(room):
                        await sandbox.upload(room / name, f"/{name}")
            self._uploaded = states

    async def _download(self) -> None:
        if not self._is_ahead:
            return
        sandbox = self._sandboxes[0]
        await self._push(sandbox)
        # First, because a command that runs in the meantime sets it again
        self._is_ahead = any(each.has_programs for each in self._sandboxes)
        try:
            async with _transferring(sandbox.kind, "copied from its sandbox"):
                with self._make_room() as room:
                    for path in (WORKSPACE, _TMP):
                        (room / path[1:]).mkdir(0o700)
                        await sandbox.download(path, room / path[1:])
                    await _end_in_thread(partial(_replace_content, self._workspace, room))
                self._uploaded = await asyncio.to_thread(_read_states, self._workspace.path)
        except BaseException:
            self._is_ahead = True
            raise

    @contextmanager
    def _make_room(self) -> Iterator[Path]:
        """Yield a temporary folder for a transfer, with the sandbox's paths below it."""
        base = self._copies.workspaces.session_folder()
        with tempfile.TemporaryDirectory(prefix="copy-", dir=base, ignore_cleanup_errors=True) as room:
            yield Path(room)


class CopiedSandbox:
    """A sandbox on another machine. Its use is noted, and its end is bounded if the machine does not reply."""

    def __init__(self, sandbox: Sandbox, copy: WorkspaceCopy) -> None:
        self._sandbox, self._copy = sandbox, copy
        self.has_programs = False

    @property
    def kind(self) -> SandboxKind:
        """Return the kind of sandbox."""
        return self._sandbox.kind

    @property
    def workspace(self) -> Workspace:
        """Return the run's workspace, on this machine."""
        return self._sandbox.workspace

    async def exec(self, argv: Sequence[str], *, seconds: float, **options: Any) -> ExecResult:
        """Run a command."""
        await self._copy.push()
        self._copy.note_use()
        try:
            async with self._replying("exec", seconds):
                return await self._sandbox.exec(argv, seconds=seconds, **options)
        finally:  # again, because the workspace may have been downloaded while the command ran
            self._copy.note_use()

    async def spawn(self, argv: Sequence[str], **options: Any) -> Process:
        """Start a program."""
        await self._copy.push()
        self.has_programs = True
        self._copy.note_use()
        async with self._replying("open"):
            return await self._sandbox.spawn(argv, **options)

    async def put(self, path: str, content: bytes) -> None:
        """Write a file."""
        self._copy.note_use()
        async with self._replying("put"):
            await self._sandbox.put(path, content)

    async def get(self, path: str, limit: int) -> bytes:
        """Return a file."""
        async with self._replying("get"):
            return await self._sandbox.get(path, limit)

    async def upload(self, folder: Path, target: str) -> None:
        """Copy a folder into it."""
        self._copy.note_use()
        await self._sandbox.upload(folder, target)

    async def download(self, path: str, folder: Path) -> None:
        """Copy a folder of it."""
        await self._sandbox.download(path, folder)

    def serve(self, path: str, answer: Answer) -> AbstractAsyncContextManager[None]:
        """Listen inside of it."""
        return self._sandbox.serve(path, answer)

    async def stop(self) -> None:
        """Stop it, and download the workspace if it is the last one there."""
        await self._copy.stop(self)

    async def remove(self, paths: Sequence[str]) -> None:
        """Remove files."""
        done = await self._sandbox.exec(["rm", "-f", "--", *paths], seconds=_SPARE_SECONDS)
        if done.exit_code != 0:
            raise SandboxError(f"sandbox {self.kind}: files cannot be removed: {done.output}")

    async def end(self) -> None:
        """Stop it without a download. Never raises."""
        with suppress(SandboxError):
            async with self._replying("stop"):
                await self._sandbox.stop()

    @asynccontextmanager
    async def _replying(self, method: str, seconds: float = 0.0) -> AsyncIterator[None]:
        """Raise SandboxError if a reply needs much longer than `seconds`, and give the copy up."""
        limit = seconds + _SPARE_SECONDS
        try:
            async with asyncio.timeout(limit):
                yield
        except TimeoutError as error:
            failure = SandboxError(f"sandbox {self.kind}: {method}: no reply within {limit:g} s")
            self._copy.note_loss(failure)
            raise failure from error


@asynccontextmanager
async def _transferring(kind: SandboxKind, how: str) -> AsyncIterator[None]:
    """Bound the time of a transfer, and raise a SandboxError for each way to fail."""
    try:
        async with asyncio.timeout(_TRANSFER_SECONDS):
            yield
    except TimeoutError as error:
        raise SandboxError(f"sandbox {kind}: the workspace was not {how} within {_TRANSFER_SECONDS:g} s") from error
    except (TreeError, PathRefusedError, OSError) as error:
        raise SandboxError(f"sandbox {kind}: the workspace cannot be {how}: {error}") from error


async def _end_in_thread(work: Callable[[], None]) -> None:
    """Run a function in a thread to its end, also if the caller is cancelled: half a folder would be left."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


def _read_states(folder: Path) -> FileStates | None:
    """Return the states of a workspace's files, None for one with more files than a comparison allows."""
    states = {}
    try:
        for entry in walk_tree(str(folder), []):
            if entry.kind in ("file", "link"):
                facts = entry.stat
                states[entry.path] = (facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_mode)
    except TreeError:
        return None
    return states


def _seen_path(path: str) -> str:
    """Return a path of the workspace as the sandbox sees it, without the first slash."""
    if path.startswith(f"{PRIVATE_TMP}/"):
        return f"{_TMP}/{path.removeprefix(f'{PRIVATE_TMP}/')}"[1:]
    return f"{WORKSPACE}/{path}"[1:]


def _copy_files(folder: Path, paths: Sequence[str], room: Path) -> None:
    for path in paths:
        target = room / _seen_path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(folder / path, target, follow_symlinks=False)


def _replace_content(workspace: Workspace, room: Path) -> None:
    """Replace the content of a workspace by what was downloaded to the sandbox's paths below `room`."""
    files, private = room / WORKSPACE[1:], room / _TMP[1:]
    with open_folder(str(files), ()) as downloaded:
        remove_entry(downloaded, PRIVATE_TMP)
    if os.listdir(private):
        private.rename(files / PRIVATE_TMP)
    if workspace.owner is not None:
        for folder, folders, names in os.walk(files):
            for name in (*folders, *names):
                os.chown(os.path.join(folder, name), workspace.owner, workspace.owner, follow_symlinks=False)
    with open_folder(str(workspace.path), ()) as folder_here:
        for name in os.listdir(folder_here):
            remove_entry(folder_here, name)
    for entry in list(os.scandir(files)):
        _move(entry, workspace.path / entry.name)


def _move(entry: os.DirEntry[str], target: Path) -> None:
    if not entry.is_dir(follow_symlinks=False):
        os.rename(entry.path, target)
        return
    mode = stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode)
    os.chmod(entry.path, 0o700)  # only a writable folder can be moved
    os.rename(entry.path, target)
    os.chmod(target, mode)
