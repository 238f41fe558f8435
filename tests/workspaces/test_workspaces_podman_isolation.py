"""What podman's containers keep from an agent."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest
from podman_support import called, containers_at, in_podman
from support.docker_here import IMAGE
from support.other_user import needs_root
from support.podman_here import PodmanLacks, podman
from support.socket_families import ALLOWED_FAMILIES, OPEN_FAMILIES

from pytest_agentbench.workspaces.sandboxes.base import Mount, Sandbox

pytestmark = pytest.mark.slow

ROOTLESS = """
import asyncio, os, sys
from pytest_agentbench.records.case import SandboxSettings
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces

async def main():
    workspaces = Workspaces()
    sandboxes = Sandboxes(workspaces)
    spec = sandboxes.container(sys.argv[2], SandboxSettings(), sys.argv[1])
    sandbox = await sandboxes.start(spec, sandboxes.workspace(spec, "rootless"))
    await sandbox.put("given", b"given")
    made = await sandbox.exec(["sh", "-c", "cat given; echo x > made; id -u; touch /x"], seconds=20)
    late = await sandbox.exec(["sleep", "76500"], seconds=0.5)
    again = await sandbox.exec(["sh", "-c", "kill -9 -1; ls"], seconds=20)
    last = await sandbox.exec(["ls"], seconds=20)
    owner = os.stat(sandbox.workspace.path / "made").st_uid
    await sandbox.stop()
    print([made.output.splitlines()[0], owner == os.getuid(), late.killed, again.killed, last.output])
    await sandboxes.close()
    workspaces.close()

asyncio.run(main())
"""


def test_a_command_in_podman_is_confined(tmp_path: Path, real_podman: str) -> None:
    (tmp_path / "control").write_text("ours")

    async def act(sandbox: Sandbox) -> None:
        script = (
            'pwd; test "$(id -u)" != 0 && echo user; for each in /x /usr/x /run/x /var/tmp/x /control; do '
            "echo y 2>/dev/null >> $each || echo closed; done; ls /sys/class/net"
        )
        seen = await sandbox.exec(["sh", "-c", script], seconds=20)
        found = [line for line in seen.output.splitlines() if not line.startswith("sh:")]
        assert found == ["/workspace", "user", *["closed"] * 5, "lo"]
        status = await sandbox.exec(["grep", "-E", "CapBnd|NoNewPrivs|Seccomp:", "/proc/self/status"], seconds=20)
        assert status.output.split() == ["CapBnd:", "0" * 16, "NoNewPrivs:", "1", "Seccomp:", "2"]
        environment = await sandbox.exec(["env"], seconds=20)
        names = {line.partition("=")[0] for line in environment.output.splitlines()}
        assert names <= {"HOME", "LANG", "TERM", "PATH", "PWD", "container", "HOSTNAME"}

    in_podman(tmp_path, real_podman, act, mounts=[Mount(tmp_path / "control", "/control")])


def test_sockets_of_other_families_in_podman(tmp_path: Path, real_podman: str) -> None:
    async def act(sandbox: Sandbox) -> str:
        return (await sandbox.exec(["python3", "-c", OPEN_FAMILIES], seconds=20)).output

    assert {*in_podman(tmp_path, real_podman, act).split("\n")} - {""} <= ALLOWED_FAMILIES


def test_how_it_is_made(tmp_path: Path, real_podman: str) -> None:
    async def act(sandbox: Sandbox) -> str:
        [found] = containers_at(real_podman, tmp_path)
        return called(real_podman, "inspect", found)

    [made] = json.loads(in_podman(tmp_path, real_podman, act, memory_mb=64, processes=100))
    host = made["HostConfig"]
    assert (host["NetworkMode"], host["ReadonlyRootfs"], host["LogConfig"]["Type"]) == ("none", True, "none")
    assert (host["Memory"], host["MemorySwap"], host["PidsLimit"]) == (64 * 2**20, 64 * 2**20, 116)
    assert host["NanoCpus"] == min(2, os.cpu_count() or 1) * 10**9
    assert {each["Name"]: each["Hard"] for each in host["Ulimits"]}["RLIMIT_CPU"] == 600
    assert made["Config"]["User"].split(":")[0] != "0"


def test_a_broken_limit_of_memory(tmp_path: Path, real_podman: str) -> None:
    async def act(sandbox: Sandbox) -> None:
        hog = await sandbox.exec(["python3", "-c", "held = bytearray(200 * 2**20); print('had it all')"], seconds=30)
        assert (hog.exit_code, hog.killed) == (None, "memory"), hog
        assert (await sandbox.exec(["echo", "again"], seconds=30)).output == "again\n"

    in_podman(tmp_path, real_podman, act, memory_mb=64)


@pytest.mark.parametrize("wrecking", ["kill -9 -1", "kill -9 $PPID", "kill -9 1", "kill -STOP $PPID; kill -CONT $PPID"])
def test_a_command_cannot_end_its_own_sandbox(tmp_path: Path, real_podman: str, wrecking: str) -> None:
    async def act(sandbox: Sandbox) -> None:
        script = f"setsid sleep 76510 & {wrecking}; sleep 0.1; exit 4"
        assert (await sandbox.exec(["sh", "-c", script], seconds=20)).killed is None
        names = await sandbox.exec(["sh", "-c", "cat /proc/[0-9]*/comm"], seconds=20)
        assert sorted(names.output.split()) == ["sh", "sh", "sh", "sleep"]  # two that wait, two of this question

    in_podman(tmp_path, real_podman, act)


@pytest.mark.full
@needs_root
def test_podman_of_an_ordinary_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    user = pwd.getpwnam("games")
    folder = tmp_path_factory.mktemp("rootless")
    (folder / "ids").write_text(f"{user.pw_name}:100000:65536\n")
    given = f"mount --bind {folder}/ids /etc/subuid && mount --bind {folder}/ids /etc/subgid"
    become = f"exec setpriv --reuid {user.pw_uid} --regid {user.pw_gid} --clear-groups"
    inside = ("unshare", "--mount", "sh", "-c", f'{given} && {become} "$@"', "sh")
    reading = "--inh-caps=+dac_read_search --ambient-caps=+dac_read_search"  # Python may lie in somebody's home
    try:
        with podman(user.pw_uid, inside) as program:
            base = Path(program).parent
            plain = base / "plain"
            plain.write_text(f'#!/bin/sh\nexec setpriv --inh-caps=-all --ambient-caps=-all {program} "$@"\n')
            plain.chmod(0o755)
            session = ["env", f"TMPDIR={base}", sys.executable, "-c", ROOTLESS, str(plain), IMAGE]
            command = ["unshare", "--mount", "sh", "-c", f'{given} && {become} {reading} "$@"', "sh", *session]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
            listed = subprocess.run([*inside, program, "ps", "-aq"], capture_output=True, text=True, check=True)
    except PodmanLacks as lacks:
        pytest.skip(f"podman cannot run here for an ordinary user: {lacks}")
    assert done.stdout == "['given5', True, 'time-out', None, 'given\\nmade\\n']\n", done.stderr
    assert listed.stdout == ""
