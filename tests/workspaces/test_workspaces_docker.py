from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from docker_support import containers_of, docker_client, in_container, until
from support.docker_here import needs_docker

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.containers.container import Container
from pytest_agentbench.workspaces.sandboxes.base import ExecResult, Sandbox

pytestmark = [needs_docker, pytest.mark.slow]


def executed(base: Path, *commands: str, settings: dict[str, Any] | None = None, **options: Any) -> list[ExecResult]:
    """The results of shell commands, one after the other in one container."""

    async def act(sandbox: Sandbox) -> list[ExecResult]:
        return [await sandbox.exec(["sh", "-c", each], **{"seconds": 20, **options}) for each in commands]

    return in_container(base, act, **(settings or {}))


def test_a_command_ends_as_in_a_shell(tmp_path: Path) -> None:
    results = executed(tmp_path, "echo out; echo err >&2; exit 3", "kill -TERM $$", "no-such-program", "exit 0")
    assert [(each.exit_code, each.killed) for each in results] == [(3, None), (143, None), (127, None), (0, None)]
    assert results[0].output == "out\nerr\n"


def test_a_command_runs_unprivileged_in_a_read_only_container(tmp_path: Path) -> None:
    [found] = executed(tmp_path, 'pwd; echo "$HOME"; test "$(id -u)" != 0 && echo user; touch /x /usr/x 2>&1 | wc -l')
    assert found.output.splitlines() == ["/workspace", "/workspace", "user", "2"]
    [capabilities] = executed(tmp_path, "grep CapBnd /proc/self/status; grep NoNewPrivs /proc/self/status")
    assert capabilities.output.split() == ["CapBnd:", "0" * 16, "NoNewPrivs:", "1"]


def test_its_folders_are_the_workspace(tmp_path: Path) -> None:
    async def act(sandbox: Sandbox) -> None:
        await sandbox.put("given/in.txt", b"from here")
        result = await sandbox.exec(
            ["sh", "-c", "cat given/in.txt; echo there > given/out; echo t > /tmp/t"], seconds=20
        )
        assert result.output == "from here"
        assert await sandbox.get("/workspace/given/out", 100) == b"there\n"
        assert await sandbox.get("/tmp/t", 100) == b"t\n"
        assert sandbox.workspace.read_text("given/out") == "there\n"

    in_container(tmp_path, act)


def test_input_output_and_environment(tmp_path: Path) -> None:
    given = bytes(range(256)) * 10_000

    async def act(sandbox: Sandbox) -> None:
        counted = await sandbox.exec(["wc", "-c"], seconds=20, stdin=given)
        assert counted.output.strip() == str(len(given))
        unread = await sandbox.exec(["true"], seconds=20, stdin=given)
        assert unread.exit_code == 0
        async with asyncio.timeout(20):
            late = await sandbox.exec(["sleep", "60"], seconds=0.3, stdin=given)
        assert late.killed == "time-out"
        shown = await sandbox.exec(["sh", "-c", 'echo "$A $B"'], seconds=20, environment={"A": "1 2", "B": "x=y"})
        assert shown.output == "1 2 x=y\n"
        cut = await sandbox.exec(["seq", "1", "100000"], seconds=20, output_limit=100)
        assert cut.truncated
        assert cut.output.startswith("1\n2\n")
        assert cut.output.endswith("99999\n100000\n")

    in_container(tmp_path, act)


def test_arguments_reach_the_program_as_they_are(tmp_path: Path) -> None:
    odd = ["a b", "$HOME", "'", '"', "-x", "", "`id`", "ü\n"]

    async def act(sandbox: Sandbox) -> ExecResult:
        return await sandbox.exec(["python3", "-c", "import sys; print(sys.argv[1:])", *odd], seconds=20)

    assert in_container(tmp_path, act).output == f"{odd}\n"


def test_words_that_no_program_can_be_started_with(tmp_path: Path) -> None:
    async def act(sandbox: Sandbox) -> None:
        for argv in (["echo", "a\0b"], ["echo", "é" * 70_000]):
            done = await sandbox.exec(argv, seconds=20)
            assert (done.exit_code, done.output.startswith("cannot start the command: ")) == (126, True)
        longest = ["sh", "-c", 'echo "${#1}"', "sh", "x" * (2**17 - 1)]
        assert (await sandbox.exec(longest, seconds=20)).output == "131071\n"

    in_container(tmp_path, act)


def test_a_time_limit_ends_everything_and_the_next_command_works(tmp_path: Path) -> None:
    slow = "setsid sleep 7631 & touch before; sleep 7632"

    async def act(sandbox: Sandbox) -> None:
        result = await sandbox.exec(["sh", "-c", slow], seconds=0.5)
        assert (result.exit_code, result.killed) == (None, "time-out")
        assert await processes(sandbox) == []
        assert sandbox.workspace.kind("before") == "file"

    in_container(tmp_path, act)


