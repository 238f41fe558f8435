"""The program that carries a container's streams is gone when its stream is closed."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import pytest
from docker_support import until

from pytest_agentbench.workspaces.by_command.stream import start_client

SILENT = "echo $$ > pid; exec >&- 2>&-; exec sleep 60"


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("silent", [True, False], ids=["its-streams-ended", "still-open"])
def test_a_caller_cancelled_while_it_closes_leaves_no_program(tmp_path: Path, silent: bool) -> None:
    async def act() -> int:
        script = SILENT if silent else SILENT.replace("exec >&- 2>&-; ", "")
        stream = await start_client(["sh", "-c", f"cd '{tmp_path}'; {script}"], with_stdin=False)
        await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("\n"))
        if silent:
            assert (await stream.read())[1] == b""
        closing = asyncio.ensure_future(stream.close())
        await asyncio.sleep(0)
        closing.cancel()
        with suppress(asyncio.CancelledError):
            await closing
        return int((tmp_path / "pid").read_text())

    assert not is_there(asyncio.run(act()))  # and no transport is left unclosed, which pytest would report
