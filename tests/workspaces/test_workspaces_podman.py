"""What a run sees of a container that podman made."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from docker_support import until
from podman_support import in_podman
from support.processes import running

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.sandboxes.base import ExecResult, Mount, Sandbox

OWN = f"76{os.getpid():07d}"
"""What programs of this process's tests are known by on this machine, where other workers run the same tests."""


def executed(base: Path, engine: str, *commands: str) -> list[ExecResult]:
    """The results of shell commands, one after the other in one container."""

    async def act(sandbox: Sandbox) -> list[ExecResult]:
        return [await sandbox.exec(["sh", "-c", each], seconds=20) for each in commands]

    return in_podman(base, engine, act)


@pytest.mark.slow
def test_a_command_ends_as_in_a_shell(tmp_path: Path, engine: str) -> None:
    results = executed(tmp_path, engine, "echo out; echo err >&2; exit 3", "kill -TERM $$", "no-such-program", "exit 0")
    assert [(each.exit_code, each.killed) for each in results] == [(3, None), (143, None), (127, None), (0, None)]
    assert results[0].output == "out\nerr\n"


@pytest.mark.slow
def test_its_folders_are_the_workspace_and_what_is_mounted(tmp_path: Path, engine: str) -> None:
    (tmp_path / "a, b").mkdir()
    (tmp_path / "a, b/given").write_text("mounted\n")

    async def act(sandbox: Sandbox) -> None:
        await sandbox.put("in/text", b"put\n")
        read = await sandbox.exec(["cat", "in/text", "/run/agentbench/given"], seconds=20)
        assert read.output == "put\nmounted\n"
        script = "echo there > in/out; echo t > /tmp/t; mkdir $HOME"
        await sandbox.exec(["sh", "-c", script], seconds=20, environment={"HOME": "/tmp/home"})
        assert await sandbox.get("/workspace/in/out", 100) == b"there\n"
        assert await sandbox.get("/tmp/t", 100) == b"t\n"
        assert sandbox.workspace.kind("/tmp/home") == "folder"

    in_podman(tmp_path, engine, act, mounts=[Mount(tmp_path / "a, b", "/run/agentbench")])


@pytest.mark.slow
def test_input_output_and_environment(tmp_path: Path, engine: str) -> None:
    given = bytes(range(256)) * 10_000

    async def act(sandbox: Sandbox) -> None:
        counted = await sandbox.exec(["wc", "-c"], seconds=20, stdin=given)
        assert counted.output.strip() == str(len(given))
        unread = await sandbox.exec(["true"], seconds=20, stdin=given)
        assert unread.exit_code == 0
        begun = [await sandbox.exec(["head", "-c3"], seconds=20, stdin=b"one" + given) for _ in range(20)]
        assert [(each.exit_code, each.output) for each in begun] == [(0, "one")] * 20
        shown = await sandbox.exec(["sh", "-c", 'echo "$A $B"'], seconds=20, environment={"A": "1 2", "B": "x=y"})
        assert shown.output == "1 2 x=y\n"
        cut = await sandbox.exec(["seq", "1", "300000"], seconds=20, output_limit=100)
        assert cut.truncated
        assert cut.output.startswith("1\n2\n")
        assert cut.output.endswith("299999\n300000\n")

    in_podman(tmp_path, engine, act)


@pytest.mark.slow
def test_arguments_reach_the_program_as_they_are(tmp_path: Path, engine: str) -> None:
    odd = ["a b", "$HOME", "'", '"', "-x", "--", "", "`id`", "ü\n"]

    async def act(sandbox: Sandbox) -> ExecResult:
        return await sandbox.exec(["python3", "-c", "import sys; print(sys.argv[1:])", *odd], seconds=20)

    assert in_podman(tmp_path, engine, act).output == f"{odd}\n"


@pytest.mark.slow
def test_a_time_limit_ends_everything_and_the_next_command_works(tmp_path: Path, engine: str) -> None:
    async def act(sandbox: Sandbox) -> None:
        slow = await sandbox.exec(["sh", "-c", f"setsid sleep {OWN}10 & touch before; sleep {OWN}11"], seconds=0.5)
        assert (slow.exit_code, slow.killed) == (None, "time-out")
        assert not running(f"sleep {OWN}1")
        again = await sandbox.exec(["ls"], seconds=20)
        assert again.output == "before\n"

    in_podman(tmp_path, engine, act)