@pytest.mark.parametrize("wrecking", ["kill -9 -1", "kill -9 $PPID", "kill -9 1", "kill -STOP $PPID; kill -CONT $PPID"])
def test_a_command_cannot_end_its_own_sandbox(tmp_path: Path, wrecking: str) -> None:
    first, second = executed(
        tmp_path, f"setsid sleep 7633 & {wrecking}; sleep 0.1; exit 4", "ls /proc/1 >/dev/null && echo fine"
    )
    assert first.killed is None
    assert second.output == "fine\n"


def test_nothing_of_a_command_is_left(tmp_path: Path) -> None:
    async def act(sandbox: Sandbox) -> None:
        daemon = "setsid sh -c 'sleep 7634 & sleep 7635' & sleep 7636 & echo started"
        result = await sandbox.exec(["sh", "-c", daemon], seconds=20)
        assert (result.exit_code, result.output) == (0, "started\n")
        assert await processes(sandbox) == []

    in_container(tmp_path, act)


def test_a_cancelled_command_is_ended(tmp_path: Path) -> None:
    async def act(sandbox: Sandbox) -> None:
        command = "echo $$ > pid; exec sleep 7637"
        task = asyncio.ensure_future(sandbox.exec(["sh", "-c", command], seconds=60))
        await until(lambda: sandbox.workspace.kind("pid") == "file")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await processes(sandbox) == []

    in_container(tmp_path, act)


def test_a_program_that_stays(tmp_path: Path) -> None:
    async def act(sandbox: Sandbox) -> None:
        shell = await sandbox.spawn(["sh"])
        assert await answer(shell, b"cd /tmp; X=5; echo ready\n", b"ready\n") == b"ready\n"
        beside = await sandbox.exec(["sh", "-c", "sleep 7638 & echo beside"], seconds=20)
        assert beside.output == "beside\n"
        assert await answer(shell, b"echo $X; pwd\n", b"/tmp\n") == b"5\n/tmp\n"
        assert await processes(sandbox) == ["sh"]
        await shell.stop()
        assert await shell.read() == b""
        assert await processes(sandbox) == []

    in_container(tmp_path, act)


def test_errors_of_what_stays_can_be_kept_apart(tmp_path: Path) -> None:
    async def act(sandbox: Sandbox) -> None:
        command = "head -c 300000 /dev/zero | tr '\\0' x >&2; echo out; read line; echo last words >&2; echo $line"
        program = await sandbox.spawn(["sh", "-c", command], stderr="apart")
        assert await program.read() == b"out\n"
        await program.write(b"still read\n")
        assert [await program.read(), await program.read()] == [b"still read\n", b""]
        assert (len(program.errors()), program.errors()[-12:]) == (16_384, "xlast words\n")
        await program.stop()
        ended = await sandbox.spawn(["sh", "-c", "echo at once >&2"], stderr="apart")
        assert await ended.read() == b""
        assert ended.errors() == "at once\n"
        await ended.stop()
        merged = await sandbox.spawn(["sh", "-c", "echo one >&2"])
        assert (await merged.read(), merged.errors()) == (b"one\n", "")
        await merged.stop()

    in_container(tmp_path, act)


def test_a_time_limit_ends_programs_that_stay(tmp_path: Path) -> None:
    async def act(sandbox: Sandbox) -> None:
        shell = await sandbox.spawn(["cat"])
        assert (await sandbox.exec(["sleep", "60"], seconds=0.3)).killed == "time-out"
        assert await shell.read() == b""
        with pytest.raises(BrokenPipeError):
            await shell.write(b"x")
        await shell.stop()

    in_container(tmp_path, act)


def test_a_command_ends_no_worker_that_a_service_starts_meanwhile(tmp_path: Path) -> None:
    serve = (
        "mkfifo asked; (while read -r line < asked; do setsid sh -c 'sleep 7639 & sleep 7640' & echo > started; done) &"
    )

    async def act(sandbox: Sandbox) -> None:
        await sandbox.exec(["sh", "-c", f"mkfifo started; {serve}"], seconds=20, leave_running=True)
        ask = "setsid sleep 7641 & echo one > asked; read -r line < started; sleep 0.2"
        await sandbox.exec(["sh", "-c", ask], seconds=20)
        assert sorted(name for name in await processes(sandbox) if name == "sleep") == ["sleep"] * 3

    in_container(tmp_path, act)


def test_a_command_that_ends_its_script_leaves_services_running(tmp_path: Path) -> None:
    async def act(sandbox: Sandbox) -> None:
        await sandbox.exec(["sh", "-c", "sleep 7642 &"], seconds=20, leave_running=True)
        killed = await sandbox.exec(["sh", "-c", "sleep 7643 & kill -9 $PPID"], seconds=20)
        assert (killed.exit_code, killed.killed) == (137, None)
        assert (await processes(sandbox)).count("sleep") == 2

    in_container(tmp_path, act)


