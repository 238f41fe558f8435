"""The program on the other machine: bubblewrap's sandboxes, served over stdin and stdout (`remote_sandbox.py`).

It has a temporary folder of its own and opens no path of the machine that it serves. Its programs are those of this
machine with the tests' Python in front, as an image would have them.

Usage: remote_machine.py [REQUEST], the name of a request at which it dies.
"""

from __future__ import annotations

import asyncio
import io
import itertools
import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from support.remote_sandbox import make_frame, read_frame

from pytest_agentbench.workspaces.sandboxes.base import Connection, Mount, Process, ResourceLimits, Sandbox, SandboxSpec
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sandboxes.shown import show_program
from pytest_agentbench.workspaces.sessions import Workspaces
from pytest_agentbench.workspaces.transfer import pack_folder, unpack_folder
from pytest_agentbench.workspaces.workspace import Workspace

Reply = tuple[Mapping[str, Any], bytes]


class Machine:
    """All that runs on the machine."""

    def __init__(self, base: Path, writer: asyncio.StreamWriter, breaks_at: str) -> None:
        self._base, self._writer, self._breaks_at = base, writer, breaks_at
        self._workspaces = Workspaces(base)
        self._sandboxes = Sandboxes(self._workspaces)
        self._numbers = itertools.count(1)
        self._folders: dict[str, Workspace] = {}
        self._mounts: dict[int, Path] = {}
        self._started: dict[int, Sandbox] = {}
        self._programs: dict[str, Process] = {}
        self._channels: dict[str, asyncio.Queue[bytes]] = {}
        self._sockets: dict[int, tuple[asyncio.Event, asyncio.Task[None]]] = {}
        self._running: dict[int, asyncio.Task[None]] = {}
        self._pumps: set[asyncio.Task[None]] = set()
        shown = show_program(sys.executable, None)
        self._image = shown.mounts
        self._path = [str(Path(sys.executable).parent), *shown.path, "/usr/local/bin", "/usr/bin", "/bin"]

    async def run(self, reader: asyncio.StreamReader) -> None:
        """Handle requests until the stream ends."""
        with suppress(asyncio.IncompleteReadError):
            while True:
                head, body = await read_frame(reader)
                if "channel" in head:
                    if head["channel"] in self._channels:
                        self._channels[head["channel"]].put_nowait(body)
                elif head["do"] == "cancel":
                    if head["id"] in self._running:
                        self._running[head["id"]].cancel()
                else:
                    if head["do"] == self._breaks_at:
                        os.kill(os.getpid(), signal.SIGKILL)
                    self._running[head["id"]] = asyncio.ensure_future(self._handle(head, body))
        for started in self._started.values():
            await started.stop()
        await self._sandboxes.close()
        self._workspaces.close()

    async def _handle(self, head: dict[str, Any], body: bytes) -> None:
        try:
            result, content = await getattr(self, f"do_{head['do']}")(head, body)
            reply = make_frame({"id": head["id"], "result": result}, content)
        except asyncio.CancelledError:
            reply = make_frame({"id": head["id"], "error": "cancelled", "text": ""})
        except Exception as error:  # all go to the other side
            number = error.errno if isinstance(error, OSError) else None
            file = error.filename if isinstance(error, OSError) and isinstance(error.filename, str) else None
            described = {"error": type(error).__name__, "text": str(error), "errno": number, "file": file}
            reply = make_frame({"id": head["id"], **described})
        self._running.pop(head["id"], None)
        await self._send(reply)

    async def _send(self, frame: bytes) -> None:
        self._writer.write(frame)
        await self._writer.drain()

    def _sandbox(self, head: Mapping[str, Any]) -> Sandbox:
        return self._started[head["sandbox"]]

    def _environment(self, head: Mapping[str, Any]) -> dict[str, str]:
        return {"PATH": ":".join(self._path), **head["environment"]}

    async def do_mount(self, head: dict[str, Any], body: bytes) -> Reply:
        number = next(self._numbers)
        target = self._base / f"mount-{number}"
        if head["is_folder"]:
            target.mkdir()
            target.chmod(0o755)
            await asyncio.to_thread(unpack_folder, io.BytesIO(body), target)
        else:
            target.write_bytes(body)
            target.chmod(0o644)
        self._mounts[number] = target
        return {"mount": number}, b""

    async def do_start(self, head: dict[str, Any], body: bytes) -> Reply:
        folder = self._folders.get(head["workspace"])
        if folder is None:
            folder = self._folders[head["workspace"]] = self._workspaces.create("remote")
        mounts = tuple(Mount(self._mounts[number], target) for number, target in head["mounts"])
        spec = SandboxSpec(
            "bubblewrap",
            network=head["network"],
            limits=ResourceLimits(**head["limits"]),
            mounts=(*self._image, *mounts),
        )
        number = next(self._numbers)
        self._started[number] = await self._sandboxes.start(spec, folder)
        return {"sandbox": number}, b""

    async def do_stop(self, head: dict[str, Any], body: bytes) -> Reply:
        started = self._started.pop(head["sandbox"])
        await started.stop()
        folder = started.workspace
        if not any(other.workspace is folder for other in self._started.values()):
            self._folders = {name: other for name, other in self._folders.items() if other is not folder}
            await asyncio.to_thread(self._workspaces.remove, folder)
        return {}, b""

    async def do_exec(self, head: dict[str, Any], body: bytes) -> Reply:
        environment = self._environment(head)
        done = await self._sandbox(head).exec(head["argv"], stdin=body, environment=environment, **head["options"])
        return asdict(done), b""

    async def do_open(self, head: dict[str, Any], body: bytes) -> Reply:
        sandbox = self._sandbox(head)
        process = await sandbox.spawn(head["argv"], environment=self._environment(head), stderr=head["stderr"])
        self._programs[head["program"]] = process
        self._begin(self._pump_output(head["program"], process))
        return {}, b""

    def _begin(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._pumps.add(task)
        task.add_done_callback(self._pumps.discard)

    async def _pump_output(self, name: str, process: Process) -> None:
        data = b"-"
        while data:
            data = await process.read()
            await self._send(make_frame({"channel": name}, data))

    async def do_write(self, head: dict[str, Any], body: bytes) -> Reply:
        await self._programs[head["program"]].write(body)
        return {}, b""

    async def do_end_input(self, head: dict[str, Any], body: bytes) -> Reply:
        await self._programs[head["program"]].end_input()
        return {}, b""

    async def do_errors(self, head: dict[str, Any], body: bytes) -> Reply:
        return {"errors": self._programs[head["program"]].errors()}, b""

    async def do_stop_program(self, head: dict[str, Any], body: bytes) -> Reply:
        await self._programs[head["program"]].stop()
        return {}, b""

    async def do_put(self, head: dict[str, Any], body: bytes) -> Reply:
        await self._sandbox(head).put(head["path"], body)
        return {}, b""

    async def do_get(self, head: dict[str, Any], body: bytes) -> Reply:
        return {}, await self._sandbox(head).get(head["path"], head["limit"])

    async def do_upload(self, head: dict[str, Any], body: bytes) -> Reply:
        with tempfile.TemporaryDirectory(dir=self._base) as folder:
            unpack_folder(io.BytesIO(body), Path(folder))
            await self._sandbox(head).upload(Path(folder), head["target"])
        return {}, b""

    async def do_download(self, head: dict[str, Any], body: bytes) -> Reply:
        archive = io.BytesIO()
        with tempfile.TemporaryDirectory(dir=self._base) as folder:
            await self._sandbox(head).download(head["path"], Path(folder))
            pack_folder(Path(folder), archive)
        return {}, archive.getvalue()

    async def do_serve(self, head: dict[str, Any], body: bytes) -> Reply:
        number, listening = next(self._numbers), asyncio.get_running_loop().create_future()
        ended = asyncio.Event()
        serving = asyncio.ensure_future(self._serve(self._sandbox(head), head["path"], number, listening, ended))
        self._sockets[number] = ended, serving
        await listening
        return {"socket": number}, b""

    async def do_unserve(self, head: dict[str, Any], body: bytes) -> Reply:
        ended, serving = self._sockets.pop(head["socket"])
        ended.set()
        await serving
        return {}, b""

    async def _serve(
        self, sandbox: Sandbox, path: str, number: int, listening: asyncio.Future[None], ended: asyncio.Event
    ) -> None:
        async def forward(connection: Connection) -> None:
            name = f"connection-{next(self._numbers)}"
            received = self._channels[name] = asyncio.Queue()
            await self._send(make_frame({"accepted": number, "channel": name}))
            self._begin(self._pump_connection(name, connection))
            try:
                while data := await received.get():
                    await connection.write(data)
            finally:
                del self._channels[name]

        try:
            async with sandbox.serve(path, forward):
                listening.set_result(None)
                await ended.wait()
        except Exception as error:  # for the reply
            if not listening.done():
                listening.set_exception(error)

    async def _pump_connection(self, name: str, connection: Connection) -> None:
        data = b"-"
        while data:
            try:
                data = await connection.read()
            except OSError:
                data = b""
            await self._send(make_frame({"channel": name}, data))


async def main(breaks_at: str = "") -> None:
    """Serve stdin and stdout."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout)
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    with tempfile.TemporaryDirectory(prefix="machine-") as base:
        os.chmod(base, 0o755)
        await Machine(Path(base), writer, breaks_at).run(reader)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
