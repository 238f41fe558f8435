"""Commands in a container: the scripts that run around each, for the `sh` of its image, and their streams.

A script reports on stderr that it has begun and how it went, where the command itself has no part: its stderr goes
where its stdout goes. Processes of other users, which keep the container alive, cannot be killed by it, nor by the
command.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from pytest_agentbench.errors import SandboxError

STDOUT = 1
"""The command's stream in a frame; 2 is stderr."""

_HEADER_BYTES = 8
_CHUNK_BYTES = 2**16
_START_SECONDS = 60

KEEP_ALIVE_SECONDS = 2147483647
"""Seconds that a container waits for commands. In the command of its first process, by which scripts know it."""

# `kill -9 -1` is for a process namespace of our own: where the first process is not our keeper, only the script's
# session is killed. A process's name may hold blanks and brackets, so the fields of `stat` are counted from its last
# one on. Of memory that ran out cgroup v2 tells in `memory.events`, v1 in `memory.oom_control`.
_FUNCTIONS = f"""
sweep() {{
    if [ "$1" = all ]; then
        read -r first < /proc/1/cmdline
        case $first in *{KEEP_ALIVE_SECONDS}*) kill -9 -1; return ;; esac
        set -- $$
    fi
    for folder in /proc/[0-9]*; do
        pid=${{folder#/proc/}}
        read -r fields < "$folder/stat" || continue
        set -- "$1" ${{fields##*") "}}
        [ "$5" = "$1" ] && [ "$pid" != $$ ] && kill -9 "$pid"
    done
}}
report() {{
    ooms=0
    for file in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
        [ -r $file ] && while read -r name value; do [ "$name" = oom_kill ] && ooms=$value; done < $file
    done
    echo "$1 $ooms" >&2
}}
"""

RUN_ALONE = f'{_FUNCTIONS}echo $$ >&2\n(exec "$@" 2>&1)\ncode=$?\nsweep all 2>/dev/null\nreport $code'
"""Run the arguments, kill all else, and report the exit code and how often memory ran out in the container."""

RUN_BESIDE = f'{_FUNCTIONS}echo $$ >&2\n(exec "$@" 2>&1)\ncode=$?\nsweep $$ 2>/dev/null\nreport $code'
"""Do the same, but kill only what is left of the command's own session: there are programs that are to stay."""

STAY = 'echo $$ >&2\nexec "$@" 2>&1'
"""Report the number of the session, and become the arguments."""

STAY_APART = 'echo $$ >&2\nexec "$@"'
"""Do the same, but keep their stderr apart: it follows the number's line."""

END = f'{_FUNCTIONS}echo $$ >&2\nsweep "$1" 2>/dev/null\nreport 0'
"""Kill a session, or `all`."""


class ExecStream:
    """A started script. What it writes comes in frames: 1 byte stream, 3 bytes 0, 4 bytes length, payload.

    Format: "Attach to a container", section "Stream format", of the Docker Engine API. Spoken here and not through the
    SDK, whose sockets block, and which loses what comes in one packet with the response's header.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._stream, self._left = 0, 0  # of the frame that is being read

    async def read(self) -> tuple[int, bytes]:
        """Return the next piece and the stream it is of, 1 or 2; no bytes at the end."""
        try:
            while not self._left:
                header = await self._reader.readexactly(_HEADER_BYTES)
                self._stream, self._left = header[0], int.from_bytes(header[4:], "big")
        except (asyncio.IncompleteReadError, ConnectionError):
            return STDOUT, b""
        piece = await self._reader.read(min(self._left, _CHUNK_BYTES))
        self._left -= len(piece)
        return self._stream, piece

    async def pieces(self) -> AsyncIterator[tuple[int, bytes]]:
        """Yield all that comes, to the end."""
        while (found := await self.read())[1]:
            yield found

    async def write(self, data: bytes) -> None:
        """Send to its stdin. Raises OSError where it no longer reads."""
        self._writer.write(data)
        await self._writer.drain()

    async def finish(self, data: bytes) -> None:
        """Send to its stdin, and end that. A script that does not read it is none of the caller's business."""
        try:
            await self.write(data)
            self._writer.write_eof()
        except (OSError, RuntimeError):  # asyncio raises RuntimeError for a write after the end: it is a second end
            return

    async def close(self) -> None:
        """End the connection, with what was not sent: nobody may be there to take it. The script may go on."""
        self._writer.transport.abort()
        try:
            await self._writer.wait_closed()
        except OSError:
            return


async def start_exec(socket_path: str, api_version: str, exec_id: str) -> ExecStream:
    """Start what was created as `exec_id`. Raises SandboxError where the daemon refuses."""
    body = json.dumps({"Detach": False, "Tty": False}).encode()
    request = (
        f"POST /v{api_version}/exec/{exec_id}/start HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    try:
        reader, writer = await asyncio.open_unix_connection(socket_path)
    except OSError as error:
        raise SandboxError(f"the docker daemon is gone: {error}") from error
    stream = ExecStream(reader, writer)
    try:
        writer.write(request.encode() + body)
        async with asyncio.timeout(_START_SECONDS):
            header = await reader.readuntil(b"\r\n\r\n")
        status = int(header.split(None, 2)[1])
        if status not in (101, 200):
            reply = (await reader.read(_CHUNK_BYTES)).decode("utf-8", "replace").strip()
            raise SandboxError(f"docker cannot start a command: {reply}")
    except (OSError, EOFError, ValueError) as error:
        await stream.close()
        raise SandboxError(f"the docker daemon does not start a command: {error or 'no answer'}") from error
    except BaseException:  # cancelled: the connection would be there as long as the command runs
        await stream.close()
        raise
    return stream
