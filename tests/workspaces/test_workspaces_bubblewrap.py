"""What commands in bubblewrap see, reach and are: and what is said where bubblewrap does not work."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from support.docker_here import needs_bubblewrap

import pytest_agentbench
from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.sandboxes.base import ExecResult, Mount, SandboxSpec
from pytest_agentbench.workspaces.sandboxes.bubblewrap import BubblewrapSandbox, bubblewrap_problem
from pytest_agentbench.workspaces.sandboxes.watchdog import Watchdog
from pytest_agentbench.workspaces.sessions import Workspaces
from pytest_agentbench.workspaces.workspace import Workspace

SPEC = SandboxSpec("bubblewrap")
PYTHON = "/usr/bin/python3"


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    workspaces = Workspaces()
    yield workspaces.create("case")
    workspaces.close()


def run(workspace: Workspace, command: str, spec: SandboxSpec = SPEC) -> ExecResult:
    return asyncio.run(BubblewrapSandbox(workspace, spec, Watchdog()).exec(["sh", "-c", command], seconds=30))


@pytest.fixture(autouse=True)
def _fresh_trial() -> Iterator[None]:
    bubblewrap_problem.cache_clear()
    yield
    bubblewrap_problem.cache_clear()


@needs_bubblewrap
def test_sees_the_system_and_the_workspace_only(workspace: Workspace, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("of the host")
    hidden = [secret, Path("/etc/shadow"), Path("/etc/hostname"), Path("/var/log"), Path("/sys"), workspace.path]
    looks = " ".join(f"{path}" for path in hidden if path.exists())
    result = run(
        workspace, f"for path in {looks} /var/run/docker.sock; do test -e $path && echo found $path; done; ls /"
    )
    expected = {"bin", "dev", "etc", "lib", "proc", "run", "sbin", "tmp", "usr", "var", "workspace"}
    assert "found" not in result.output
    assert expected <= set(result.output.split())
    assert not {"home", "mnt", "opt", "srv", "sys", "boot", "media"} & set(result.output.split())


@needs_bubblewrap
def test_a_program_can_open_its_output_at_once(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    start = subprocess.Popen

    def start_and_wait(*args, **options):
        process = start(*args, **options)
        process.wait(20)  # all that this process does after the start comes too late
        return process

    run(workspace, "true")  # what is tried out once, with programs of its own
    monkeypatch.setattr(subprocess, "Popen", start_and_wait)
    assert run(workspace, "echo one > /dev/stdout; echo two > /dev/stderr").output == "one\ntwo\n"


@needs_bubblewrap
def test_writes_in_the_workspace_only(workspace: Workspace) -> None:
    folders, files = "/ /etc /usr /usr/local/bin /dev /run /var", "/etc/passwd /proc/sys/kernel/core_pattern"
    result = run(
        workspace,
        f"for folder in {folders}; do touch $folder/x 2>/dev/null && echo wrote $folder; done; "
        f"for file in {files}; do test -w $file && echo may write $file; done; touch /tmp/y",
    )
    assert (result.output, result.exit_code) == ("", 0)
    assert result.killed is None
    assert workspace.kind("/tmp/y") == "file"


HOMELY = """
import asyncio, json, sys
sys.path[:0] = json.loads(sys.argv[1])
from pytest_agentbench.workspaces.sandboxes.isolated import Isolation, run_isolated
look = "import os, sys; print(os.path.exists(sys.argv[1]), os.path.exists(sys.argv[2]), sys.prefix)"
command = [sys.executable, "-I", "-c", look, *sys.argv[2:]]
print(asyncio.run(run_isolated(command, Isolation(), seconds=30)).ended.output, end="")
"""


@pytest.mark.slow
@needs_bubblewrap
def test_of_the_folders_that_python_shares_it_sees_what_is_pythons(tmp_path: Path) -> None:
    """An environment in the project's own folder, made of a Python that is linked to from a folder in the home."""
    home, project = tmp_path / "home", tmp_path / "home" / "project"
    for folder in (home / "bin", project / "bin", project / "lib"):
        folder.mkdir(parents=True)
    (home / "bin" / "python3").symlink_to(os.path.realpath(sys.executable))
    (project / "bin" / "python3").symlink_to(home / "bin" / "python3")
    (project / "pyvenv.cfg").write_text(f"home = {home / 'bin'}\n")
    for secret in (home / "secret.txt", project / "answers.txt"):
        secret.write_text("for nobody")
    given = [json.dumps(_for_others()), str(home / "secret.txt"), str(project / "answers.txt")]
    done = subprocess.run(
        [project / "bin" / "python3", "-I", "-c", HOMELY, *given], capture_output=True, text=True, check=False
    )
    assert done.stdout == f"False False {project}\n", done.stderr


