"""Commands in a container: the shell scripts around them, and their streams.

A script reports its start and the command's end on stderr. The command cannot write there, because its stderr goes to
stdout. A command and its script cannot kill the processes that keep the container alive: those have another user.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.sandboxes.programs import Capture

STDOUT = 1
"""The command's stream in a frame; 2 is stderr."""

_HEADER_BYTES = 8
_CHUNK_BYTES = 2**16
_START_SECONDS = 60

KEEP_ALIVE_SECONDS = 2147483647
"""Seconds that a container waits for commands. Scripts recognise the container's first process by this number."""

# `kill -9 -1` is safe only in a separate process namespace. If the first process is not the keeper, only the
# script's session is killed. A process's name may contain blanks and brackets, so the fields of `stat` are
# counted from the last bracket: state, parent, group, session. Memory shortages are counted in `memory.events`
# (cgroup v2) or `memory.oom_control` (v1).
#
# `note_sessions` before a command lets `sweep_new` find all that it started, also in new sessions. Processes of older
# sessions stay, with their descendants: a server may put each worker into a session of its own. The parent of an
# orphan is the first process, which says nothing about it.
_FUNCTIONS = f"""
is_contained() {{
    read -r first < /proc/1/cmdline
    case $first in *{KEEP_ALIVE_SECONDS}*) return 0 ;; esac
    return 1
}}
sweep() {{
    if [ "$1" = all ]; then
        if is_contained; then kill -9 -1; return; fi
        set -- $$
    fi
    for folder in /proc/[0-9]*; do
        pid=${{folder#/proc/}}
        read -r fields < "$folder/stat" || continue
        set -- "$1" ${{fields##*") "}}
        [ "$5" = "$1" ] && [ "$pid" != $$ ] && kill -9 "$pid"
    done
}}
note_sessions() {{
    sessions=' '
    for folder in /proc/[0-9]*; do
        read -r fields < "$folder/stat" || continue
        set -- ${{fields##*") "}}
        [ "$4" = $$ ] || sessions="$sessions$4 "
    done
}}
kill_new() {{
    older=' ' before=
    while [ "$older" != "$before" ]; do
        before=$older new=
        for folder in /proc/[0-9]*; do
            pid=${{folder#/proc/}}
            case $older in *" $pid "*) continue ;; esac
            read -r fields < "$folder/stat" || continue
            set -- ${{fields##*") "}}
            case $sessions in *" $4 "*) older="$older$pid "; continue ;; esac
            case $older in *" $2 "*) [ "$2" = 1 ] || {{ older="$older$pid "; continue; }} ;; esac
            [ "$1" = Z ] || [ "$pid" = $$ ] || new="$new $pid"
        done
    done
    [ "$new" ] && kill -9 $new
}}
sweep_new() {{
    if ! is_contained; then sweep $$; return; fi
    for attempt in 1 2 3 4 5 6 7 8; do kill_new || return; done
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
"""Run the arguments, then kill all other processes. Report the exit code and how often memory ran out."""

RUN_BESIDE = (
    f'{_FUNCTIONS}echo $$ >&2\nnote_sessions 2>/dev/null\n(exec "$@" 2>&1)\ncode=$?\n'
    "sweep_new 2>/dev/null\nreport $code"
)
"""As RUN_ALONE, but at its end only the command's processes are killed, because other programs are running."""

READ_ON = "\nexec cat >/dev/null"
"""Follows RUN_ALONE and RUN_BESIDE if there is stdin, of which the command may have left a part. If nobody reads it,
podman 4.3.1 closes the connection, in one of eight commands before the report.
"""

LEAVE = (
    f'{_FUNCTIONS}echo $$ >&2\nmark=$1\nshift\n(exec "$@" 2>&1)\nreport $?\n'
    'until printf %s "$mark" 2>/dev/null; do sleep 1; done\n'
    f"exec sleep {KEEP_ALIVE_SECONDS}"
)
"""Run the arguments after the first, and leave its background processes running. Report as RUN_ALONE, and write the
first argument to stdout, after the command's own output. That fails while stdout is full, if the command has made it
non-blocking. The script continues, so that the daemon keeps the streams of these processes open.
"""

STAY = 'echo $$ >&2\nexec "$@" 2>&1'
"""Report the number of the session, and become the arguments."""

STAY_APART = 'echo $$ >&2\nexec "$@"'
"""As STAY, but with a separate stderr, which follows the number's line."""

END = f'{_FUNCTIONS}echo $$ >&2\nsweep "$1" 2>/dev/null\nreport 0'
"""Kill a session, or `all`."""


class MarkedCapture(Capture):
    """Output up to a mark. Later output is discarded. `is_complete` is true once the mark has come."""

    def __init__(self, limit: int, mark: bytes) -> None:
        super().__init__(limit)
        self.is_complete = False
        self._mark, self._held = mark, b""

    def data_received(self, data: bytes) -> None:
        """Store output. Bytes that may be the beginning of the mark are held back."""
        if self.is_complete:
            return
        output, mark, _ = (self._held + data).partition(self._mark)
        self.is_complete = bool(mark)
        end = len(output) if mark else max(0, len(output) - len(self._mark) + 1)
        self._held = output[end:]
        super().data_received(output[:end])

    def text(self) -> str:
        """Return the stored output as text."""
        held, self._held = self._held, b""
        super().data_received(held)
        return super().text()


class ExecStream:
    """A started script. Its output comes in frames: 1 byte stream, 3 bytes 0, 4 bytes length, payload.

    Format: "Attach to a container", section "Stream format", of the Docker Engine API. Implemented here because the
    SDK's sockets block, and because the SDK loses data that comes in one packet with the response's header.
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
        """Write to its stdin. Raises OSError if it no longer reads."""
        self._writer.write(data)
        await self._writer.drain()

    async def finish(self, data: bytes) -> None:
        """Write to its stdin and close it. A script that does not read is no error."""
        try:
            await self.write(data)
            self._writer.write_eof()
        except (OSError, RuntimeError):  # asyncio raises RuntimeError for a write after the end: it is a second end
            return

    async def close(self) -> None:
        """Abort the connection and drop unsent data, because nobody may read it. The script may continue."""
        self._writer.transport.abort()
        try:
            await self._writer.wait_closed()
        except OSError:
            return


async def start_exec(socket_path: str, api_version: str, exec_id: str) -> ExecStream:
    """Start the exec `exec_id`. Raises SandboxError if the daemon refuses."""
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
