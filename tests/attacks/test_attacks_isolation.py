"""What a command sees of this machine: with `sandbox: local` all of it, else nothing."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from attacks_support import SECRET, attack, run, shell, started


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user of this machine may read and write, and that does not lie in /tmp."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.fixture
def holder() -> Iterator[subprocess.Popen[bytes]]:
    """A process of this machine with a key in its environment."""
    process = subprocess.Popen(["sleep", "600"], env={**os.environ, "HOLDER_API_KEY": SECRET})
    yield process
    process.kill()
    process.wait()


@attack
def test_files_of_this_machine(kind: str, isolated: bool, tmp_path: Path, public: Path) -> None:
    for folder in (tmp_path, public):
        file = folder / "secret.txt"
        file.write_text(SECRET)
        file.chmod(0o666)
        output = run(kind, tmp_path, f"cat {file}; echo gotcha > {file}; touch {folder}/new.txt; ls {folder}").output
        assert (SECRET not in output) == isolated
        assert (file.read_text() == SECRET) == isolated
        assert (folder / "new.txt").exists() != isolated
    if isolated:
        writable = "for at in / /usr /usr/bin /etc /var /home /root /opt; do [ -w $at ] && echo writable: $at; done"
        assert "writable" not in run(kind, tmp_path, writable).output


@attack
def test_another_runs_workspace(kind: str, isolated: bool, tmp_path: Path) -> None:
    async def attempt() -> tuple[str, str]:
        async with started(kind, tmp_path) as victim, started(kind, tmp_path) as sandbox:
            await victim.put("notes.txt", SECRET.encode())
            await victim.put("/tmp/notes.txt", SECRET.encode())
            folder = victim.workspace.path
            names = f"{folder}/notes.txt {folder}/.tmp/notes.txt ../../*/*/notes.txt /tmp/notes.txt"
            read = await shell(sandbox, f"cat {names}; for at in {names}; do echo gotcha > $at; done")
            return read.output, (await victim.get("notes.txt", 1000)).decode()

    read, kept = asyncio.run(attempt())
    assert (SECRET not in read) == isolated
    assert (kept == SECRET) == isolated


@attack
def test_keys_in_the_environment(kind: str, isolated: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "HOME", "DOCKER_CONFIG", "SSH_AUTH_SOCK"):
        monkeypatch.setenv(name, SECRET)
    output = run(kind, tmp_path, "env; cat /proc/self/environ /proc/$PPID/environ | tr '\\0' '\\n'").output
    assert "PATH=" in output
    assert (SECRET not in output) == isolated


@attack
def test_environ_of_other_processes(kind: str, isolated: bool, tmp_path: Path, holder: subprocess.Popen[bytes]) -> None:
    looking = "cat /proc/1/environ /proc/[0-9]*/environ /proc/[0-9]*/task/*/environ | tr '\\0' '\\n' | grep HOLDER"
    output = run(kind, tmp_path, looking).output
    assert (SECRET not in output) == isolated


@attack
def test_signals_to_other_processes(kind: str, isolated: bool, tmp_path: Path, holder: subprocess.Popen[bytes]) -> None:
    run(kind, tmp_path, f"kill -9 {holder.pid}; python3 -c 'import os; os.kill({holder.pid}, 9)'")
    assert (holder.poll() is None) == isolated


@attack
def test_rights(kind: str, isolated: bool, tmp_path: Path) -> None:
    """Nobody's rights, and no way to more: no capability, no setuid program that works."""
    output = run(kind, tmp_path, "grep -E '^(Uid|CapEff|CapBnd|NoNewPrivs):' /proc/self/status").output
    status = {name.strip(":"): values for name, *values in map(str.split, output.splitlines())}
    held = [status["NoNewPrivs"] == ["1"], int(status["CapEff"][0], 16) == 0, set(status["Uid"]) != {"0"}]
    assert all(held) == isolated, output


CONNECT = """
import socket, sys
for family, *address in %r:
    try:
        with socket.socket(getattr(socket, family)) as client:
            client.settimeout(5)
            client.connect(tuple(address) if family == "AF_INET" else address[0])
            print("reached", address)
    except OSError as error:
        print("failed", address, error)
"""


@attack
def test_unix_sockets(kind: str, isolated: bool, tmp_path: Path, public: Path) -> None:
    """The docker daemon's, where there is one, and those of a listener that lets everybody in."""
    _, _, docker = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").partition("unix://")
    name = f"\0agentbench-{os.getpid()}"
    with ExitStack() as stack:
        for address in (f"{public}/s", name):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(address)
            listener.listen()
        (public / "s").chmod(0o777)
        addresses = [("AF_UNIX", address) for address in (f"{public}/s", name, docker, "/run/docker.sock")]
        output = run(kind, tmp_path, program=CONNECT % (addresses,)).output
    assert output.count("reached") + output.count("failed") == len(addresses), output
    assert ("reached" not in output) == isolated, output


@attack
def test_network(kind: str, isolated: bool, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0)
        program = CONNECT % ([("AF_INET", "127.0.0.1", listener.getsockname()[1])],)
        output = run(kind, tmp_path, "python3 attack.py; cat /proc/net/dev", program=program).output
        try:
            listener.accept()[0].close()
            came = True
        except BlockingIOError:
            came = False
    assert came != isolated, output
    if isolated:
        interfaces = [line.partition(":")[0].strip() for line in output.splitlines() if line.count(":") == 1]
        assert [name for name in interfaces if " " not in name] == ["lo"], output
