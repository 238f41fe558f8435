"""Sandboxes on another machine, reached by one byte stream: a provider as somebody writes it, by the public API.

The machine is a program that speaks over its stdin and stdout (`remote_machine.py`); for a real one, the command would
begin with `ssh HOST`. A frame is the lengths of its two parts, a head in JSON and a body of bytes:

- a request has an `id`, and its reply the same, with a `result` or an error;
- a channel carries the bytes of a program or of a connection, in both directions.
"""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import os
import struct
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_agentbench import (
    Connection,
    ExecResult,
    Mount,
    PathRefusedError,
    SandboxError,
    SandboxProvider,
    SandboxRequest,
    SandboxSession,
    SandboxSettings,
    pack_folder,
    unpack_folder,
)

_LENGTHS = struct.Struct("!II")
MACHINE = Path(__file__).with_name("remote_machine.py")
_END_SECONDS = 10.0


def make_frame(head: Mapping[str, Any], body: bytes = b"") -> bytes:
    """Return a frame."""
    text = json.dumps(head).encode()
    return _LENGTHS.pack(len(text), len(body)) + text + body


async def read_frame(reader: asyncio.StreamReader) -> tuple[dict[str, Any], bytes]:
    """Return the next frame. Raises IncompleteReadError at the end of the stream."""
    head, body = _LENGTHS.unpack(await reader.readexactly(_LENGTHS.size))
    return json.loads(await reader.readexactly(head)), await reader.readexactly(body)


class Link:
    """The byte stream to the machine. All state belongs to the event loop."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self._writer, self._reader = process, process.stdin, process.stdout
        self._numbers = itertools.count(1)
        self._replies: dict[int, asyncio.Future[tuple[dict[str, Any], bytes]]] = {}
        self.channels: dict[str, Channel] = {}
        self.answers: dict[int, Any] = {}
        self.answering: dict[int, set[asyncio.Task[None]]] = {}
        self.loss: SandboxError | None = None
        self._reading = asyncio.ensure_future(self._read())

    async def call(self, do: str, body: bytes = b"", **fields: Any) -> tuple[dict[str, Any], bytes]:
        """Send a request and return the result and the body of its reply. Raises the error that it names."""
        number = next(self._numbers)
        reply = self._replies[number] = asyncio.get_running_loop().create_future()
        try:
            await self.send({"id": number, "do": do, **fields}, body)
            try:
                head, content = await asyncio.shield(reply)
            except asyncio.CancelledError:
                await self.send({"id": number, "do": "cancel"})
                await asyncio.wait([reply], timeout=_END_SECONDS)  # what the command started has ended then
                raise
        finally:
            del self._replies[number]
        if "error" in head:
            raise _make_error(head)
        return head["result"], content

    def name_channel(self) -> str:
        """Return a name for a program's channel."""
        return f"program-{next(self._numbers)}"

    async def send(self, head: Mapping[str, Any], body: bytes = b"") -> None:
        """Send a frame. Raises SandboxError if the stream is broken."""
        if self.loss is not None:
            raise self.loss
        try:
            self._writer.write(make_frame(head, body))
            await self._writer.drain()
        except OSError as error:
            raise SandboxError(f"the connection to the machine is lost: {error}") from error

    async def close(self) -> None:
        """End the stream, and with it the machine's program."""
        self._writer.close()
        try:
            await asyncio.wait_for(self.process.wait(), _END_SECONDS)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
        await self._reading

    async def _read(self) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                head, body = await read_frame(self._reader)
                if "id" in head:
                    if (reply := self._replies.get(head["id"])) is not None:
                        reply.set_result((head, body))
                elif "accepted" in head:
                    self._accept(head["accepted"], head["channel"])
                elif (channel := self.channels.get(head["channel"])) is not None:
                    channel.receive(body)
        self.loss = SandboxError("the connection to the machine is lost")
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(self.loss)
        for channel in self.channels.values():
            channel.break_off()

    def _accept(self, socket: int, name: str) -> None:
        channel = self.channels[name] = Channel(self, name)
        task = asyncio.ensure_future(self._answer(socket, channel))
        tasks = self.answering.setdefault(socket, set())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _answer(self, socket: int, channel: Channel) -> None:
        try:
            with suppress(SandboxError, OSError):
                await self.answers[socket](channel)
        finally:
            del self.channels[channel.name]
            with suppress(SandboxError):
                await channel.end()


