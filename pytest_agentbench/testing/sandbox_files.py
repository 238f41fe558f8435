"""The kit of sandbox providers: folders and sockets between a sandbox and this machine."""

from __future__ import annotations

import asyncio

from pytest_agentbench.testing.samples import expect, expect_error
from pytest_agentbench.testing.sandbox_exec import run_shell as _run
from pytest_agentbench.workspaces.confined import PathRefusedError
from pytest_agentbench.workspaces.sandboxes.base import Connection, Sandbox
from pytest_agentbench.workspaces.sessions import Workspaces


async def check_one_workspace(sandbox: Sandbox, server: Sandbox) -> None:
    """Check that a run's sandbox and a server's in its workspace share their files. The server's is stopped."""
    await _run(sandbox, "echo run > whose.txt")
    done = await _run(server, "cat whose.txt; echo server > whose.txt")
    expect(done.output == "run\n", f"start: a server in a run's workspace finds {done.output!r}, expected its files")
    await server.stop()
    done = await _run(sandbox, "cat whose.txt")
    expect(done.output == "server\n", f"start: a run finds {done.output!r} where a server in its workspace wrote")


async def check_folders(sandbox: Sandbox, workspaces: Workspaces) -> None:
    """Check `upload` and `download`."""
    folder = workspaces.create("uploaded").path
    folder.joinpath("below").mkdir()
    program = folder / "below" / "program"
    program.write_text("#!/bin/sh\necho uploaded\n", encoding="utf-8")
    program.chmod(0o755)
    folder.joinpath("link").symlink_to("below/program")
    await _run(sandbox, "mkdir up; echo stays > up/other.txt")
    await sandbox.upload(folder, "up")
    done = await _run(sandbox, "up/below/program; up/link; cat up/other.txt")
    expect(done.output == "uploaded\nuploaded\nstays\n", f"upload: found {done.output!r} after the upload of a folder")
    await sandbox.upload(folder / "below", "/tmp/up")  # noqa: S108 - the sandbox's own
    expect(b"echo uploaded" in await sandbox.get("/tmp/up/program", 100), "upload: not found below /tmp")  # noqa: S108
    await _run(sandbox, "ln -s /bin/sh up/shell; mkfifo up/pipe; echo made > up/made.txt")
    target = workspaces.create("downloaded").path
    await sandbox.download("up", target)
    names = sorted(entry.name for entry in target.iterdir())
    expected = ["below", "link", "made.txt", "other.txt", "shell"]
    expect(names == expected, f"download: found {names}, expected {expected}")
    expect(target.joinpath("shell").is_symlink(), "download: it followed a link")
    mode = target.joinpath("below", "program").stat().st_mode
    expect(bool(mode & 0o100), "download: a program is not executable any more")
    expect(target.joinpath("made.txt").read_text(encoding="utf-8") == "made\n", "download: other content")
    refused = (PathRefusedError, OSError)
    await expect_error(sandbox.upload(folder, "../up"), "upload: out of the workspace", *refused)
    await expect_error(sandbox.download("../", target), "download: out of the workspace", *refused)
    await expect_error(sandbox.download("missing", target), "download: of no folder", OSError)


_PATIENCE_SECONDS = 10.0

_ASK = """
import os, socket, sys
os.chdir(os.path.join(sys.argv[1], "agentbench-kit"))
connections = [socket.socket(socket.AF_UNIX) for _ in range(3)]
try:
    for connection in connections:
        connection.connect("socket")
except OSError:
    sys.exit(3)
*staying, leaving = connections
for connection in reversed(staying):
    connection.sendall(b"stay\\n")
    print(connection.makefile().readline(), end="", flush=True)
leaving.settimeout(float(sys.argv[2]))
leaving.sendall(b"leave\\n")
try:
    print(leaving.makefile().read(), end="")
except socket.timeout:  # TimeoutError since Python 3.10
    sys.exit(5)
"""
"""Opens three connections to a socket and asks at each. The answers to two of them do not return.

Ends with 3 if it cannot connect, and with 5 if the third connection is open after its answer.
"""


async def check_sockets(sandbox: Sandbox, *, is_local: bool) -> None:
    """Check `serve`, by a program in Python if the sandbox has that. `is_local`: its /tmp is $TMPDIR."""
    waiting: list[bool] = []

    async def answer(connection: Connection) -> None:
        asked = b""
        while not asked.endswith(b"\n") and (data := await connection.read()):
            asked += data
        await connection.write(b"answered\n")
        if asked == b"leave\n":
            return
        try:
            await asyncio.Event().wait()
        finally:
            waiting.append(False)

    folder = '"$TMPDIR"' if is_local else "/tmp"  # noqa: S108
    command = f"command -v python3 >/dev/null || exit 4; python3 - {folder} {_PATIENCE_SECONDS} <<'END'\n{_ASK}END"
    async with sandbox.serve("/tmp/agentbench-kit/socket", answer):  # noqa: S108 - the sandbox's own
        done = await _run(sandbox, command)
        if done.exit_code == 4:  # an image without Python
            return
        expect(done.exit_code != 5, "serve: a connection is open after its answer has returned")
        expect(done.output == "answered\n" * 3, f"serve: three connections got {done.output!r}, expected answers")
    expect(len(waiting) == 2, "serve: an answer is not cancelled at the end of its block")
    done = await _run(sandbox, command)
    expect(done.exit_code == 3, "serve: the socket is open after the end of its block")
