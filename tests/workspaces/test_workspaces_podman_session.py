"""What a session makes with podman, what it leaves, and what it says where it can make nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from docker_support import docker_spec, in_container, in_session, until
from podman_support import called, containers_at, in_podman, podman_spec
from support.docker_here import IMAGE

from pytest_agentbench.errors import SandboxError, UnavailableError
from pytest_agentbench.records.case import SandboxNeeds, SandboxSettings
from pytest_agentbench.workspaces.containers.engines import engine_problem, find_engine, start_service
from pytest_agentbench.workspaces.sandboxes.base import ExecResult, Mount, Sandbox
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes

LOCAL = "localhost/agentbench-none:1"

SESSION = """
import asyncio, sys
from pytest_agentbench.records.case import SandboxSettings
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces

async def main():
    sandboxes = Sandboxes(Workspaces())
    spec = sandboxes.container(sys.argv[2], SandboxSettings(), sys.argv[1])
    sandbox = await sandboxes.start(spec, sandboxes.workspace(spec, "killed"))
    await sandbox.exec(["true"], seconds=20)
    print(sandbox.workspace.path.parent, flush=True)
    sys.stdin.read()

asyncio.run(main())
"""


def services_of(engine: str) -> list[Path]:
    """The folders of the program's services, of the shells that keep them."""
    shells = {pid: argv for pid, argv in all_argv().items() if argv[:2] == ["/bin/sh", "-c"] and engine in argv[3:]}
    return [Path(argv[3]) for pid, argv in shells.items() if os.getpgid(pid) == pid]  # each has another one below it


def all_argv() -> dict[int, list[str]]:
    found = {}
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found[int(each.parent.name)] = each.read_text(errors="replace").split("\0")
    return found


@pytest.mark.slow
def test_removed_when_the_run_has_ended(tmp_path: Path, engine: str) -> None:
    async def act(sandbox: Sandbox) -> int:
        return len(containers_at(engine, tmp_path))

    assert in_podman(tmp_path, engine, act) == 1
    assert containers_at(engine, tmp_path) == []


@pytest.mark.slow
def test_removed_where_a_command_still_runs(tmp_path: Path, engine: str) -> None:
    async def act(sandbox: Sandbox) -> None:
        running = asyncio.ensure_future(sandbox.exec(["sh", "-c", "echo > begun; sleep 60"], seconds=60))
        await until(lambda: sandbox.workspace.kind("begun") == "file")
        await sandbox.stop()
        running.cancel()
        await asyncio.wait([running])

    in_podman(tmp_path, engine, act)
    assert containers_at(engine, tmp_path) == []


@pytest.mark.slow
def test_removed_by_somebody_else_while_a_command_runs(tmp_path: Path, engine: str) -> None:
    async def act(sandbox: Sandbox) -> None:
        running = asyncio.ensure_future(sandbox.exec(["sh", "-c", "echo > begun; sleep 60"], seconds=60))
        await until(lambda: sandbox.workspace.kind("begun") == "file")
        [found] = containers_at(engine, tmp_path)
        called(engine, "rm", "--force", found)
        with pytest.raises(SandboxError, match="no such container"):  # nothing that the agent did
            await running

    in_podman(tmp_path, engine, act)


@pytest.mark.slow
def test_removed_where_a_start_is_cancelled(tmp_path: Path, stub: str) -> None:
    slow_start = Path(stub).with_name("slow-start")
    slow_start.touch()

    async def act(sandboxes: Sandboxes) -> None:
        spec = podman_spec(sandboxes, stub)
        starting = asyncio.ensure_future(sandboxes.start(spec, sandboxes.workspace(spec, "case")))
        await until(lambda: bool(containers_at(stub, tmp_path)))
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        slow_start.unlink()

    in_session(tmp_path, act)
    assert containers_at(stub, tmp_path) == []


@pytest.mark.slow
def test_one_that_cannot_be_made(tmp_path: Path, engine: str) -> None:
    async def act(sandboxes: Sandboxes) -> None:
        spec = replace(podman_spec(sandboxes, engine), mounts=(Mount(tmp_path / "none", "/run/agentbench"),))
        await sandboxes.start(spec, sandboxes.workspace(spec, "case"))

    with pytest.raises(SandboxError, match=rf"{tmp_path}/none.*no such file"):
        in_session(tmp_path, act)
    assert containers_at(engine, tmp_path) == []


@pytest.mark.slow
def test_containers_of_a_killed_session_at_another_engine_are_removed_by_the_next(tmp_path: Path, engine: str) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", SESSION, engine, IMAGE]
    killed, living = (
        subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)
    )
    try:
        folders = [process.stdout.readline().decode().strip() for process in (killed, living) if process.stdout]
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert [len(containers_at(engine, Path(each))) for each in folders] == [1, 1]
        deadline = time.monotonic() + 20
        while len(services_of(engine)) > 1:  # that of the killed one ends by itself
            assert time.monotonic() < deadline
            time.sleep(0.01)
        subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
        assert [len(containers_at(engine, Path(each))) for each in folders] == [0, 1]
    finally:
        for process in (killed, living):
            process.communicate(b"")
    assert living.returncode == 0
    assert containers_at(engine, tmp_path) == []  # it has not closed its sandboxes: its end has removed them


