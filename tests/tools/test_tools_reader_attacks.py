"""What a parser that a page has taken over can do: nothing but say what the page says."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.tools import readers
from pytest_agentbench.tools.readers import Readers, UnreadableError
from pytest_agentbench.workspaces.sandboxes.bubblewrap import bubblewrap_problem

needs_bubblewrap = pytest.mark.skipif(bubblewrap_problem() is not None, reason="needs bubblewrap")

TAKEN_OVER = """
def _taken_over(head, body):
    import ctypes, socket
    asked, keeper, found = json.loads(body), os.getppid(), {}

    def traced():
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.ptrace(16, keeper, None, None):
            raise OSError(ctypes.get_errno(), "ptrace")

    def written():
        with open("/tmp/left-behind", "wb") as file:
            file.write(b"x")

    for name, attempt in {
        "its keeper's memory": lambda: open(f"/proc/{keeper}/mem", "r+b"),
        "its keeper's requests": lambda: os.open(f"/proc/{keeper}/fd/0", os.O_RDONLY),
        "its keeper's replies": lambda: os.open(f"/proc/{keeper}/fd/1", os.O_WRONLY),
        "its keeper's environment": lambda: open(f"/proc/{keeper}/environ"),
        "tracing its keeper": traced,
        "another process": os.fork,
        "a file": written,
        "files of this machine": lambda: open(asked["file"]),
        "the network": lambda: socket.create_connection(("127.0.0.1", asked["port"]), 2),
    }.items():
        try:
            attempt()
        except Exception as error:
            found[name] = type(error).__name__
        else:
            found[name] = "done"
    return {"text": json.dumps(found), "length": 1}

_READERS["html"] = _taken_over

"""
BABBLES = """
_READERS["html"] = lambda head, body: {"title": "x" * 5000, "text": "x", "length": 1}

"""
HANGING = """
import asyncio, sys
from pytest_agentbench.tools.readers import Readers
from pytest_agentbench.tools import readers

if sys.argv[1] == "local":
    readers.isolation_problem = lambda: "there is none"

async def main():
    async with Readers(1) as readers:
        body = b"<a " + b" ".join(b"a%d" % number for number in range(400_000)) + b">"
        await readers.read("html", body, "site", charset="", limit=10, links=False)

asyncio.run(main())
"""


@pytest.fixture
def parser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of the program that reads pages, to which a test adds what a page made of its parser."""
    program = tmp_path / "page_reader.py"
    program.write_text(Path(readers.__file__).with_name("page_reader.py").read_text())
    monkeypatch.setattr(readers, "_PROGRAM", program)
    readers._find_isolation.cache_clear()
    yield program
    readers._find_isolation.cache_clear()


def take_over(program: Path, code: str) -> None:
    source = program.read_text()
    assert source.count("\nif __name__") == 1
    program.write_text(source.replace("\nif __name__", f"{code}\nif __name__"))


def html(body: bytes, limit: int = 100_000) -> str:
    async def ask() -> str:
        async with Readers(1) as pool:
            return (await pool.read("html", body, "site", charset="", limit=limit, links=False)).text

    return asyncio.run(ask())


@needs_bubblewrap
def test_a_parser_that_is_taken_over_reaches_nothing(parser: Path, tmp_path: Path) -> None:
    take_over(parser, TAKEN_OVER)
    secret = tmp_path / "secret"
    secret.write_text("x")
    with socket.create_server(("127.0.0.1", 0)) as server:
        asked = {"port": server.getsockname()[1], "file": str(secret)}
        found = json.loads(html(json.dumps(asked).encode()))
    assert found == {
        "its keeper's memory": "PermissionError",
        "its keeper's requests": "PermissionError",
        "its keeper's replies": "PermissionError",
        "its keeper's environment": "PermissionError",
        "tracing its keeper": "PermissionError",
        "another process": "BlockingIOError",
        "a file": "OSError",
        "files of this machine": "FileNotFoundError",
        "the network": "ConnectionRefusedError",
    }


def test_more_than_was_wanted_is_not_taken(parser: Path) -> None:
    take_over(parser, BABBLES)
    with pytest.raises(UnreadableError, match="its reader returned too much"):
        html(b"<p>x", limit=1000)


def test_a_program_that_cannot_start_is_no_fault_of_a_page(parser: Path) -> None:
    parser.write_text("raise ImportError('no such library')")
    with pytest.raises(SandboxError, match="no process can be started that reads pages: ImportError: no such library"):
        html(b"<p>x")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["local", pytest.param("bubblewrap", marks=needs_bubblewrap)])
def test_a_session_that_is_killed_leaves_no_reader(kind: str) -> None:
    with subprocess.Popen([sys.executable, "-c", HANGING, kind], stderr=subprocess.PIPE) as session:
        while not any(map(reads_a_page, pids := descendants(session.pid))):
            assert session.poll() is None
            time.sleep(0.01)
        session.kill()
        assert session.stderr is not None
        said = session.stderr.read()
    assert (b"with all rights of this user: there is none" in said) == (kind == "local")
    deadline = time.monotonic() + 10
    while left := [pid for pid in pids if lives(pid)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.01)


def descendants(root: int) -> list[int]:
    found = [root]
    for pid in found:
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
        except OSError:  # it ended meanwhile
            continue
    return found[1:]


def reads_a_page(pid: int) -> bool:
    """Whether it is the process that a reader forked."""
    try:
        parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        both = [Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0") for each in (pid, parent)]
    except OSError:  # it ended meanwhile
        return False
    return both[0] == both[1] and b"-B" in both[0][:3] and any(word.endswith(b"page_reader.py") for word in both[0])


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
