"""What a case's Dockerfile and compose file may do: built and started for real."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import docker
import pytest
from support.docker_here import IMAGE, needs_docker
from support.socket_families import ALLOWED_FAMILIES, OPEN_FAMILIES

from pytest_agentbench.errors import ConfigError, SandboxError
from pytest_agentbench.records.case import SandboxNeeds, SandboxSettings
from pytest_agentbench.workspaces.containers.compose import compose_problem
from pytest_agentbench.workspaces.sandboxes.base import ExecResult
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces

pytestmark = [needs_docker, pytest.mark.slow]
needs_compose = pytest.mark.skipif(compose_problem() is not None, reason=compose_problem() or "")


def build(base: Path, *lines: str, **settings: Any) -> None:
    """Have the image of a case's Dockerfile built."""
    base.joinpath("case").mkdir(exist_ok=True)
    dockerfile = base / "case/Dockerfile"
    dockerfile.write_text("\n".join([f"FROM {IMAGE}", f"RUN : {secrets.token_hex(8)}", *lines]))
    workspaces = Workspaces(base)

    async def act() -> None:
        sandboxes = Sandboxes(workspaces)
        try:
            spec = sandboxes.spec(SandboxSettings(type="docker", **settings), SandboxNeeds(dockerfile=dockerfile))
            await sandboxes.prepare(spec)
        finally:
            await sandboxes.close()

    try:
        asyncio.run(act())
    finally:
        workspaces.close()


FORKING = r"""
import os, time
count = 0
try:
    while count < 1500:
        if os.fork() == 0:
            time.sleep(5)
            os._exit(0)
        count += 1
finally:
    time.sleep(3)  # else it may be over, of itself, before anybody has looked at how many there are
    print("it started", count, "processes", flush=True)
    os._exit(3)
"""


def test_many_processes_of_a_build(tmp_path: Path) -> None:
    lines = "".join(f"{line}\\n" for line in FORKING.strip().splitlines())
    with pytest.raises(SandboxError, match="cannot be built") as caught:
        build(tmp_path, f"RUN printf '{lines}' > /attack.py", "RUN python3 /attack.py", processes=64)
    started = re.search(r"it started (\d+) processes", str(caught.value))
    assert "64 processes" in str(caught.value) if started is None else int(started[1]) <= 64, caught.value


def test_a_disk_full_by_a_build(tmp_path: Path) -> None:
    filling = "for i in 1 2 3 4 5 6; do head -c 30000000 /dev/zero > /file$i; sleep 0.3; done"
    with pytest.raises(SandboxError, match=r"a command wrote more than 64 MB \(workspace_mb\)"):
        build(tmp_path, "RUN head -c 30000000 /dev/zero > /file; sleep 0.3", f"RUN {filling}", workspace_mb=64)


def test_a_disk_full_of_copies_by_a_build(tmp_path: Path) -> None:
    copies = [f"COPY --from=0 /file /copy{number}" for number in range(40)]
    with pytest.raises(SandboxError, match=r"its layers hold more than 64 MB \(workspace_mb\)"):
        build(tmp_path, "RUN head -c 20000000 /dev/zero > /file", f"FROM {IMAGE}", *copies, workspace_mb=64)


@pytest.mark.parametrize("mode", ["w:", "w:gz", "w:xz"])
def test_an_archive_that_a_build_would_unpack(tmp_path: Path, mode: str) -> None:
    """What is in it has no limit, and is unpacked by the daemon itself."""
    (tmp_path / "case").mkdir()
    with tarfile.open(tmp_path / "case/data.bin", mode) as archive:
        archive.addfile(tarfile.TarInfo("made"))
    with pytest.raises(ConfigError, match=r"found 'ADD data\.bin /x' and the archive 'data\.bin', expected COPY"):
        build(tmp_path, "ADD data.bin /x")


def beside(base: Path, services: str, command: str = "sleep 10", **settings: Any) -> ExecResult:
    """What a command gives in a container that the services of a compose file run beside."""
    base.joinpath("case").mkdir()
    compose = base / "case/compose.yaml"
    compose.write_text(services)

    async def act() -> ExecResult:
        workspaces = Workspaces(base)
        sandboxes = Sandboxes(workspaces)
        try:
            given = SandboxSettings(type="docker", image=IMAGE, **settings)
            spec = sandboxes.spec(given, SandboxNeeds(compose=compose))
            sandbox = await sandboxes.start(spec, sandboxes.workspace(spec, "case"))
            return await sandbox.exec(["sh", "-c", command], seconds=20)
        finally:
            await sandboxes.close()
            workspaces.close()

    return asyncio.run(act())


@needs_compose
@pytest.mark.parametrize(
    "filling",
    [
        "for i in 1 2 3 4 5 6 7 8 9; do head -c 9000000 /dev/zero > /file$$i; sleep 0.1; done",
        "chmod 300 /srv; cd /srv; for i in 1 2 3 4 5 6 7 8 9; do head -c 9000000 /dev/zero > file$$i; sleep 0.1; done",
        'for i in 3 4 5 6 7 8 9; do eval "exec $$i>/file"; rm /file; head -c 9000000 /dev/zero >&$$i; sleep 0.1; done',
    ],
    ids=["plain", "closed", "deleted"],
)
def test_a_disk_full_by_a_service(tmp_path: Path, filling: str) -> None:
    command = json.dumps(["sh", "-c", f"{filling}; sleep 60"])
    with pytest.raises(SandboxError, match=r"compose: the service 'full' wrote more than 32 MB \(workspace_mb\)"):
        beside(tmp_path, f"services: {{full: {{image: '{IMAGE}', command: {command}}}}}", workspace_mb=32)