@needs_bubblewrap
def test_reads_what_is_mounted_for_it_and_never_writes_there(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("given")
    (tmp_path / "data.txt").chmod(0o644)
    spec = replace(SPEC, mounts=(Mount(tmp_path / "data.txt", "/opt/given/data.txt"),))
    result = run(workspace, "cat /opt/given/data.txt; echo x > /opt/given/data.txt; touch /opt/given/more", spec)
    assert result.output.startswith("given")
    assert result.output.count("Read-only file system") == 2
    assert (tmp_path / "data.txt").read_text() == "given"


@needs_bubblewrap
def test_its_private_tmp_cannot_be_replaced(workspace: Workspace) -> None:
    result = run(workspace, "mv .tmp other; rmdir .tmp; ln -sfn /etc .tmp; ls -ld .tmp | cut -c1")
    assert result.output.splitlines()[-1] == "d"
    assert workspace.kind(".tmp") == "folder"


@needs_bubblewrap
def test_sees_its_own_processes_only_and_has_no_right_over_the_first(workspace: Workspace) -> None:
    result = run(
        workspace,
        "ls /proc | grep -c '^[0-9]'; kill -9 1 2>&-; kill -9 -1 2>&-; echo survived; echo again >&2",
    )
    assert int(result.output.split()[0]) < 8
    assert result.output.split()[1:3] == ["survived", "again"]
    assert result.exit_code == 0


@needs_bubblewrap
def test_runs_as_the_workspaces_owner_without_rights(workspace: Workspace) -> None:
    result = run(workspace, "id -u; id -un; grep -E 'CapEff|CapPrm|NoNewPrivs' /proc/self/status; touch made")
    uid, name, *rights = result.output.splitlines()
    owner = os.getuid() if workspace.owner is None else workspace.owner
    assert (int(uid), name) == (owner, "agent")
    assert [line.split()[1].strip("0") for line in rights] == ["", "", "1"]
    assert (workspace.path / "made").stat().st_uid == owner


@needs_bubblewrap
def test_has_no_network(workspace: Workspace) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0)
        port = listener.getsockname()[1]
        script = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5).send(b'out')"
        (workspace.path / "connect.py").write_text(script)
        (workspace.path / "connect.py").chmod(0o644)
        denied = run(workspace, "python3 connect.py; ls /sys/class/net 2>/dev/null")
        assert "Connection refused" in denied.output or "unreachable" in denied.output
        with pytest.raises(BlockingIOError):
            listener.accept()
        allowed = run(workspace, "python3 connect.py", replace(SPEC, network=True))
        assert (allowed.output, allowed.exit_code) == ("", 0)
        listener.settimeout(5)
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(3) == b"out"


@needs_bubblewrap
def test_makes_no_namespaces_and_reads_no_keyrings(workspace: Workspace) -> None:
    calls = "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True)\n"
    calls += "for name, number in NUMBERS.items():\n"
    calls += (
        "    done = libc.syscall(number, 0x10000000, 0, 0, 0, 0); print(name, done, os.strerror(ctypes.get_errno()))\n"
    )
    numbers = {
        "x86_64": {"unshare": 272, "keyctl": 250, "clone3": 435},
        "aarch64": {"unshare": 97, "keyctl": 219, "clone3": 435},
    }
    (workspace.path / "calls.py").write_text(f"NUMBERS = {numbers[os.uname().machine]}\n{calls}")
    (workspace.path / "calls.py").chmod(0o644)
    assert run(workspace, "python3 calls.py").output.splitlines() == [
        "unshare -1 Operation not permitted",
        "keyctl -1 Operation not permitted",
        "clone3 -1 Function not implemented",
    ]


@needs_bubblewrap
def test_shared_memory_is_its_own_and_small(workspace: Workspace) -> None:
    mark = Path("/dev/shm/agentbench-test")
    result = run(workspace, f"echo x > {mark}; head -c 100000000 /dev/zero > /dev/shm/big; stat -c %s /dev/shm/big")
    assert int(result.output.split()[-1]) <= 64 * 2**20
    assert not mark.exists()


@needs_bubblewrap
def test_many_at_once_leave_nothing_behind(workspace: Workspace) -> None:
    async def scene() -> list[ExecResult]:
        sandbox = BubblewrapSandbox(workspace, SPEC, Watchdog())
        return await asyncio.gather(*(sandbox.exec(["echo", str(n)], seconds=30) for n in range(12)))

    before = opened()
    assert [result.output for result in asyncio.run(scene())] == [f"{n}\n" for n in range(12)]
    deadline = time.monotonic() + 10
    while (left := opened() - before) and time.monotonic() < deadline:
        time.sleep(0.05)  # the watchdog may be looking just now
    assert left == set()


def opened() -> set[str]:
    """The descriptors of this process, each with what it leads to."""
    gc.collect()  # what earlier tests left
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the listing itself
            found.add(f"{descriptor} {os.readlink(f'/proc/self/fd/{descriptor}')}")
    return found


@needs_bubblewrap
def test_a_sandbox_that_fails_is_no_failure_of_the_command(workspace: Workspace) -> None:
    spec = replace(SPEC, mounts=(Mount(Path("/no/such/file"), "/opt/file"),))
    with pytest.raises(SandboxError, match=r"could not run a command \(exit code 1\): bwrap: .*/no/such/file"):
        run(workspace, "true", spec)