class Channel:
    """Bytes in both directions: a `Connection`."""

    def __init__(self, link: Link, name: str) -> None:
        self.link, self.name = link, name
        self._received: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._has_ended = False

    def receive(self, data: bytes) -> None:
        """Add data of the other end; b"" is its end."""
        self._received.put_nowait(data)

    def break_off(self) -> None:
        """Let readers fail: the stream is broken."""
        self._received.put_nowait(None)

    async def read(self) -> bytes:
        """Wait for data."""
        if self._has_ended:
            return b""
        data = await self._received.get()
        if data is None:
            self.break_off()  # for further readers
            raise SandboxError("the connection to the machine is lost")
        self._has_ended = not data
        return data

    async def write(self, data: bytes) -> None:
        """Send data."""
        await self.link.send({"channel": self.name}, data)

    async def end(self) -> None:
        """Send the end."""
        await self.link.send({"channel": self.name}, b"")


def _make_error(head: Mapping[str, Any]) -> Exception:
    if head.get("errno") is not None:
        return OSError(head["errno"], os.strerror(head["errno"]), head["file"])
    if head["error"] == "BrokenPipeError":
        return BrokenPipeError(head["text"])
    if head["error"] == "PathRefusedError":
        return PathRefusedError(head["text"])
    return SandboxError(head["text"])


