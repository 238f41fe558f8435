"""What a command sees of this machine: with `sandbox: local` all of it, else nothing."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from attacks_support import SECRET, attack, run, shell, started
from support.docker_here import needs_bubblewrap
from support.socket_families import ALLOWED_FAMILIES, OPEN_FAMILIES

from pytest_agentbench.workspaces.sandboxes.bwrap import closes_abstract_sockets
from pytest_agentbench.workspaces.sandboxes.isolated import Isolation, run_isolated


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


@pytest.fixture
def session_sockets(public: Path) -> Iterator[list[tuple[str, str]]]:
    """Of an ssh-agent, a D-Bus daemon and an X server's places; real ones where they are installed."""
    agent, bus, screen = f"{public}/agent", f"/tmp/dbus-{os.getpid()}", f"/tmp/.X11-unix/X{os.getpid()}"
    if not os.path.exists("/tmp/.X11-unix"):
        os.mkdir("/tmp/.X11-unix")
        os.chmod("/tmp/.X11-unix", 0o1777)
    programs = {
        agent: ("ssh-agent", "-D", "-a", agent),
        f"\0{bus}": ("dbus-daemon", "--session", "--nofork", "--nosyslog", f"--address=unix:abstract={bus}"),
    }
    with ExitStack() as stack:
        for address in (agent, f"\0{bus}", screen, f"\0{screen}"):
            if shutil.which(programs.get(address, ("no program",))[0]) is not None:
                process = stack.enter_context(subprocess.Popen(programs[address], stdout=subprocess.DEVNULL))
                stack.callback(process.kill)
                until_reached(address)
            else:
                listener = stack.enter_context(socket.socket(socket.AF_UNIX))
                listener.bind(address)
                listener.listen()
        for path in (agent, screen):
            Path(path).chmod(0o777)
            stack.callback(Path(path).unlink, missing_ok=True)
        yield [("AF_UNIX", address) for address in (agent, f"\0{bus}", screen, f"\0{screen}")]


def until_reached(address: str) -> None:
    until = time.monotonic() + 20
    while True:
        with socket.socket(socket.AF_UNIX) as client:
            try:
                return client.connect(address)
            except OSError:
                assert time.monotonic() < until
                time.sleep(0.01)


@attack
@pytest.mark.parametrize("network", ["deny", "allow"])
def test_sockets_of_the_users_session(
    kind: str, isolated: bool, tmp_path: Path, session_sockets: list[tuple[str, str]], network: str
) -> None:
    """With this machine's network too, in which those without a file would be."""
    if kind == "bubblewrap" and network == "allow" and not closes_abstract_sockets():
        pytest.skip("this kernel cannot close abstract sockets (Linux 6.12, Landlock)")
    output = run(kind, tmp_path, program=CONNECT % (session_sockets,), network=network).output
    assert output.count("failed" if isolated else "reached") == len(session_sockets), output


@needs_bubblewrap
def test_sockets_of_the_users_session_from_a_hook(session_sockets: list[tuple[str, str]]) -> None:
    if not closes_abstract_sockets():
        pytest.skip("this kernel cannot close abstract sockets (Linux 6.12, Landlock)")
    isolation = Isolation(network=True)
    program = ["python3", "-c", CONNECT % (session_sockets,)]
    ended = asyncio.run(run_isolated(program, isolation, seconds=30)).ended
    assert ended.output.count("failed") == len(session_sockets), ended


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


@attack
def test_sockets_of_other_families(kind: str, isolated: bool, tmp_path: Path) -> None:
    """AF_VSOCK, which leads to the hypervisor from any network namespace, and whatever else the kernel has."""
    opened = run(kind, tmp_path, program=OPEN_FAMILIES).output.splitlines()
    assert {*opened} >= ALLOWED_FAMILIES - {"opened 10"}
    assert ({*opened} <= ALLOWED_FAMILIES) == isolated, opened


SYSTEM_CALLS = """
import ctypes, mmap, os, platform
libc = ctypes.CDLL(None, use_errno=True)
given = ctypes.create_string_buffer(4096)
calls = {
    "unshare with a user namespace": (272, 97, (0x10000000,)),
    "unshare with a network namespace": (272, 97, (0x40000000,)),
    "clone with a user namespace": (56, 220, (0x10000011, 0, 0, 0, 0)),
    "clone3": (435, 435, (given, 64)),
    "add_key": (248, 217, (b"user", b"agentbench", b"x", 1, -2)),
    "request_key": (249, 218, (b"user", b"agentbench", None, 0)),
    "keyctl": (250, 219, (0, -3, 0)),
    "io_uring_setup": (425, 425, (4, given)),
    "bpf": (321, 280, (0, given, 48)),
    "perf_event_open": (298, 241, (given, 0, -1, -1, 0)),
    "userfaultfd": (323, 282, (0x801,)),
    "open_tree": (428, 428, (-100, b"/", 1)),
    "kcmp": (312, 272, (os.getpid(), os.getpid(), 0, 0, 0)),
    "newer than any list": (457, 457, (given, given, 256, 0)),
}
machine = ["x86_64", "aarch64"].index(platform.machine())
for name, call in calls.items():
    child = os.fork()
    if child == 0:
        ctypes.set_errno(0)
        done = libc.syscall(call[machine], *call[2])
        if name.startswith("clone") and done == 0:
            os._exit(0)
        os._exit(1 if done == -1 and ctypes.get_errno() in (1, 38) else 0)
    if os.waitpid(child, 0)[1] == 0:
        print("made", name)
if machine == 0:
    for name, code in {
        "getpid of 32-bit programs": "b814000000cd804898c3",
        "getpid of x32 programs": "b8270000400f05c3",
    }.items():
        if os.fork() == 0:
            block = mmap.mmap(-1, 4096, prot=7)
            block.write(bytes.fromhex(code))
            call = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(block)))
            if call() > 0:
                print("made", name, flush=True)
            os._exit(0)
        os.wait()
print("tried all")
"""


@attack
def test_system_calls(kind: str, isolated: bool, tmp_path: Path) -> None:
    """Those that open sockets unseen, make namespaces, hold keys for others, or have opened kernels before."""
    output = run(kind, tmp_path, program=SYSTEM_CALLS).output
    assert output.endswith("tried all\n"), output
    assert ("made" not in output) == isolated, output