@needs_bubblewrap
def test_bubblewrap_works_here() -> None:
    assert bubblewrap_problem() is None


def test_a_missing_bubblewrap_is_reported_with_the_packages_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bubblewrap_problem() == "bwrap is not installed: install the packages bubblewrap and util-linux"


@pytest.mark.skipif(not shutil.which("prlimit"), reason="needs util-linux")
def test_the_error_of_bubblewrap_is_in_the_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2; exit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    problem = bubblewrap_problem() or ""
    assert "exit code 1: bwrap: setting up uid map: Permission denied" in problem
    assert "max_user_namespaces" in problem
    assert "or use docker" in problem


ORDINARY = """
import asyncio, json, sys
sys.path[:0] = json.loads(sys.argv[1])
from pytest_agentbench.workspaces.sandboxes.base import ResourceLimits, SandboxSpec
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces
from pytest_agentbench.workspaces.sandboxes.bubblewrap import bubblewrap_problem
async def scene():
    workspaces = Workspaces()
    workspace = workspaces.create("case")
    spec = SandboxSpec("bubblewrap", limits=ResourceLimits(processes=20))
    sandbox = await Sandboxes(workspaces).start(spec, workspace)
    script = "id -u; echo err > /dev/stderr; touch made; cat /etc/shadow; unshare -U true; (setsid sleep 6901 &)"
    quick = await sandbox.exec(["sh", "-c", script], seconds=30)
    slow = await sandbox.exec(["sh", "-c", "sleep 6903 & exec sleep 6904"], seconds=1)
    many = await sandbox.exec(["sh", "-c", "for n in $(seq 24); do sleep 6905 & done; wait"], seconds=30)
    most = await sandbox.exec(["sh", "-c", "for n in $(seq 99); do sleep 60 & done; wait"], seconds=30)
    owner = (workspace.path / "made").stat().st_uid
    workspaces.close()
    return [bubblewrap_problem(), owner, quick.output, quick.exit_code, slow.killed, many.killed, most.output]
print(json.dumps(asyncio.run(scene())))
"""


ROOT_OF_ONE_ID = """
import asyncio, json, sys
sys.path[:0] = json.loads(sys.argv[1])
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sandboxes.base import SandboxSpec
from pytest_agentbench.workspaces.sessions import Workspaces
from pytest_agentbench.workspaces.sandboxes.bubblewrap import bubblewrap_problem
async def scene():
    workspaces = Workspaces()
    sandbox = await Sandboxes(workspaces).start(SandboxSpec("bubblewrap"), workspaces.create("case"))
    script = "id -u; touch made; test -w /proc/sys/kernel/core_pattern && echo may write it"
    result = await sandbox.exec(["sh", "-c", script], seconds=30)
    workspaces.close()
    return [bubblewrap_problem(), result.output]
print(json.dumps(asyncio.run(scene())))
"""


@pytest.mark.slow
@needs_bubblewrap
@pytest.mark.skipif(
    subprocess.run(["unshare", "-Ur", "true"], check=False, capture_output=True).returncode != 0,
    reason="this user may not become the root of a namespace",
)
def test_a_root_that_has_no_other_ids_can_use_it() -> None:
    command = ["unshare", "-Ur", sys.executable, "-c", ROOT_OF_ONE_ID, json.dumps(_for_others())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout or "null") == [None, "0\n"], done.stderr


def _for_others() -> list[str]:
    """Where an ordinary user finds this package and what it imports, for the system's Python."""
    return [str(Path(pytest_agentbench.__file__).parents[1]), sysconfig.get_path("purelib")]


def _as_ordinary(*command: str) -> subprocess.CompletedProcess[str]:
    drop = ["setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups", "env", "-i", "PATH=/usr/bin:/bin"]
    return subprocess.run([*drop, *command], capture_output=True, text=True, check=False, cwd="/")


@needs_bubblewrap
@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become an ordinary user; as one, all tests are this test")
def test_an_ordinary_user_needs_no_rights() -> None:
    loads = f"import sys; sys.path[:0] = {_for_others()}; import pydantic; assert sys.version_info >= (3, 11)"
    if _as_ordinary(PYTHON, "-I", "-B", "-c", loads).returncode != 0:
        pytest.skip("no Python here that an ordinary user can run this package with")
    done = _as_ordinary(PYTHON, "-I", "-B", "-c", ORDINARY, json.dumps(_for_others()))
    problem, owner, output, code, slow, many, most = json.loads(done.stdout or "null") or pytest.fail(done.stderr)
    assert (problem, owner, code, slow, many) == (None, 12345, 0, "time-out", "processes")
    assert "fork" in most
    assert output.startswith("12345\nerr\n")
    assert "/etc/shadow: No such file or directory" in output
    assert "unshare failed: Operation not permitted" in output
