from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from docker_support import containers_of, docker_client, docker_spec, in_session, until
from support.docker_here import IMAGE, needs_docker

from pytest_agentbench.errors import SandboxError, UnavailableError
from pytest_agentbench.records.case import SandboxNeeds, SandboxSettings
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import host_mark

pytestmark = [needs_docker, pytest.mark.slow]

KILLED = """
import asyncio, os, signal, sys
from pytest_agentbench.records.case import SandboxSettings
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces

async def main():
    sandboxes = Sandboxes(Workspaces())
    spec = sandboxes.spec(SandboxSettings(type="docker", image=sys.argv[1]))
    sandbox = await sandboxes.start(spec, sandboxes.workspace(spec, "killed"))
    await sandbox.exec(["true"], seconds=20)
    print(sandbox.workspace.path.parent, flush=True)
    sys.stdin.read()

asyncio.run(main())
"""


def test_containers_are_made_ahead_and_used_once(tmp_path: Path) -> None:
    async def act(sandboxes: Sandboxes) -> None:
        spec = docker_spec(sandboxes)
        sandboxes.expect(spec, 2)
        ready = [sandboxes.workspace(spec, "case") for _ in range(2)]
        started = [await sandboxes.start(spec, each) for each in ready]
        fresh = sandboxes.workspace(spec, "case")
        assert len({each.path for each in (*ready, fresh)}) == 3
        for sandbox, workspace in zip(started, ready, strict=True):
            assert sandbox.workspace == workspace
            result = await sandbox.exec(["sh", "-c", "ls; touch mine; hostname"], seconds=20)
            assert len(result.output.split()) == 1  # its name alone: nobody was there before
        names = [each["Labels"]["pytest-agentbench.run"] for each in containers_of(str(tmp_path))]
        assert sorted(names) == sorted(each.path.name for each in ready)

    in_session(tmp_path, act)
    assert containers_of(str(tmp_path)) == []


def test_a_container_that_somebody_else_removes_while_a_command_runs(tmp_path: Path) -> None:
    async def act(sandboxes: Sandboxes) -> None:
        spec = docker_spec(sandboxes)
        sandbox = await sandboxes.start(spec, sandboxes.workspace(spec, "case"))
        running = asyncio.ensure_future(sandbox.exec(["sh", "-c", "echo > begun; sleep 60"], seconds=60))
        await until(lambda: sandbox.workspace.kind("begun") == "file")
        [found] = containers_of(str(tmp_path))
        with docker_client() as client:
            client.api.remove_container(found["Id"], force=True)
        with pytest.raises(SandboxError, match=r"No such container|marked for removal"):  # nothing that the agent did
            await running
        await sandbox.stop()

    in_session(tmp_path, act)


def test_unused_prepared_containers_are_removed(tmp_path: Path) -> None:
    async def act(sandboxes: Sandboxes) -> None:
        spec = docker_spec(sandboxes)
        sandboxes.expect(spec, 3)
        sandboxes.release(sandboxes.workspace(spec, "starts no sandbox"))

    in_session(tmp_path, act)
    assert containers_of(str(tmp_path)) == []


def test_a_start_that_is_cancelled_leaves_no_container_to_the_session(tmp_path: Path) -> None:
    async def act(sandboxes: Sandboxes) -> None:
        spec = docker_spec(sandboxes)
        await sandboxes.prepare(spec)
        starting = asyncio.ensure_future(sandboxes.start(spec, sandboxes.workspace(spec, "case")))
        await until(lambda: bool(containers_of(str(tmp_path))))
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await until(lambda: not containers_of(str(tmp_path)))

    in_session(tmp_path, act)


def test_a_sandbox_that_outlives_its_session_can_be_stopped(tmp_path: Path) -> None:
    async def act(sandboxes: Sandboxes) -> None:
        spec = docker_spec(sandboxes)
        sandbox = await sandboxes.start(spec, sandboxes.workspace(spec, "case"))
        await sandboxes.close()
        async with asyncio.timeout(20):
            await sandbox.stop()

    in_session(tmp_path, act)
    assert containers_of(str(tmp_path)) == []


