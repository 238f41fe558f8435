"""What local and bubblewrap hold alike: commands end with all they started, limits hold for all processes together."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from support.docker_here import needs_bubblewrap
from support.processes import running
from support.small_disk import small_disk

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.sandboxes.base import ExecResult, Process, ResourceLimits, Sandbox, SandboxSpec
from pytest_agentbench.workspaces.sandboxes.bubblewrap import BubblewrapSandbox
from pytest_agentbench.workspaces.sandboxes.host import LocalSandbox
from pytest_agentbench.workspaces.sandboxes.watchdog import Watchdog
from pytest_agentbench.workspaces.sessions import Workspaces
from pytest_agentbench.workspaces.workspace import Workspace

T = TypeVar("T")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
MEGABYTE = 2**20
NAP = f"999.{os.getpid():07}"
"""Seconds to sleep by which the processes of this session are told from others'."""


@dataclass(frozen=True)
class Bench:
    """Makes sandboxes of one kind for one workspace."""

    kind: str
    workspace: Workspace

    def sandbox(self, **limits: int) -> Sandbox:
        given = ResourceLimits(**limits)
        if self.kind == "local":
            return LocalSandbox(self.workspace, given)
        return BubblewrapSandbox(self.workspace, SandboxSpec("bubblewrap", limits=given), Watchdog())

    def run(self, command: str, *, seconds: float = 30, stdin: bytes = b"", **limits: int) -> ExecResult:
        return asyncio.run(self.sandbox(**limits).exec(["sh", "-c", command], seconds=seconds, stdin=stdin))

    def talk(self, scene: Callable[[Sandbox], Awaitable[T]], **limits: int) -> T:
        async def play() -> T:
            sandbox = self.sandbox(**limits)
            try:
                return await scene(sandbox)
            finally:
                await sandbox.stop()

        return asyncio.run(play())


@pytest.fixture(params=["local", pytest.param("bubblewrap", marks=needs_bubblewrap)])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    workspaces = Workspaces()
    yield Bench(request.param, workspaces.create("case"))
    workspaces.close()


def test_gives_output_in_order_and_the_exit_code(bench: Bench) -> None:
    result = bench.run("echo one; echo two >&2; echo three > /dev/stderr; exit 3")
    assert (result.output, result.exit_code, result.killed) == ("one\ntwo\nthree\n", 3, None)
    killed = bench.run("kill -9 $$")
    assert (killed.output, killed.exit_code) == ("", 137)
    assert bench.run("kill 0").exit_code == 143
    missing = asyncio.run(bench.sandbox().exec(["no-such-program"], seconds=20))
    assert (missing.exit_code, "No such file or directory" in missing.output) == (127, True)


def test_words_that_no_program_can_be_started_with(bench: Bench) -> None:
    unusable: list[tuple[list[str], dict[str, Any]]] = [
        (["echo", "a\0b"], {}),
        (["echo", "a\ud800b"], {}),
        (["echo", "é" * 70_000], {}),
        (["echo", *["x" * 1000] * 1100], {}),
        (["pwd"], {"cwd": "a\0b"}),
        *((["env"], {"environment": each}) for each in ({"A": "\0"}, {"A=B": "x"}, {"": "x"}, {"A": "x" * 2**17})),
    ]
    longest = ["sh", "-c", 'echo "${#1}"', "sh", "x" * (2**17 - 1)]

    async def scene(sandbox: Sandbox) -> None:
        for argv, options in unusable:
            done = await sandbox.exec(argv, seconds=20, **options)
            assert (done.exit_code, done.output.startswith("cannot start the command: ")) == (126, True), options
        assert (await sandbox.exec(longest, seconds=20)).output == "131071\n"

    bench.talk(scene)


def test_reads_what_it_is_given_and_nothing_else(bench: Bench) -> None:
    long = b"x" * 300_000
    assert bench.run("wc -c", stdin=long).output == "300000\n"
    assert bench.run("cat /dev/stdin", stdin=b"again\n").output == "again\n"
    assert bench.run("cat; echo over").output == "over\n"


