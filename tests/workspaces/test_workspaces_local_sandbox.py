"""Commands end for sure, take all they started with them, and see no secret of the environment."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_agentbench.workspaces import ExecResult, ResourceLimits, Workspace, Workspaces
from pytest_agentbench.workspaces.sandboxes.local import LocalSandbox

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and a child subreaper")


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    workspaces = Workspaces()
    yield workspaces.create("case")
    workspaces.close()


def run(workspace: Workspace, command: str, *, seconds: float = 20, **options: int) -> ExecResult:
    return asyncio.run(LocalSandbox(workspace).exec(["/bin/sh", "-c", command], seconds=seconds, **options))


def running(mark: str) -> bool:
    """Whether a process with the text in its command line lives."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                return True
        except OSError:
            continue
    return False


def test_gives_output_in_order_and_the_exit_code(workspace: Workspace) -> None:
    result = run(workspace, "echo one; echo two >&2; pwd; exit 3")
    assert result.output == f"one\ntwo\n{workspace.path}\n"
    assert (result.exit_code, result.killed, result.truncated) == (3, None, False)
    assert run(workspace, "kill -9 $$").exit_code == 137
    assert run(workspace, "kill 0").exit_code == 143
    missing = asyncio.run(LocalSandbox(workspace).exec(["no-such-program"], seconds=5))
    assert (missing.exit_code, missing.output) == (127, "no-such-program: No such file or directory\n")


def test_sees_nothing_of_the_environment_but_what_it_needs(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    output = run(workspace, "env; cat /proc/self/environ /proc/$PPID/environ | tr '\\0' '\\n'").output
    assert "secret" not in output
    names = {line.partition("=")[0] for line in output.splitlines() if "=" in line}
    assert names <= {"PATH", "HOME", "TMPDIR", "LANG", "TERM", "PWD", "OLDPWD", "SHLVL", "_"}
    assert f"HOME={workspace.path}\n" in output


def test_has_no_input_to_wait_for(workspace: Workspace) -> None:
    assert run(workspace, "cat; yes | head -1").output == "y\n"


@linux_only
@pytest.mark.slow
def test_time_limit_kills_sleeping_grandchildren_and_daemons(workspace: Workspace) -> None:
    command = "sleep 7771 & (setsid sleep 7772 >/dev/null 2>&1 </dev/null &); echo begun; exec sleep 7773"
    began = time.perf_counter()
    result = run(workspace, command, seconds=2)
    assert time.perf_counter() - began < 30
    assert (result.exit_code, result.killed, result.output) == (None, "time-out", "begun\n")
    assert not running("sleep\x00777")


@linux_only
def test_nothing_outlives_its_command(workspace: Workspace) -> None:
    result = run(workspace, "(setsid sh -c 'trap \"\" TERM HUP; sleep 7781' >/dev/null 2>&1 &) ; sleep 7782 & echo ok")
    assert (result.exit_code, result.output) == (0, "ok\n")
    assert not running("sleep\x00778")


@linux_only
def test_killing_the_launcher_gains_nothing(workspace: Workspace) -> None:
    result = run(workspace, "sleep 7791 & kill -9 $PPID; exec sleep 7792", seconds=0.4)
    assert result.exit_code in (None, 137)
    assert not running("sleep\x00779")


@linux_only
def test_cancelling_kills_too(workspace: Workspace) -> None:
    async def cancelled() -> None:
        argv = ["/bin/sh", "-c", "touch started; sleep 7801"]
        task = asyncio.ensure_future(LocalSandbox(workspace).exec(argv, seconds=60))
        await asyncio.to_thread(_until, (workspace.path / "started").exists)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert not running("sleep\x007801")


@linux_only
def test_a_killed_session_leaves_no_command_behind(workspace: Workspace) -> None:
    program = (
        "import asyncio, sys; from pathlib import Path\n"
        "from pytest_agentbench.workspaces import Workspace\n"
        "from pytest_agentbench.workspaces.sandboxes.local import LocalSandbox\n"
        "argv = ['/bin/sh', '-c', 'touch started; (setsid sleep 7811 &); sleep 7812']\n"
        "asyncio.run(LocalSandbox(Workspace(Path(sys.argv[1]))).exec(argv, seconds=60))\n"
    )
    session = subprocess.Popen([sys.executable, "-c", program, str(workspace.path)])
    _until(lambda: (workspace.path / "started").exists())
    session.kill()
    session.wait()
    _until(lambda: not running("sleep\x00781"))


def test_keeps_the_beginning_and_the_end_of_long_output(workspace: Workspace) -> None:
    result = run(workspace, "echo first; seq 1 200000; echo last", output_limit=1000)
    assert result.truncated
    assert result.output.startswith("first\n1\n2\n")
    assert result.output.endswith("200000\nlast\n")
    assert "bytes left out ...]" in result.output
    assert len(result.output) < 1100


def test_stops_a_writer_without_end(workspace: Workspace) -> None:
    result = run(workspace, "yes")
    assert (result.exit_code, result.killed, result.truncated) == (None, "output", True)
    assert "and then it was stopped" in result.output


@linux_only
def test_limits_memory_and_file_size(workspace: Workspace) -> None:
    limits = ResourceLimits(memory_bytes=200 * 2**20, file_bytes=10_000)
    script = f"{sys.executable} -c 'bytearray(1 << 30)'; head -c 20000 /dev/zero > big; wc -c < big"
    result = asyncio.run(LocalSandbox(workspace, limits).exec(["/bin/sh", "-c", script], seconds=20))
    assert "MemoryError" in result.output
    assert result.output.endswith("10000\n")


@linux_only
@pytest.mark.slow
def test_limits_processor_time(workspace: Workspace) -> None:
    limits = ResourceLimits(cpu_seconds=1)
    argv = ["/bin/sh", "-c", "while :; do :; done"]
    result = asyncio.run(LocalSandbox(workspace, limits).exec(argv, seconds=20))
    assert result.exit_code == 137


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