def test_the_owner_of_a_workspace_cannot_end_its_container(tmp_path: Path) -> None:
    """Nor one that is the user who keeps other containers alive, as `nobody` is who runs a session in many a CI."""

    async def act(sandboxes: Sandboxes) -> None:
        spec = docker_spec(sandboxes)
        workspace = replace(sandboxes.workspace(spec, "case"), owner=65534)
        sandbox = await sandboxes.start(spec, workspace)
        found = await sandbox.exec(["sh", "-c", "id -u; kill -9 -1; stat -c %u /proc/1"], seconds=20)
        [container] = containers_of(str(tmp_path))
        with docker_client() as client:
            state = client.api.inspect_container(container["Id"])
        assert found.output == "65534\n65533\n"
        assert state["State"]["Running"]

    in_session(tmp_path, act)


def test_another_limit_is_another_pool(tmp_path: Path) -> None:
    async def act(sandboxes: Sandboxes) -> None:
        spec, small = docker_spec(sandboxes), docker_spec(sandboxes, memory_mb=64)
        sandboxes.expect(spec, 1)
        sandbox = await sandboxes.start(small, sandboxes.workspace(small, "case"))
        with docker_client() as client:
            of_it = {"label": f"pytest-agentbench.run={sandbox.workspace.path.name}"}
            [found] = client.containers.list(filters=of_it)
            assert found.attrs["HostConfig"]["Memory"] == 64 * 2**20

    in_session(tmp_path, act)


def test_runs_side_by_side(tmp_path: Path) -> None:
    async def one(sandboxes: Sandboxes, number: int) -> str:
        spec = docker_spec(sandboxes)
        sandbox = await sandboxes.start(spec, sandboxes.workspace(spec, f"case-{number}"))
        await sandbox.exec(["sh", "-c", f"echo {number} > mine"], seconds=30)
        result = await sandbox.exec(["sh", "-c", "cat mine; ls | wc -l"], seconds=30)
        await sandbox.stop()
        return result.output

    async def act(sandboxes: Sandboxes) -> list[str]:
        return await asyncio.gather(*(one(sandboxes, number) for number in range(6)))

    assert in_session(tmp_path, act) == [f"{number}\n1\n" for number in range(6)]