@pytest.mark.slow
def test_containers_of_others_stay_where_an_engine_lists_them_too(tmp_path: Path, stub: str) -> None:
    Path(stub).with_name("unfiltered").touch()
    called(stub, "run", "--detach", "--name", "others", IMAGE)

    async def act(sandbox: Sandbox) -> None:
        assert len(called(stub, "ps", "--all", "--quiet").split()) == 2

    in_podman(tmp_path, stub, act)


@pytest.mark.slow
def test_runs_side_by_side(tmp_path: Path, engine: str) -> None:
    async def one(sandboxes: Sandboxes, number: int) -> ExecResult:
        spec = podman_spec(sandboxes, engine)
        sandbox = await sandboxes.start(spec, sandboxes.workspace(spec, f"case-{number}"))
        result = await sandbox.exec(["sh", "-c", f"echo {number} > mine; cat mine; ls | wc -l"], seconds=30)
        await sandbox.stop()
        return result

    async def act(sandboxes: Sandboxes) -> list[str]:
        results = await asyncio.gather(*(one(sandboxes, number) for number in range(3)))
        return [" ".join(each.output.split()) for each in results]

    assert in_session(tmp_path, act) == ["0 1", "1 1", "2 1"]


@pytest.mark.slow
def test_containers_are_made_ahead(tmp_path: Path, stub: str) -> None:
    async def act(sandboxes: Sandboxes) -> None:
        spec = podman_spec(sandboxes, stub)
        sandboxes.expect(spec, 2)
        workspace = sandboxes.workspace(spec, "case")
        sandbox = await sandboxes.start(spec, workspace)
        assert sandbox.workspace == workspace
        used = await sandboxes.describe(spec)
        assert (used.kind, used.image, (used.image_id or "")[:7]) == ("docker", IMAGE, "sha256:")

    in_session(tmp_path, act)
    assert containers_at(stub, tmp_path) == []


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    async def act(sandboxes: Sandboxes) -> None:
        podman_spec(sandboxes, f"{tmp_path}/podman")

    with pytest.raises(UnavailableError, match=r"no program '.*/podman' on this machine: install it, or name another"):
        in_session(tmp_path, act)


def test_a_program_that_does_not_work_is_asked_once(tmp_path: Path) -> None:
    program = tmp_path / "engine"
    program.write_text(f"#!/bin/sh\necho asked >> {tmp_path}/asked\necho 'no daemon answers' >&2\nexit 1\n")
    program.chmod(0o755)
    for _ in range(2):
        problem = engine_problem(str(program))
        assert (
            problem
            == f"the container engine '{program}' does not work here: `{program} version` printed: no daemon answers"
        )
    assert (tmp_path / "asked").read_text() == "asked\n"


@pytest.mark.slow
def test_a_local_image_that_is_missing_is_never_pulled(tmp_path: Path, stub: str) -> None:
    pulls = Path(stub).with_name("pulls")

    async def act(sandboxes: Sandboxes, image: str) -> None:
        await sandboxes.prepare(podman_spec(sandboxes, stub, image))

    with pytest.raises(UnavailableError, match=rf"has no image '{LOCAL}'.*`agentbench openclaw image --engine {stub}`"):
        in_session(tmp_path, lambda sandboxes: act(sandboxes, LOCAL))
    assert not pulls.exists()
    with pytest.raises(UnavailableError, match=r"'none:1' .* cannot be pulled \(none:1: nothing can be pulled\)"):
        in_session(tmp_path, lambda sandboxes: act(sandboxes, "none:1"))
    assert pulls.read_text() == "none:1\n"


@pytest.mark.parametrize(
    "said", ["echo garbage", "", "head -c 1000 /dev/urandom", "echo nerdctl version 2", "echo 'x []'"]
)
def test_an_engine_that_is_neither_podman_nor_docker(tmp_path: Path, said: str) -> None:
    program = tmp_path / "engine"
    program.write_text(f"#!/bin/sh\n{said}\n")
    program.chmod(0o755)

    async def act(sandboxes: Sandboxes) -> None:
        podman_spec(sandboxes, str(program))

    with pytest.raises(UnavailableError, match=rf"`{program} --version`: found .*, expected podman or docker"):
        in_session(tmp_path, act)


@pytest.mark.slow
@pytest.mark.parametrize("serving", ["echo no such command >&2; exit 3", "exit 3", "exit 0"])
def test_a_podman_that_serves_nothing(tmp_path: Path, serving: str) -> None:
    program = tmp_path / "podman"
    program.write_text(f'#!/bin/sh\n[ "$1" != system ] || {{ {serving}; }}\necho podman version 2\n')
    program.chmod(0o755)

    async def act(sandboxes: Sandboxes) -> None:
        await sandboxes.prepare(podman_spec(sandboxes, str(program)))

    with pytest.raises(SandboxError, match=rf"{program} system service: (no such command|podman version|it ended)"):
        in_session(tmp_path, act)