class RemoteProgram:
    """A program on the machine."""

    def __init__(self, link: Link, name: str) -> None:
        self.name, self._link, self._channel, self._errors = name, link, Channel(link, name), ""
        link.channels[name] = self._channel
        self._asking: asyncio.Task[None] | None = None

    async def write(self, data: bytes) -> None:
        """Write to its stdin."""
        await self._call("write", data)

    async def end_input(self) -> None:
        """Close its stdin."""
        await self._call("end_input")

    async def read(self) -> bytes:
        """Wait for output."""
        data = await self._channel.read()
        if not data and self._link.loss is None:
            await self._ask_errors()
        return data

    def errors(self) -> str:
        """Return the end of its stderr, as far as it has arrived."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask_errors())
        return self._errors

    async def stop(self) -> None:
        """Kill it."""
        with suppress(SandboxError):
            await self._call("stop_program")

    async def _ask_errors(self) -> None:
        with suppress(SandboxError):
            result, _ = await self._call("errors")
            self._errors = result["errors"]

    async def _call(self, do: str, body: bytes = b"") -> tuple[dict[str, Any], bytes]:
        return await self._link.call(do, body, program=self._channel.name)


class RemoteSandbox:
    """A sandbox on the machine."""

    def __init__(self, link: Link, number: int, request: SandboxRequest) -> None:
        self.kind, self.workspace = request.spec.kind, request.workspace
        self._link, self._number = link, number

    async def exec(
        self,
        argv: Sequence[str],
        *,
        seconds: float,
        stdin: bytes = b"",
        output_limit: int = 64_000,
        environment: Mapping[str, str] | None = None,
        **options: Any,
    ) -> ExecResult:
        """Run a command."""
        limits = {"seconds": seconds, "output_limit": output_limit}
        result, _ = await self._call(
            "exec", stdin, argv=[*argv], environment={**(environment or {})}, options={**limits, **options}
        )
        return ExecResult(**result)

    async def spawn(
        self, argv: Sequence[str], *, environment: Mapping[str, str] | None = None, stderr: str = "merged"
    ) -> RemoteProgram:
        """Start a program."""
        program = RemoteProgram(self._link, self._link.name_channel())  # before the first frame of its output
        variables = {**(environment or {})}
        await self._call("open", argv=[*argv], program=program.name, environment=variables, stderr=stderr)
        return program

    async def put(self, path: str, content: bytes) -> None:
        """Write a file."""
        await self._call("put", content, path=path)

    async def get(self, path: str, limit: int) -> bytes:
        """Return a file."""
        _, content = await self._call("get", path=path, limit=limit)
        return content

    async def upload(self, folder: Path, target: str) -> None:
        """Copy a folder to the machine."""
        archive = io.BytesIO()
        await asyncio.to_thread(pack_folder, folder, archive)
        await self._call("upload", archive.getvalue(), target=target)

    async def download(self, path: str, folder: Path) -> None:
        """Copy a folder of the machine. Its archive is untrusted."""
        _, archive = await self._call("download", path=path)
        await asyncio.to_thread(unpack_folder, io.BytesIO(archive), folder)

    @asynccontextmanager
    async def serve(self, path: str, answer: Any) -> AsyncIterator[None]:
        """Listen on the machine, and answer here."""
        socket, _ = await self._call("serve", path=path)
        self._link.answers[socket["socket"]] = answer
        try:
            yield
        finally:
            with suppress(SandboxError):
                await self._call("unserve", socket=socket["socket"])
            answering = [*self._link.answering.pop(socket["socket"], ())]
            for task in answering:
                task.cancel()
            await asyncio.gather(*answering, return_exceptions=True)

    async def stop(self) -> None:
        """Kill everything in it."""
        with suppress(SandboxError):
            await self._call("stop")

    async def _call(self, do: str, body: bytes = b"", **fields: Any) -> tuple[dict[str, Any], bytes]:
        return await self._link.call(do, body, sandbox=self._number, **fields)


class RemoteSession(SandboxSession):
    """The connection of a session to the machine, opened with its first sandbox."""

    def __init__(self) -> None:
        self._opening = asyncio.Lock()
        self._link: Link | None = None

    async def start(self, request: SandboxRequest) -> RemoteSandbox:
        """Return a sandbox. Sandboxes with the same workspace share a folder there."""
        async with self._opening:
            if self._link is None:
                settings = request.spec.settings
                breaks_at = settings.breaks_at if isinstance(settings, RemoteSettings) else ""
                self._link = Link(
                    await asyncio.create_subprocess_exec(
                        sys.executable,
                        MACHINE,
                        breaks_at,
                        stdin=asyncio.subprocess.PIPE,
                        stdout=asyncio.subprocess.PIPE,
                    )
                )
        spec = request.spec
        started, _ = await self._link.call(
            "start",
            workspace=str(request.workspace.path),
            limits=asdict(spec.limits),
            network=spec.network,
            mounts=[[await self._send_mount(self._link, mount), mount.target] for mount in spec.mounts],
        )
        return RemoteSandbox(self._link, started["sandbox"], request)

    async def close(self) -> None:
        """End the connection, and with it everything on the machine."""
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def _send_mount(self, link: Link, mount: Mount) -> int:
        content = io.BytesIO()
        if mount.source.is_dir():
            await asyncio.to_thread(pack_folder, mount.source, content)
        else:
            content.write(mount.source.read_bytes())
        sent, _ = await link.call("mount", content.getvalue(), is_folder=mount.source.is_dir())
        return int(sent["mount"])


class RemoteSettings(SandboxSettings):
    """Settings of a run profile. `breaks_at`: the request at which the machine's program dies."""

    breaks_at: str = ""


class Remote(SandboxProvider):
    """`sandbox: remote`."""

    isolation = "container"
    shares_files = False
    settings = RemoteSettings

    def open(self) -> RemoteSession:
        """Return the session's connection."""
        return RemoteSession()


def accepts_connection(channel: Channel) -> Connection:
    """Show the type checker that a channel is a connection."""
    return channel