def test_a_killed_sessions_containers_are_removed_by_the_next_and_only_those(tmp_path: Path) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    killed, living = (
        subprocess.Popen([sys.executable, "-c", KILLED, IMAGE], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    )
    try:
        folders = []
        for process in (killed, living):
            assert process.stdout is not None
            folders.append(process.stdout.readline().decode().strip())
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        elsewhere = foreign_container(tmp_path)
        assert len(containers_of(str(tmp_path))) == 3
        next_session(env)
        left = {each["Labels"]["pytest-agentbench.session"] for each in containers_of(str(tmp_path))}
        assert left == {folders[1], f"{tmp_path}/agentbench-of-another-machine"}
        assert not Path(folders[0]).exists()
    finally:
        remove(elsewhere)
        for process in (killed, living):
            process.communicate(b"")
    next_session(env)
    assert containers_of(str(tmp_path)) == []


def foreign_container(base: Path) -> str:
    """A container of a session on another machine that uses the same daemon: its folder is not to be seen here."""
    labels = {
        "pytest-agentbench.session": f"{base}/agentbench-of-another-machine",
        "pytest-agentbench.host": "0" * 16,
        "pytest-agentbench.run": "1-case",
    }
    assert labels["pytest-agentbench.host"] != host_mark()
    with docker_client() as client:
        return str(client.containers.create(IMAGE, ["true"], labels=labels).id)


def remove(container: str) -> None:
    with docker_client() as client:
        client.api.remove_container(container, force=True)


def next_session(env: dict[str, str]) -> None:
    """A session that ends as it should, after its first container."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, IMAGE], env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def test_a_session_that_forgets_to_close_removes_its_containers_at_exit(tmp_path: Path) -> None:
    next_session({**os.environ, "TMPDIR": str(tmp_path)})
    assert containers_of(str(tmp_path)) == []


def test_the_environment_may_change_meanwhile(tmp_path: Path) -> None:
    """As pytest changes it with every test, while containers are made on other threads."""
    over = threading.Event()

    def change() -> None:
        while not over.is_set():
            os.environ["AGENTBENCH_CHANGING"] = "1"
            del os.environ["AGENTBENCH_CHANGING"]

    async def act(sandboxes: Sandboxes) -> None:
        for number in range(20):
            spec = docker_spec(sandboxes)
            with pytest.raises(UnavailableError):
                await sandboxes.prepare(replace(spec, image=f"127.0.0.1:1/none:{number}"))

    changing, interval = threading.Thread(target=change), sys.getswitchinterval()
    changing.start()
    sys.setswitchinterval(1e-6)
    try:
        in_session(tmp_path, act)
    finally:
        sys.setswitchinterval(interval)
        over.set()
        changing.join()


def test_no_thread_is_left(tmp_path: Path) -> None:
    async def act(sandboxes: Sandboxes) -> None:
        spec = docker_spec(sandboxes)
        await (await sandboxes.start(spec, sandboxes.workspace(spec, "case"))).stop()

    others = {*threading.enumerate()}
    in_session(tmp_path, act)
    for thread in {*threading.enumerate()} - others:
        if thread.name == "agentbench-docker":
            thread.join(20)
            assert not thread.is_alive()


def test_an_image_that_cannot_be_had(tmp_path: Path) -> None:
    async def act(sandboxes: Sandboxes) -> None:
        await sandboxes.prepare(docker_spec(sandboxes, image="127.0.0.1:1/none:1"))

    with pytest.raises(UnavailableError, match=r"'127\.0\.0\.1:1/none:1' is not on this machine and cannot be pulled"):
        in_session(tmp_path, act)


def test_a_local_image_that_is_missing_is_never_pulled(tmp_path: Path) -> None:
    async def act(sandboxes: Sandboxes) -> None:
        await sandboxes.prepare(docker_spec(sandboxes, image="localhost/agentbench-none:1"))

    expected = (
        "docker has no image 'localhost/agentbench-none:1', and `localhost/` ones are never pulled: build it with"
    )
    with pytest.raises(UnavailableError, match=f"^{expected} `agentbench openclaw image` if"):
        in_session(tmp_path, act)


def test_an_image_without_a_shell(tmp_path: Path) -> None:
    async def act(sandboxes: Sandboxes) -> None:
        spec = docker_spec(sandboxes, image="agentbench-empty:1")
        sandbox = await sandboxes.start(spec, sandboxes.workspace(spec, "case"))
        await sandbox.exec(["true"], seconds=20)

    with docker_client() as client:
        client.api.import_image_from_data(empty_image(), repository="agentbench-empty", tag="1")
        try:
            with pytest.raises(SandboxError, match="sleep"):
                in_session(tmp_path, act)
        finally:
            client.images.remove("agentbench-empty:1")
    assert containers_of(str(tmp_path)) == []


def empty_image() -> bytes:
    return bytes(10240)  # a tar file that holds nothing


@pytest.mark.skipif(os.getuid() != 0, reason="mounts a file system that only this process sees, as root")
def test_a_workspace_that_the_daemon_does_not_see(tmp_path: Path) -> None:
    """As where a session runs in a container with the socket of the daemon outside."""
    mounting = 'mount -t tmpfs none "$TMPDIR" && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", mounting, "sh", sys.executable, "-c", KILLED, IMAGE]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert "SandboxError: the docker daemon does not see this machine's folder" in done.stderr
    assert containers_of(str(tmp_path)) == []


def test_the_kind_that_auto_comes_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(sandboxes: Sandboxes) -> None:
        assert docker_spec(sandboxes, type="auto").kind == "docker"
        needs = SandboxNeeds(image=IMAGE)
        assert sandboxes.spec(SandboxSettings(), needs).kind == "docker"
        for other in ("bubblewrap", "local"):
            with pytest.raises(UnavailableError, match=f"sandbox: {other}"):
                sandboxes.spec(SandboxSettings(type=other), needs)
        with pytest.raises(UnavailableError, match="no image is named"):
            sandboxes.spec(SandboxSettings(type="docker"))
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
        with pytest.raises(UnavailableError, match=f"no docker daemon answers at {tmp_path}/none.sock"):
            sandboxes.spec(SandboxSettings(), needs)
        monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:2375")
        with pytest.raises(UnavailableError, match="may be another machine's"):
            sandboxes.spec(SandboxSettings(), needs)

    in_session(tmp_path, act)