def test_podman_is_known_by_its_name_in_versions_that_do_not_tell_it_with_their_parts(tmp_path: Path) -> None:
    """As podman 3.4 does; and docker's own program tells what its daemon is."""
    told = {"podman": "Version: 3.4.4", "docker": "Client: Docker Engine\\nServer:\\n Podman Engine:\\n  Version: 5.0"}
    for name, version in told.items():
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{name} version 3.4.4" || printf "{version}\\n"\n')
        program.chmod(0o755)
    assert [find_engine(f"{tmp_path}/{name}").is_podman for name in told] == [True, False]


def test_the_error_without_a_docker_daemon_names_its_address(tmp_path: Path) -> None:
    program = tmp_path / "docker"
    address = f"unix://{tmp_path}/none.sock"
    program.write_text(f'#!/bin/sh\n[ "$1" = context ] && echo {address} || echo docker version 28\n')
    program.chmod(0o755)

    async def act(sandboxes: Sandboxes) -> None:
        await sandboxes.prepare(podman_spec(sandboxes, str(program)))

    with pytest.raises(UnavailableError, match=f"no docker daemon answers at {tmp_path}/none.sock"):
        in_session(tmp_path, act)


@pytest.mark.slow
def test_a_podman_that_runs_elsewhere_is_refused(tmp_path: Path, stub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTAINER_HOST", "ssh://root@elsewhere/run/podman.sock")

    async def act(sandboxes: Sandboxes) -> None:
        await sandboxes.prepare(podman_spec(sandboxes, stub))

    with pytest.raises(UnavailableError, match=r"daemon at ssh://root@elsewhere/.* may be another machine's"):
        in_session(tmp_path, act)


@pytest.mark.slow
def test_a_service_that_runs_already_is_used_and_stays(
    tmp_path: Path, stub: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = start_service(find_engine(stub))
    try:
        monkeypatch.setenv("CONTAINER_HOST", service.address)
        [before] = services_of(stub)

        async def act(sandbox: Sandbox) -> list[Path]:
            assert (await sandbox.exec(["echo", "there"], seconds=20)).output == "there\n"
            return services_of(stub)

        assert in_podman(tmp_path, stub, act) == [before]
        assert services_of(stub) == [before]
    finally:
        service.end()
    assert services_of(stub) == []


@pytest.mark.slow
def test_podman_behind_docker_host_is_used_as_podman(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = start_service(find_engine(engine))
    try:
        monkeypatch.setenv("DOCKER_HOST", service.address)

        async def act(sandbox: Sandbox) -> str:
            return (await sandbox.exec(["sh", "-c", "echo x > made; ls"], seconds=20)).output

        assert in_container(tmp_path, act) == "made\n"

        async def build(sandboxes: Sandboxes) -> None:
            await sandboxes.prepare(docker_spec(sandboxes, SandboxNeeds(dockerfile=tmp_path / "Dockerfile")))

        with pytest.raises(UnavailableError, match="dockerfile or compose needs docker"):
            in_session(tmp_path, build)
    finally:
        service.end()


@pytest.mark.slow
def test_a_container_that_is_not_as_it_was_ordered_runs_nothing(tmp_path: Path, stub: str) -> None:
    """Podman's API leaves out without a word what it does not know."""
    Path(stub).with_name("said.json").write_text('{"HostConfig": {"Memory": 0}}')

    async def act(sandbox: Sandbox) -> None:
        pytest.fail("it was started")

    with pytest.raises(SandboxError, match="so no command was run: Memory: found 0, expected 2147483648"):
        in_podman(tmp_path, stub, act)
    assert containers_at(stub, tmp_path) == []
    assert not list(Path(stub).parent.glob("containers/*/running"))


@pytest.mark.slow
def test_a_service_listens_for_this_user_alone_and_ends_with_the_session(tmp_path: Path, stub: str) -> None:
    async def act(sandbox: Sandbox) -> Path:
        [folder] = services_of(stub)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_ISSOCK((folder / "sock").stat().st_mode)
        return folder

    folder = in_podman(tmp_path, stub, act)
    assert not folder.exists()
    assert services_of(stub) == []


@pytest.mark.slow
def test_a_dockerfile_is_unavailable_with_podman(tmp_path: Path, stub: str) -> None:
    async def act(sandboxes: Sandboxes) -> None:
        spec = sandboxes.container(IMAGE, SandboxSettings(), stub)
        await sandboxes.prepare(replace(spec, image=None, dockerfile=tmp_path / "Dockerfile"))

    with pytest.raises(UnavailableError, match="dockerfile or compose needs docker"):
        in_session(tmp_path, act)
