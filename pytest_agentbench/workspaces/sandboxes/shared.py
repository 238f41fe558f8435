"""Files and sockets of sandboxes whose workspace is a folder of this machine."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.confined import open_folder, remove_entry
from pytest_agentbench.workspaces.sandboxes.base import Answer
from pytest_agentbench.workspaces.workspace import Workspace

_CHUNK = 64 * 2**10


class SharedFolder:
    """Files and sockets of a sandbox whose workspace is a folder of this machine: `put`, `get`, `upload` and so on."""

    workspace: Workspace

    async def put(self, path: str, content: bytes) -> None:
        """Put a file into the workspace, on this machine."""
        self.workspace.write_bytes(path, content)

    async def get(self, path: str, limit: int) -> bytes:
        """Return a file of the workspace, on this machine."""
        return self.workspace.read_bytes(path, limit)

    async def upload(self, folder: Path, target: str) -> None:
        """Copy a folder's content into the workspace, on this machine."""
        from pytest_agentbench.workspaces.template import copy_tree

        names = tuple(self.workspace.split(target))
        await asyncio.to_thread(copy_tree, folder, self.workspace, into=names)

    async def download(self, path: str, folder: Path) -> None:
        """Copy the content of a folder of the workspace, on this machine."""
        from pytest_agentbench.workspaces.template import copy_tree

        names = tuple(self.workspace.split(path))
        with open_folder(str(self.workspace.path), names):  # the walk of a missing folder would be an empty one
            pass
        await asyncio.to_thread(copy_tree, self.workspace.path, Workspace(folder), below=names)

    @asynccontextmanager
    async def serve(self, path: str, answer: Answer) -> AsyncIterator[None]:
        """Listen at a socket in the private temporary folder. Raises SandboxError if it cannot be created."""
        names = self.workspace.split(path)
        root, owner = str(self.workspace.path), self.workspace.owner
        # The folder is open until the end: Python 3.13 looks up the socket's name when it is closed, too
        with open_folder(root, names[:-1], create=True, owner=owner) as folder:
            try:
                listening = _open_socket(Path(root, *names), folder, owner)
            except OSError as error:
                raise SandboxError(
                    f"cannot create a socket in {Path(root, *names[:-1])}: {error}; set TMPDIR to another folder"
                ) from error
            answers: set[asyncio.Task[None]] = set()

            async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = asyncio.current_task()
                assert task is not None
                answers.add(task)
                try:
                    with suppress(OSError, asyncio.CancelledError):  # the program has gone, or the block has ended
                        await answer(StreamConnection(reader, writer))
                finally:
                    answers.discard(task)
                    writer.close()

            server = await asyncio.start_unix_server(accept, sock=listening)
            try:
                yield
            finally:
                server.close()
                for task in tuple(answers):
                    task.cancel()
                await asyncio.gather(*answers, return_exceptions=True)
                with suppress(OSError):  # the name is free for the next block
                    remove_entry(folder, names[-1])


class StreamConnection:
    """A `Connection` over the streams of asyncio."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self) -> bytes:
        """Wait for data."""
        return await self._reader.read(_CHUNK)

    async def write(self, data: bytes) -> None:
        """Send data."""
        self._writer.write(data)
        await self._writer.drain()


def _open_socket(file: Path, folder: int, owner: int | None) -> socket.socket:
    """Return a socket at `file`. Its folder is open, and may have a longer path than a socket's name can be."""
    listening = socket.socket(socket.AF_UNIX)
    try:
        place = Path(f"/proc/self/fd/{folder}")
        if not place.exists():  # without Linux's /proc
            place = file.parent
        listening.bind(str(place / file.name))
        if owner is not None:
            os.chown(file.name, owner, owner, dir_fd=folder)
    except OSError:
        listening.close()
        raise
    return listening
