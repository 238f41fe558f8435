"""What a session makes with a program such as podman, what it leaves, and what it says where it can make nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cli_engine_support import called, cli_spec, containers_at, in_cli_container
from docker_support import in_session, until
from support.docker_here import IMAGE

from pytest_agentbench.errors import SandboxError, UnavailableError
from pytest_agentbench.records.case import SandboxSettings
from pytest_agentbench.workspaces.by_command.client import client, engine_problem
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


@pytest.mark.slow
def test_removed_when_the_run_has_ended(tmp_path: Path, engine: str) -> None:
    async def act(sandbox: Sandbox) -> int:
        return len(containers_at(engine, tmp_path))

    assert in_cli_container(tmp_path, engine, act) == 1
    assert containers_at(engine, tmp_path) == []


@pytest.mark.slow
def test_removed_where_a_command_still_runs(tmp_path: Path, engine: str) -> None:
    async def act(sandbox: Sandbox) -> None:
        running = asyncio.ensure_future(sandbox.exec(["sh", "-c", "echo > begun; sleep 60"], seconds=60))
        await until(lambda: sandbox.workspace.kind("begun") == "file")
        await sandbox.stop()
        running.cancel()
        await asyncio.wait([running])

    in_cli_container(tmp_path, engine, act)
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

    in_cli_container(tmp_path, engine, act)


@pytest.mark.slow
def test_removed_where_a_start_is_cancelled(tmp_path: Path, engine: str) -> None:
    slow, goes_on = tmp_path / "slow", tmp_path / "goes-on"
    waiting = f'[ "$1" != run ] || until [ -e {goes_on} ]; do sleep 0.05; done'
    slow.write_text(f'#!/bin/sh\n{engine} "$@"\ncode=$?\n{waiting}\nexit $code\n')
    slow.chmod(0o755)

    async def act(sandboxes: Sandboxes) -> None:
        spec = cli_spec(sandboxes, str(slow))
        starting = asyncio.ensure_future(sandboxes.start(spec, sandboxes.workspace(spec, "case")))
        await until(lambda: bool(containers_at(engine, tmp_path)))
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        goes_on.touch()

    in_session(tmp_path, act)
    assert containers_at(engine, tmp_path) == []


@pytest.mark.slow
def test_one_that_cannot_be_made(tmp_path: Path, engine: str) -> None:
    async def act(sandboxes: Sandboxes) -> None:
        spec = replace(cli_spec(sandboxes, engine), mounts=(Mount(tmp_path / "none", "/run/agentbench"),))
        await sandboxes.start(spec, sandboxes.workspace(spec, "case"))

    with pytest.raises(SandboxError, match=rf"{tmp_path}/none.*no such file"):
        in_session(tmp_path, act)
    assert containers_at(engine, tmp_path) == []


@pytest.mark.slow
def test_what_a_killed_session_left_at_another_engine_is_removed_by_the_next(tmp_path: Path, engine: str) -> None:
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
        subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
        assert [len(containers_at(engine, Path(each))) for each in folders] == [0, 1]
    finally:
        for process in (killed, living):
            process.communicate(b"")
    assert living.returncode == 0
    assert containers_at(engine, tmp_path) == []  # it has not closed its sandboxes: its end has removed them


@pytest.mark.slow
def test_containers_of_others_stay_where_an_engine_lists_them_too(tmp_path: Path, stub: str) -> None:
    program = tmp_path / "unfiltered"
    program.write_text(f'#!/bin/sh\n[ "$1" != ps ] || set -- ps --all --quiet --no-trunc\nexec {stub} "$@"\n')
    program.chmod(0o755)
    called(stub, "run", "--detach", "--name", "others", IMAGE)

    async def act(sandbox: Sandbox) -> None:
        assert len(called(stub, "ps", "--all", "--quiet").split()) == 2

    in_cli_container(tmp_path, str(program), act)


@pytest.mark.slow
def test_runs_side_by_side(tmp_path: Path, engine: str) -> None:
    async def one(sandboxes: Sandboxes, number: int) -> ExecResult:
        spec = cli_spec(sandboxes, engine)
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
        spec = cli_spec(sandboxes, stub)
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
        cli_spec(sandboxes, f"{tmp_path}/podman")

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
            == f"the container engine '{program}' does not work here: `{program} version` says: no daemon answers"
        )
    assert (tmp_path / "asked").read_text() == "asked\n"


@pytest.mark.slow
def test_a_local_image_that_is_missing_is_never_pulled(tmp_path: Path, stub: str) -> None:
    pulls = tmp_path / "pulls"
    program = tmp_path / "engine"
    program.write_text(f'#!/bin/sh\n[ "$1" = pull ] && echo "$@" >> {pulls}\nexec {stub} "$@"\n')
    program.chmod(0o755)

    async def act(sandboxes: Sandboxes, image: str) -> None:
        await sandboxes.prepare(cli_spec(sandboxes, str(program), image))

    with pytest.raises(
        UnavailableError, match=rf"has no image '{LOCAL}'.*`agentbench openclaw image --engine {program}`"
    ):
        in_session(tmp_path, lambda sandboxes: act(sandboxes, LOCAL))
    assert not pulls.exists()
    with pytest.raises(
        UnavailableError, match=r"'none:1' .* cannot be pulled \(Error: none:1: nothing can be pulled\)"
    ):
        in_session(tmp_path, lambda sandboxes: act(sandboxes, "none:1"))
    assert pulls.read_text() == "pull --quiet none:1\n"


@pytest.mark.parametrize("said", ["echo garbage", "", "head -c 1000 /dev/urandom", "echo sha256:abc {", "echo 'x []'"])
def test_an_engine_that_talks_nonsense(tmp_path: Path, said: str) -> None:
    program = tmp_path / "engine"
    program.write_text(f"#!/bin/sh\n{said}\n")
    program.chmod(0o755)

    async def act(sandboxes: Sandboxes) -> None:
        await sandboxes.prepare(cli_spec(sandboxes, str(program)))

    with pytest.raises(SandboxError, match=rf"{program} image inspect: found .*, expected the id of an image"):
        in_session(tmp_path, act)


def test_podman_is_known_by_its_name_in_versions_that_do_not_tell_it_with_their_parts(tmp_path: Path) -> None:
    """As podman 3.4 does; and docker's own program tells what its daemon is."""
    told = {"podman": "Version: 3.4.4", "docker": "Client: Docker Engine\\nServer:\\n Podman Engine:\\n  Version: 5.0"}
    for name, version in told.items():
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{name} version 3.4.4" || printf "{version}\\n"\n')
        program.chmod(0o755)
    assert [client(f"{tmp_path}/{name}").is_podman for name in told] == [True, False]


def test_what_only_docker_does(tmp_path: Path, stub: str) -> None:
    async def act(sandboxes: Sandboxes) -> None:
        spec = sandboxes.container(IMAGE, SandboxSettings(), stub)
        await sandboxes.prepare(replace(spec, image=None, dockerfile=tmp_path / "Dockerfile"))

    with pytest.raises(UnavailableError, match="dockerfile or compose needs docker"):
        in_session(tmp_path, act)