@pytest.mark.slow
def test_nothing_of_a_command_is_left(tmp_path: Path, engine: str) -> None:
    async def act(sandbox: Sandbox) -> None:
        daemon = f"setsid sh -c 'sleep {OWN}20 & sleep {OWN}21' & sleep {OWN}22 & echo started"
        result = await sandbox.exec(["sh", "-c", daemon], seconds=20)
        assert (result.exit_code, result.output) == (0, "started\n")
        assert not running(f"sleep {OWN}2")

    in_podman(tmp_path, engine, act)


@pytest.mark.slow
def test_a_cancelled_command_is_ended(tmp_path: Path, engine: str) -> None:
    async def act(sandbox: Sandbox) -> None:
        task = asyncio.ensure_future(sandbox.exec(["sh", "-c", f"echo > begun; exec sleep {OWN}30"], seconds=60))
        await until(lambda: sandbox.workspace.kind("begun") == "file")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not running(f"sleep {OWN}30")

    in_podman(tmp_path, engine, act)


@pytest.mark.slow
def test_output_without_end(tmp_path: Path, engine: str) -> None:
    async def act(sandbox: Sandbox) -> None:
        result = await sandbox.exec(["yes", f"{OWN}40"], seconds=60, output_limit=1000)
        assert (result.killed, result.truncated) == ("output", True)
        assert len(result.output) < 1200
        assert not running(f"yes {OWN}40")

    in_podman(tmp_path, engine, act)


@pytest.mark.slow
def test_a_full_workspace(tmp_path: Path, engine: str) -> None:
    async def act(sandbox: Sandbox) -> None:
        fill = f"head -c 6000000 /dev/zero > /tmp/big; echo filled; sleep {OWN}50"
        result = await sandbox.exec(["sh", "-c", fill], seconds=60)
        assert (result.exit_code, result.killed) == (None, "disk")
        assert not running(f"sleep {OWN}50")
        sandbox.workspace.remove("/tmp/big")
        assert (await sandbox.exec(["echo", "again"], seconds=20)).output == "again\n"

    in_podman(tmp_path, engine, act, workspace_mb=5)


@pytest.mark.slow
def test_a_program_that_stays(tmp_path: Path, engine: str) -> None:
    async def act(sandbox: Sandbox) -> None:
        program = await sandbox.spawn(["sh", "-c", "echo err >&2; read line; echo $line; read line"], stderr="apart")
        await program.write(b"asked\n")
        assert await program.read() == b"asked\n"
        assert (await sandbox.exec(["echo", "beside"], seconds=20)).output == "beside\n"
        await program.end_input()
        assert await program.read() == b""
        assert program.errors() == "err\n"
        await program.stop()

    in_podman(tmp_path, engine, act)


@pytest.mark.slow
def test_processes_that_a_command_left_continue_until_the_end(tmp_path: Path, engine: str) -> None:
    async def act(sandbox: Sandbox) -> None:
        left = await sandbox.exec(["sh", "-c", f"sleep {OWN}60 & echo left"], seconds=20, leave_running=True)
        assert (left.exit_code, left.output) == (0, "left\n")
        beside = await sandbox.exec(["sh", "-c", f"sleep {OWN}61 & pwd"], seconds=20, cwd="/")
        assert beside.output == "/\n"
        assert running(f"sleep {OWN}60")
        assert not running(f"sleep {OWN}61")

    in_podman(tmp_path, engine, act)
    assert not running(f"sleep {OWN}60")


@pytest.mark.full
def test_a_command_of_another_user(tmp_path: Path, real_podman: str) -> None:
    async def act(sandbox: Sandbox) -> None:
        own = await sandbox.exec(["sh", "-c", "id -u; id -g"], seconds=20, user="4321:77")
        assert own.output == "4321\n77\n"
        with pytest.raises(SandboxError, match="the container has no user 'nosuch': "):
            await sandbox.exec(["true"], seconds=20, user="nosuch")

    in_podman(tmp_path, real_podman, act)