def test_has_the_workspace_and_a_private_tmp(bench: Bench) -> None:
    bench.workspace.write_text("given.txt", "from here")
    result = bench.run('cat given.txt; pwd; echo there > made.txt; echo tmp > "$TMPDIR/made.txt"; echo "$HOME"')
    here = str(bench.workspace.path) if bench.kind == "local" else "/workspace"
    assert result.output == f"from here{here}\n{here}\n"
    assert bench.workspace.read_text("made.txt") == "there\n"
    assert bench.workspace.read_text("/tmp/made.txt") == "tmp\n"
    assert asyncio.run(bench.sandbox().get("/tmp/made.txt", 100)) == b"tmp\n"


def test_nothing_outlives_its_command(bench: Bench) -> None:
    result = bench.run(f"(setsid sh -c 'trap \"\" TERM HUP; sleep {NAP}' >/dev/null 2>&1 &) ; sleep {NAP} & echo ok")
    assert (result.exit_code, result.output) == (0, "ok\n")
    assert not running(NAP)


@pytest.mark.slow
def test_a_time_out_kills_all_that_runs_in_the_sandbox(bench: Bench) -> None:
    async def scene(sandbox: Sandbox) -> None:
        shell = await sandbox.spawn(["sh", "-c", f"echo up; sleep {NAP}"])
        assert await shell.read() == b"up\n"
        command = f"sleep {NAP} & (setsid sleep {NAP} >/dev/null 2>&1 </dev/null &); echo begun; exec sleep {NAP}"
        result = await sandbox.exec(["sh", "-c", command], seconds=2)
        assert (result.exit_code, result.killed, result.output) == (None, "time-out", "begun\n")
        assert not running(NAP)
        assert await shell.read() == b""
        again = await sandbox.exec(["echo", "still usable"], seconds=20)
        assert again.output == "still usable\n"

    bench.talk(scene)


@pytest.mark.slow
def test_cancelling_kills_too(bench: Bench) -> None:
    async def scene(sandbox: Sandbox) -> None:
        task = asyncio.ensure_future(sandbox.exec(["sh", "-c", f"touch started; sleep {NAP}"], seconds=60))
        await asyncio.to_thread(_until, (bench.workspace.path / "started").exists)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not running(NAP)

    bench.talk(scene)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["cancel", "stop", "time out"])
def test_a_process_that_has_just_started_is_ended(bench: Bench, end: str) -> None:
    async def scene(sandbox: Sandbox) -> None:
        for moment in range(20):
            seconds = moment / 2_000 if end == "time out" else 60.0
            task = asyncio.ensure_future(sandbox.exec(["sleep", NAP], seconds=seconds))
            await asyncio.sleep(0 if end == "time out" else moment / 2_000)
            if end == "cancel":
                task.cancel()
            elif end == "stop":
                await asyncio.sleep(0.001)
                await sandbox.stop()
            await asyncio.wait([task])
            assert task.cancelled() or task.exception() is not None or task.result().killed is not None

    bench.talk(scene)
    assert not running(str(bench.workspace.path))
    assert not running(NAP)