@needs_compose
def test_a_volume_that_is_filled(tmp_path: Path) -> None:
    """It is as large as a workspace may be. What one service leaves there the next one finds."""
    volume = """
services:
  first: {image: 'IMAGE', command: [sh, -c, 'echo left > /data/left'], volumes: ['data:/data']}
  full:
    image: 'IMAGE'
    depends_on: {first: {condition: service_completed_successfully}}
    command:
      - sh
      - -c
      - |
        head -c 90000000 /dev/zero > /data/file
        mkdir /www; cd /www; (cat /data/left; stat -c %s /data/file) > told
        exec python3 -m http.server 8000
    volumes: ['data:/data']
    healthcheck: {test: [CMD, test, -f, /www/told], interval: 200ms}
volumes: {data: }
"""
    get = "from urllib.request import urlopen; print(urlopen('http://full:8000/told', timeout=10).read().decode())"
    told = beside(tmp_path, volume.replace("IMAGE", IMAGE), f'python3 -c "{get}"', workspace_mb=32).output.split()
    assert told[0] == "left"
    assert int(told[1]) <= 32 * 2**20, told


HOSTILE = """
import json, os, socket, subprocess, sys
from concurrent.futures import ThreadPoolExecutor
opened = subprocess.run([sys.executable, "-c", sys.argv[2]], capture_output=True, text=True).stdout.splitlines()
said = [line for line in opened if line not in json.loads(sys.argv[3])]
own = socket.gethostbyname(socket.gethostname())
gateway = own.rpartition(".")[0] + ".1"

def reached(host, port):
    try:
        socket.create_connection((host, port), 3).close()
        return [f"reached {host}:{port}"]
    except OSError:
        return []

targets = [*json.loads(sys.argv[1]), [gateway, 47123], [gateway, 22]]
with ThreadPoolExecutor(32) as pool:
    said += sum(pool.map(lambda target: reached(*target), targets), [])
for path in ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/dev/kvm", "/dev/sda"):
    if os.path.exists(path):
        said.append(f"sees {path}")
os.makedirs("/www")
open("/www/told", "w").write("\\n".join([*said, "tried all"]))
os.chdir("/www")
os.execvp("python3", ["python3", "-m", "http.server", "8000"])
"""


@pytest.fixture
def host_listener() -> Iterator[str]:
    """The address of the daemon's machine on its bridge: what listens there is reached by the bridge's containers."""
    with closing(docker.from_env()) as client:
        address = str(client.networks.get("bridge").attrs["IPAM"]["Config"][0].get("Gateway") or "172.17.0.1")
        program = ["python3", "-m", "http.server", "47123"]
        made = client.containers.run(IMAGE, program, network_mode="host", detach=True, auto_remove=True)
        try:
            asking = f"import socket; socket.create_connection(('{address}', 47123), 5); print('reached')"
            retrying = f'for i in 1 2 3 4 5 6 7 8 9; do python3 -c "{asking}" 2>&1 && break; sleep 0.2; done'
            assert b"reached" in client.containers.run(IMAGE, ["sh", "-c", retrying], remove=True)
            yield address
        finally:
            made.kill()


@needs_compose
def test_a_service_cannot_reach_the_host_or_the_network(tmp_path: Path, host_listener: str) -> None:
    """Neither the daemon's machine, nor a cloud's metadata, nor sockets, nor the services of another run."""
    victim = f"services: {{victim: {{image: '{IMAGE}', command: [python3, -m, http.server, '8000']}}}}"
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim/compose.yaml").write_text(victim)
    get = "from urllib.request import urlopen; print(urlopen('http://hostile:8000/told', timeout=10).read().decode())"

    async def act() -> str:
        workspaces = Workspaces(tmp_path)
        sandboxes = Sandboxes(workspaces)
        settings = SandboxSettings(type="docker", image=IMAGE)
        try:
            spec = sandboxes.spec(settings, SandboxNeeds(compose=tmp_path / "victim/compose.yaml"))
            await sandboxes.start(spec, sandboxes.workspace(spec, "victim"))
            with closing(docker.from_env()) as client:
                label = f"pytest-agentbench.session={workspaces.session_folder()}"
                listed = client.containers.list(filters={"label": [label, "pytest-agentbench.service=victim"]})
                [network] = listed[0].attrs["NetworkSettings"]["Networks"].values()
            hosts = [host_listener, "169.254.169.254", "127.0.0.1", "1.1.1.1"]
            targets = [(host, port) for host in hosts for port in (47123, 80)]
            targets.append((network["IPAddress"], 8000))
            given = ["python3", "-c", HOSTILE, json.dumps(targets), OPEN_FAMILIES, json.dumps([*ALLOWED_FAMILIES])]
            command = json.dumps([each.replace("$", "$$") for each in given])
            health = "{test: [CMD, test, -f, /www/told], interval: 200ms, retries: 300}"
            (tmp_path / "compose.yaml").write_text(
                f"services: {{hostile: {{image: '{IMAGE}', command: {command}, healthcheck: {health}}}}}"
            )
            spec = sandboxes.spec(settings, SandboxNeeds(compose=tmp_path / "compose.yaml"))
            sandbox = await sandboxes.start(spec, sandboxes.workspace(spec, "hostile"))
            return (await sandbox.exec(["python3", "-c", get], seconds=20)).output
        finally:
            await sandboxes.close()
            workspaces.close()

    assert asyncio.run(act()) == "tried all\n"