def test_a_command_of_another_user(tmp_path: Path) -> None:
    async def act(sandbox: Sandbox) -> None:
        await sandbox.exec(["sh", "-c", "sleep 7644 &"], seconds=20, leave_running=True)
        own = "id -u; cat shown; echo x > made; grep CapEff /proc/self/status; setsid sleep 7645 &"
        await sandbox.exec(["sh", "-c", "echo shown > shown"], seconds=20)
        for user, uid in (("root", "0"), ("nobody", "65534"), ("4321", "4321")):
            result = await sandbox.exec(["sh", "-c", own], seconds=20, user=user)
            assert result.output.splitlines()[:2] == [uid, "shown"]
            assert "made: Permission denied" in result.output
            assert result.output.endswith("CapEff:\t0000000000000000\n")
        with pytest.raises(SandboxError, match="the container has no user 'nosuch': unable to find user nosuch"):
            await sandbox.exec(["true"], seconds=20, user="nosuch")
        assert (await processes(sandbox)).count("sleep") == 2

    in_container(tmp_path, act)


def test_commands_of_one_run_take_turns_and_the_loop_goes_on(tmp_path: Path) -> None:
    async def act(sandbox: Sandbox) -> None:
        beats = 0

        async def beat() -> None:
            nonlocal beats
            while True:
                await asyncio.sleep(0.01)
                beats += 1

        heart = asyncio.ensure_future(beat())
        script = "test ! -e busy; echo $?; touch busy; sleep 0.2; rm busy"
        results = await asyncio.gather(*(sandbox.exec(["sh", "-c", script], seconds=20) for _ in range(4)))
        heart.cancel()
        assert [each.output for each in results] == ["0\n"] * 4
        assert beats > 20

    in_container(tmp_path, act)


@pytest.mark.parametrize(
    ("script", "killed"),
    [
        ("import sys; held = [bytearray(2**20) for _ in range(200)]; print('had it all')", "memory"),
        ("import subprocess, sys; subprocess.run([sys.executable, '-c', 'x = bytearray(200 * 2**20)'])", "memory"),
        ("open('a', 'wb').write(bytes(3 * 2**20)); open('b', 'wb').write(bytes(3 * 2**20))", "disk"),
    ],
)
def test_a_broken_limit(tmp_path: Path, script: str, killed: str) -> None:
    async def act(sandbox: Sandbox) -> None:
        result = await sandbox.exec(["python3", "-c", script], seconds=30)
        assert (result.exit_code, result.killed) == (None, killed), result
        again = await sandbox.exec(["sh", "-c", "rm -f a b; echo again"], seconds=30)
        assert (again.output, again.killed) == ("again\n", None)

    in_container(tmp_path, act, memory_mb=64, workspace_mb=5)


def test_processes_that_end_during_a_check_break_no_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Container.processes

    def read_late(container: Container) -> list[int]:
        time.sleep(2)  # the machine's processes were listed before, those of the container are read after it
        return real(container)

    monkeypatch.setattr(Container, "processes", read_late)
    script = "for i in $(seq 12); do sleep 1.5 & done; sleep 3; echo ended"
    [done] = executed(tmp_path, script, settings={"processes": 4})
    assert (done.killed, done.output) == (None, "ended\n")


def test_removed_in_the_end(tmp_path: Path) -> None:
    async def act(sandbox: Sandbox) -> list[dict[str, Any]]:
        [found] = containers_of(str(tmp_path))
        with docker_client() as client:
            return [client.api.inspect_container(found["Id"])]

    [was] = in_container(tmp_path, act)
    assert containers_of(str(tmp_path)) == []
    host = was["HostConfig"]
    assert (host["NetworkMode"], host["ReadonlyRootfs"], host["CapDrop"], host["Init"]) == ("none", True, ["ALL"], True)
    assert "no-new-privileges" in host["SecurityOpt"]
    assert host["Memory"] == host["MemorySwap"] == 2048 * 2**20
    assert was["Config"]["User"].split(":")[0] not in ("", "0", "root")
    assert all("docker.sock" not in mount["Source"] for mount in was["Mounts"])


def test_removed_where_the_run_fails(tmp_path: Path) -> None:
    async def act(sandbox: Sandbox) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        in_container(tmp_path, act)
    assert containers_of(str(tmp_path)) == []


async def processes(sandbox: Sandbox) -> list[str]:
    """The names of what runs in the container for the agent, but for this question."""
    script = "import os\nme = os.getuid(), os.getpid(), os.getppid()\n" + (
        "for pid in filter(str.isdigit, os.listdir('/proc')):\n"
        "    name = open(f'/proc/{pid}/comm').read().strip()\n"
        "    if os.stat(f'/proc/{pid}').st_uid == me[0] and int(pid) not in me[1:]: print(name)\n"
    )
    return (await sandbox.exec(["python3", "-c", script], seconds=20)).output.split()


async def answer(process: Any, line: bytes, end: bytes) -> bytes:
    """What the program writes upon a line, as far as `end`."""
    await process.write(line)
    got = b""
    while not got.endswith(end):
        piece = await process.read()
        assert piece, got
        got += piece
    return got