@pytest.mark.slow
@pytest.mark.parametrize("leave_running", [False, True])
def test_a_killed_session_leaves_no_command_behind(bench: Bench, leave_running: bool) -> None:
    program = (
        "import asyncio, sys; from pathlib import Path\n"
        "from pytest_agentbench.workspaces.sandboxes.base import SandboxSpec\n"
        "from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes\n"
        "from pytest_agentbench.workspaces.sessions import Workspaces\n"
        "from pytest_agentbench.workspaces.workspace import Workspace\n"
        "async def main():\n"
        "    owner = int(sys.argv[3]) or None\n"
        "    sandboxes = Sandboxes(Workspaces())\n"
        "    sandbox = await sandboxes.start(SandboxSpec(sys.argv[1]), Workspace(Path(sys.argv[2]), owner))\n"
        f"    command = '(setsid sleep {NAP} &); touch started' + ('' if {leave_running} else '; sleep {NAP}')\n"
        f"    await sandbox.exec(['sh', '-c', command], seconds=60, leave_running={leave_running})\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    given = [bench.kind, str(bench.workspace.path), str(bench.workspace.owner or 0)]
    session = subprocess.Popen([sys.executable, "-c", program, *given])
    _until(lambda: (bench.workspace.path / "started").exists())
    session.kill()
    session.wait()
    _until(lambda: not running(NAP))


def test_all_output_before_the_end_of_a_command_that_leaves_a_writer_is_kept(bench: Bench) -> None:
    async def scene(sandbox: Sandbox) -> None:
        command = "(while :; do echo noise; sleep 0.01; done) & seq 100000 | tail -n 1; exit 3"
        result = await sandbox.exec(["sh", "-c", command], seconds=20, leave_running=True)
        assert (result.exit_code, result.output.replace("noise\n", "")) == (3, "100000\n")

    bench.talk(scene)


@pytest.mark.slow
def test_commands_reach_the_port_of_a_server_that_a_command_left(bench: Bench) -> None:
    serve = (
        "import socket, os\ns = socket.create_server(('127.0.0.1', 0))\nopen('new', 'w').write(str(s.getsockname()[1]))"
    )
    serve += "\nos.rename('new', 'port')\nwhile 1: s.accept()[0].sendall(b'served\\n')"
    ask = "import socket; print(socket.create_connection(('127.0.0.1', int(open('port').read()))).recv(9))"

    async def scene(sandbox: Sandbox) -> None:
        started = f'python3 -c "$1" & until [ -e port ]; do sleep 0.01; done; sleep {NAP} &'
        await sandbox.exec(["sh", "-c", started, "sh", serve], seconds=20, leave_running=True)
        for _ in range(2):
            result = await sandbox.exec(["python3", "-c", ask], seconds=20, leave_running=True)
            assert result.output == "b'served\\n'\n"
        await sandbox.stop()
        assert not running(NAP)
        assert "ConnectionRefusedError" in (await sandbox.exec(["python3", "-c", ask], seconds=20)).output

    bench.talk(scene)


@pytest.mark.slow
def test_a_command_next_to_a_service_has_the_usual_rights(bench: Bench) -> None:
    mounts = "mount | wc -l" if bench.kind != "local" else "true"  # this machine's change while other tests run
    rights = (
        "id; grep -E '^(Uid|Gid|Groups|Cap|NoNewPrivs|Seccomp)' /proc/self/status; cat /proc/self/uid_map; "
        f"{mounts}; ls /proc/self/fd | wc -l; "
        "python3 -c 'import ctypes; print(ctypes.CDLL(None).unshare(0x10000000))'"
    )

    async def scene(sandbox: Sandbox) -> None:
        results = [
            await sandbox.exec(["sh", "-c", rights], seconds=20, leave_running=leave) for leave in (False, True, False)
        ]
        assert len({result.output for result in results}) == 1, results

    bench.talk(scene)


@pytest.mark.slow
def test_limits_hold_for_processes_that_a_command_left(bench: Bench) -> None:
    async def scene(sandbox: Sandbox) -> None:
        fill = f"while :; do head -c 100000 /dev/zero >> big; done & sleep {NAP} & echo left"
        result = await sandbox.exec(["sh", "-c", fill], seconds=20, leave_running=True)
        assert (result.output, result.exit_code) == ("left\n", 0)
        await asyncio.to_thread(_until, lambda: not running(NAP))

    bench.talk(scene, workspace_bytes=5 * MEGABYTE)


def test_a_folder_that_a_command_cannot_enter_ends_it(bench: Bench) -> None:
    bench.workspace.write_text("file", "")
    os.symlink("/var/lib", bench.workspace.path / "link")

    async def scene(sandbox: Sandbox) -> None:
        for cwd in ("file", "missing", "a\nb", *(["link", "/var/lib"] if bench.kind == "bubblewrap" else [])):
            result = await sandbox.exec(["pwd"], seconds=20, cwd=cwd)
            assert (result.exit_code, result.killed) == (127, None)
            assert "can't cd to" in result.output

    bench.talk(scene)


def test_another_user_is_refused_before_the_command_starts(bench: Bench) -> None:
    refused = bench.sandbox().exec(["touch", "made"], seconds=20, user="root")
    with pytest.raises(SandboxError, match=f"sandbox {bench.kind}: it cannot run a command as the user 'root'"):
        asyncio.run(refused)
    assert bench.workspace.entries() == []


def test_a_program_that_stays_is_talked_to(bench: Bench) -> None:
    async def scene(sandbox: Sandbox) -> None:
        shell = await sandbox.spawn(["sh"])
        await shell.write(b"cd /; X=7\n")
        await shell.write(b'echo "$PWD $X"; cat < /dev/null\n')
        assert await shell.read() == b"/ 7\n"
        aside = await sandbox.exec(["echo", "aside"], seconds=20)
        assert aside.output == "aside\n"
        await shell.write(b"echo still; exit\n")
        assert await shell.read() == b"still\n"
        assert await shell.read() == b""
        with pytest.raises(BrokenPipeError):
            await shell.write(b"x" * 200_000)
        await shell.stop()
        await shell.stop()

    bench.talk(scene)


def test_input_larger_than_a_pipe_reaches_an_open_process(bench: Bench) -> None:
    async def scene(sandbox: Sandbox) -> None:
        cat = await sandbox.spawn(["cat"])
        sent = os.urandom(400_000)
        writing = asyncio.ensure_future(cat.write(sent))
        received = bytearray()
        while len(received) < len(sent):
            received += await cat.read()
        await writing
        assert bytes(received) == sent
        reading = asyncio.ensure_future(cat.read())
        await asyncio.sleep(0)
        await cat.stop()
        assert await reading == b""

    bench.talk(scene)


def test_errors_of_what_stays_can_be_kept_apart(bench: Bench) -> None:
    async def scene(sandbox: Sandbox) -> None:
        shell = await sandbox.spawn(["sh"], stderr="apart")
        assert shell.errors() == ""
        await shell.write(b"head -c 3000000 /dev/zero | tr '\\0' x >&2; echo last words > /dev/stderr; echo out\n")
        assert await shell.read() == b"out\n"
        assert (len(shell.errors()), shell.errors()[-12:]) == (16_384, "xlast words\n")
        await shell.write(b"echo more >&2; exit\n")
        assert await shell.read() == b""
        assert shell.errors().endswith("last words\nmore\n")
        await shell.stop()
        assert shell.errors().endswith("last words\nmore\n")
        merged = await sandbox.spawn(["sh", "-c", "echo one; echo two >&2"])
        assert await _all_of(merged) == b"one\ntwo\n"
        assert merged.errors() == ""
        await merged.stop()

    bench.talk(scene)


@pytest.mark.slow
def test_stopping_the_sandbox_ends_open_processes(bench: Bench) -> None:
    async def scene(sandbox: Sandbox) -> None:
        shell = await sandbox.spawn(["sh", "-c", f"(setsid sleep {NAP} &); echo up; sleep {NAP}"])
        assert await shell.read() == b"up\n"
        await sandbox.stop()
        assert not running(NAP)
        assert await shell.read() == b""
        await sandbox.stop()

    bench.talk(scene)


def test_sees_nothing_of_the_environment_but_what_it_needs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    output = bench.run("env; cat /proc/self/environ /proc/$PPID/environ 2>/dev/null | tr '\\0' '\\n'").output
    assert "secret" not in output
    names = {line.partition("=")[0] for line in output.splitlines() if "=" in line}
    assert names <= {"PATH", "HOME", "TMPDIR", "LANG", "TERM", "PWD", "OLDPWD", "SHLVL", "_"}
    given = bench.sandbox().exec(["sh", "-c", "echo $GIVEN"], seconds=20, environment={"GIVEN": "value"})
    assert asyncio.run(given).output == "value\n"


def test_stops_a_writer_without_end(bench: Bench) -> None:
    result = bench.run("yes")
    assert (result.exit_code, result.killed, result.truncated) == (None, "output", True)


def test_limits_one_process_and_one_file(bench: Bench) -> None:
    python = shlex.quote(os.path.realpath(sys.executable))
    script = f"{python} -c 'bytearray(1 << 30)'; head -c 20000 /dev/zero > big; wc -c < big"
    result = bench.run(script, memory_bytes=200 * MEGABYTE, file_bytes=10_000)
    assert "MemoryError" in result.output
    assert result.output.endswith("10000\n")


@pytest.mark.slow
def test_counts_the_memory_of_all_processes_together(bench: Bench) -> None:
    python = shlex.quote(os.path.realpath(sys.executable))
    holds = f"{python} -c 'import time; held = bytearray(b\"x\") * (40 << 20); time.sleep(60)' & "
    result = bench.run(5 * holds + "wait", memory_bytes=100 * MEGABYTE)
    assert (result.exit_code, result.killed) == (None, "memory")
    shared = (
        "import os, time; held = bytearray(b'x') * (60 << 20)\n"
        "for _ in range(5):\n"
        "    if os.fork() == 0:\n"
        "        time.sleep(2); os._exit(0)\n"
        "for _ in range(5): os.wait()\n"
    )
    result = bench.run(f"{python} -c {shlex.quote(shared)}", memory_bytes=100 * MEGABYTE)
    assert (result.exit_code, result.killed, result.output) == (0, None, "")


@pytest.mark.slow
def test_counts_memory_that_is_in_no_process(bench: Bench) -> None:
    python = shlex.quote(os.path.realpath(sys.executable))
    hides = (
        "import os, time\n"
        "files = [os.memfd_create('hidden') for _ in range(5)]\n"
        "for file in files: os.write(file, bytes(30 << 20))\n"
        "time.sleep(60)\n"
    )
    result = bench.run(f"{python} -c {shlex.quote(hides)}", memory_bytes=100 * MEGABYTE)
    assert (result.exit_code, result.killed) == (None, "memory")


@pytest.mark.slow
def test_counts_processes_and_threads(bench: Bench) -> None:
    assert bench.run("for n in 1 2 3 4 5; do sleep 0.5 & done; wait", processes=20).killed is None
    result = bench.run(f"for n in $(seq 24); do sleep {NAP} & done; wait", processes=20)
    assert (result.exit_code, result.killed) == (None, "processes")
    python = shlex.quote(os.path.realpath(sys.executable))
    threads = "import threading, time; [threading.Thread(target=time.sleep, args=(60,)).start() for _ in range(24)]"
    assert bench.run(f"{python} -c {shlex.quote(threads)}", processes=20).killed == "processes"
    assert not running(NAP)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "for n in $(seq 30); do head -c 1048576 /dev/urandom > $n; done; sleep 60",
        "for n in $(seq 30); do head -c 1048576 /dev/urandom > $TMPDIR/$n; done; sleep 60",
        "exec 3> gone; rm gone; head -c 31457280 /dev/urandom >&3; sleep 60",
        "mkdir a; cd a; for n in $(seq 20000); do echo; done | split -l 1 -a 4; sleep 60",
        "for n in $(seq 30); do head -c 1048576 /dev/urandom > $n; done",
    ],
    ids=["files", "tmp", "deleted", "entries", "quick"],
)
def test_limits_what_the_workspace_holds(bench: Bench, command: str) -> None:
    result = bench.run(command, seconds=60, workspace_bytes=20 * MEGABYTE)
    assert (result.exit_code, result.killed) == (None, "disk")


@pytest.mark.slow
def test_a_full_disk_is_not_the_agents_fault(bench: Bench, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "20m"):
        workspaces = Workspaces(tmp_path / "disk")
        short = Bench(bench.kind, workspaces.create("case"))
        with pytest.raises(SandboxError, match=r"only [\d,]+ bytes are free there.*set TMPDIR to another file system"):
            short.run("head -c 40000000 /dev/zero > big; sleep 60")
        workspaces.close()


def test_a_sparse_file_takes_what_is_written(bench: Bench) -> None:
    result = bench.run("truncate -s 100M sparse; ln sparse again", workspace_bytes=MEGABYTE)
    assert (result.exit_code, result.killed) == (0, None)


async def _all_of(process: Process) -> bytes:
    output = b""
    while data := await process.read():
        output += data
    return output


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
