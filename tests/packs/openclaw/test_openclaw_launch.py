"""relay.mjs, run by the real image's node: the program's way to its model, its output and its end."""

from __future__ import annotations

import asyncio
from importlib.resources import files
from pathlib import Path

import pytest
from support.openclaw_here import OPENCLAW_IMAGE, needs_openclaw

from pytest_agentbench.workspaces.sandboxes.base import ExecResult, Mount, SandboxSpec
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces

pytestmark = [pytest.mark.full, needs_openclaw]

RELAY = Path(str(files("pytest_agentbench.runners.agents") / "relay.mjs"))
FETCH = "fetch('http://127.0.0.1:18790/v1').then((it) => it.text()).then(console.log)"


def launched(folder: Path, *programs: list[str]) -> list[ExecResult]:
    """Return the result of each of these programs. A socket of the folder answers every HTTP request with `hello`."""

    async def run() -> list[ExecResult]:
        workspaces = Workspaces()
        sandboxes = Sandboxes(workspaces)
        mounts = Mount(RELAY, "/run/relay.mjs"), Mount(folder, "/run/agentbench")
        spec = SandboxSpec("docker", image=OPENCLAW_IMAGE, mounts=mounts)
        server = await asyncio.start_unix_server(_hello, folder / "model.sock")
        for path in (folder, folder / "model.sock"):
            path.chmod(0o777)
        try:
            sandbox = await sandboxes.start(spec, workspaces.create("launch"))
            start = ["node", "/run/relay.mjs", "18790", "/run/agentbench/model.sock", ""]
            return [await sandbox.exec([*start, *program], seconds=30) for program in programs]
        finally:
            server.close()
            await sandboxes.close()
            workspaces.close()

    return asyncio.run(run())


async def _hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
    await writer.drain()
    writer.close()


def test_connections_to_the_port_are_led_to_the_socket(tmp_path: Path) -> None:
    both = f"Promise.all([{FETCH}, {FETCH}])"
    [done] = launched(tmp_path, ["node", "-e", both])
    assert (done.exit_code, done.output) == (0, "\nhello\nhello\n")


def test_the_programs_end_is_the_launchers(tmp_path: Path) -> None:
    failed, killed, missing = launched(tmp_path, ["sh", "-c", "exit 7"], ["sh", "-c", "kill -9 $$"], ["no-program"])
    assert failed.exit_code == 7
    assert killed.exit_code == 128 + 9
    assert missing.exit_code == 127
    assert "relay: no-program: spawn no-program ENOENT" in missing.output


def test_stdout_comes_in_one_piece_behind_the_log(tmp_path: Path) -> None:
    script = "echo '{'; echo log >&2; seq 100000; echo '}'; echo -n end of log >&2"
    [done] = launched(tmp_path, ["sh", "-c", script])
    log, _, output = done.output.partition("\n{\n")
    assert log == "log\nend of log"
    assert output.endswith("\n100000\n}\n")


def test_a_background_process_does_not_keep_the_turn_open(tmp_path: Path) -> None:
    [done] = launched(tmp_path, ["sh", "-c", "sleep 60 & echo done"])
    assert (done.exit_code, done.output) == (0, "\ndone\n")
    assert done.seconds < 10
